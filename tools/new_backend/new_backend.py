# SPDX-License-Identifier: BSD-3-Clause
"""Writes a repository with a backend for another device, based on this repository's packages.

./bazelw run //tools/new_backend -- acme --out DIR
./bazelw run //tools/new_backend -- --update --out DIR

docs/porting.md describes the next steps.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tools import bazel_workspace
from tools.new_backend import origin, parts, tree
from tools.new_backend.layout import laid_out
from tools.new_backend.names import NameRefused, Names
from tools.new_backend.origin import NotGenerated, Origin
from tools.new_backend.tree import Choice
from tools.new_backend.update import uncommitted, update


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parses the flags; exits if a flag is wrong."""
    parser = argparse.ArgumentParser(
        prog="new_backend", description=__doc__.splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("device", nargs="?", help="the device type, for instance acme or my_npu")
    parser.add_argument(
        "--prefix",
        default="",
        help="the prefix of the driver's functions and types, for instance npu2 for npu2Malloc "
        "(default: the device type in camel case, such as myNpu)",
    )
    parser.add_argument(
        "--package",
        default="",
        help="the Python package, for instance torch_npu2 (default: torch_ and the device type)",
    )
    parser.add_argument("--out", type=_folder, required=True, metavar="DIR", help="the repository")
    parser.add_argument(
        "--with",
        type=_features,
        default=parts.DEFAULT_FEATURES,
        dest="features",
        metavar="FEATURES",
        help=f"a list of {', '.join(parts.FEATURES)}, or 'none' "
        f"(default: {','.join(parts.DEFAULT_FEATURES)})",
    )
    parser.add_argument(
        "--build",
        choices=parts.BUILDS,
        default="bazel",
        help="how the backend is built: by Bazel, or by CMake and pip (default: bazel)",
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="bring later changes to the sources into a repository that this program wrote, and "
        "keep its own changes: a three-way merge",
    )
    flags = parser.parse_args(argv)
    if flags.update == (flags.device is not None):
        parser.error("give either the type of a new device or --update")
    if flags.update and (flags.prefix or flags.package):
        parser.error("--prefix and --package apply only to a new device: an update keeps them")
    return flags


def _features(text: str) -> tuple[str, ...]:
    """Returns the features in a list, without duplicates and sorted by name."""
    names = set() if text == "none" else set(text.split(","))
    if unknown := names - parts.FEATURES.keys():
        raise argparse.ArgumentTypeError(
            f"no feature {', '.join(sorted(map(repr, unknown)))}: expected some of "
            f"{', '.join(parts.FEATURES)}, or 'none'"
        )
    return tuple(sorted(names))


def _folder(text: str) -> Path:
    """Returns a folder, relative to the folder in which the user typed the command."""
    return Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), text).absolute()


def revision(root: Path) -> str:
    """Returns the commit of the sources, with the suffix "-dirty" if there are other changes."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def create(root: Path, flags: argparse.Namespace) -> int:
    """Writes a new repository and returns the exit status."""
    if flags.out.exists() and any(flags.out.iterdir()):
        return _refuse(f"{flags.out} is not empty: give a new folder, or --update")
    try:
        names = Names.of(flags.device, flags.prefix, flags.package)
    except NameRefused as error:
        return _refuse(str(error))
    made_of = Origin(
        names.device, names.prefix, names.package, flags.build, flags.features, revision(root)
    )
    made = laid_out(tree.make(root, Choice(names, flags.features, flags.build)))
    tree.write(made | origin.files(made_of, made), flags.out)
    print(f"{flags.out}: {len(made)} files of a backend for device {names.device!r}")
    environment = "python3 -m venv .venv && . .venv/bin/activate && pip install -r requirements.txt"
    first = f"{environment} && " if flags.build == "cmake" else ""
    print(f"next: cd {flags.out}, commit the files with git, and run: {first}bash .ci/run")
    return 0


def bring_up_to_date(root: Path, flags: argparse.Namespace) -> int:
    """Updates a repository and reports the changes; returns the exit status, 1 for conflicts."""
    try:
        made_of, base = origin.read(flags.out)
        names = Names.of(made_of.device, made_of.prefix, made_of.package)
    except (NotGenerated, NameRefused) as error:
        return _refuse(str(error))
    if files := uncommitted(flags.out):
        return _refuse(
            f"{flags.out} has uncommitted changes, for instance in {files[0]}: commit them first, "
            "so that git can show and undo the update"
        )
    made = laid_out(tree.make(root, Choice(names, made_of.features, made_of.build)))
    changes = update(flags.out, base, made)
    made_of = replace(made_of, prefix=names.prefix, package=names.package, revision=revision(root))
    tree.write(origin.files(made_of, made), flags.out)
    lines = changes.lines()
    for line in lines or [f"{flags.out}: up to date"]:
        print(line)
    if lines:
        resolve = "resolve the conflicts, which are marked as in a merge of git, and "
        first = resolve if changes.conflicts else ""
        print(f"next: {first}commit these files together with tools/generated.*")
    return 1 if changes.conflicts else 0


def _refuse(message: str) -> int:
    print(f"new_backend: {message}", file=sys.stderr)
    return 2


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit status."""
    flags = parse(argv)
    root = bazel_workspace.root()
    return bring_up_to_date(root, flags) if flags.update else create(root, flags)


if __name__ == "__main__":
    sys.exit(main())
