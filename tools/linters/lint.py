# SPDX-License-Identifier: BSD-3-Clause
"""Runs every linter: ./bazelw run //tools:lint [-- [--fix] [--only TOOL] [FOLDER...]]

The program prints one line per tool, followed by the tool's findings. The exit status is 0 if there
are no findings.
"""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import bazel_workspace
from tools.linters import documentation, words

# The folder of the programs in the Python environment that runs this program.
_BIN = Path(sys.prefix) / "bin"
# The dictionary for codespell, and the list of phrases, which codespell does not support.
_WORDS = "tools/linters/words.txt"
_PHRASES = "tools/linters/phrases.txt"


@dataclass(frozen=True)
class Linter:
    """A tool, with the files that it reads and the function that runs it."""

    name: str
    # The files to check, relative to the root folder of the tree.
    files: Sequence[str]
    # Returns the findings, or an empty text if there are none. If the argument is true, the tool
    # first fixes the findings that it can fix.
    run: Callable[[bool], str]
    # Whether the tool itself can fix findings.
    fixes: bool = True


def is_shell(path: Path) -> bool:
    """Returns whether a file is a shell script, according to its name or its first line."""
    if path.suffix:
        return path.suffix == ".sh"
    with path.open("rb") as file:
        return re.match(rb"#!\s*\S*/(env )?(ba|da)?sh\b", file.readline()) is not None


def is_starlark(path: Path) -> bool:
    """Returns whether Bazel reads a file as Starlark code."""
    return path.suffix == ".bzl" or path.name in {"BUILD.bazel", "WORKSPACE"}


def is_prose(name: str) -> bool:
    """Returns whether a file may contain this project's comments, docs or messages.

    Lists of forbidden words and recorded program outputs are excluded.
    """
    path = Path(name)
    return not (
        path.suffix == ".lock"
        or "testdata" in path.parts
        or (path.parent == Path("tools/linters") and path.suffix == ".txt")
        or path == Path("tools/linters/words_test.py")
    )


def source_files(root: Path, folders: Sequence[str]) -> list[str]:
    """Returns the files that git tracks or would track, as sorted paths relative to root.

    Args:
        root: the root folder of the source tree.
        folders: the folders to search, relative to root; an empty list means all folders.

    Raises:
        SystemExit: if git is missing or fails.
    """
    command = [
        "git",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        *folders,
    ]
    try:
        listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise SystemExit("lint: git is missing; run apt-get install git") from None
    except subprocess.CalledProcessError as error:
        message = f"lint: git ls-files exited with status {error.returncode}"
        if words := error.stderr.strip():
            message += f"; its stderr is: {words}"
        raise SystemExit(message) from None
    return sorted(name for name in listed.stdout.split("\0") if name and (root / name).is_file())


def command_output(root: Path, *commands: Sequence[str | Path]) -> str:
    """Runs commands and returns the output of those that fail."""
    found = ""
    for command in commands:
        done = subprocess.run(
            command,
            cwd=root,
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if done.returncode:
            found += done.stdout or f"{command[0]}: exit status {done.returncode}\n"
    return found


def clang_tidy(folders: Sequence[str]) -> str:
    """Runs clang-tidy on the C++ targets in folders, as Bazel actions with cached results."""
    done = bazel_workspace.bazel(
        "build",
        "--keep_going",
        "--aspects=//tools/linters:clang_tidy.bzl%clang_tidy",
        "--output_groups=clang_tidy",
        "--noshow_progress",
        "--ui_event_filters=-info,-debug",
        "--",
        *([f"//{folder}/..." for folder in folders] or ["//..."]),
    )
    return (done.stdout + done.stderr) if done.returncode else ""


def linters(root: Path, folders: Sequence[str], buildifier: Path) -> list[Linter]:
    """Returns all tools; fast tools come first.

    Args:
        root: the root folder of the source tree.
        folders: the folders to check, relative to root; an empty list means all folders.
        buildifier: the path of the program buildifier.
    """
    files = source_files(root, folders)
    cpp = [name for name in files if name.endswith((".cc", ".h"))]
    python = [name for name in files if name.endswith((".py", ".pyi"))]
    shell = [name for name in files if is_shell(root / name)]
    starlark = [name for name in files if is_starlark(root / name)]
    prose = [name for name in files if is_prose(name)]

    def clang_format(fix: bool) -> str:
        mode = ["-i"] if fix else ["--dry-run", "-Werror"]
        return command_output(root, [_BIN / "clang-format", *mode, *cpp])

    def ruff(fix: bool) -> str:
        check = ["check", "--quiet", "--fix"] if fix else ["check", "--quiet"]
        layout = ["format", "--quiet"] if fix else ["format", "--quiet", "--diff"]
        # Format last, because a fix may change the length of a line.
        return command_output(
            root, [_BIN / "ruff", *check, *python], [_BIN / "ruff", *layout, *python]
        )

    def starlark_format(fix: bool) -> str:
        mode = ["-mode=fix", "-lint=fix"] if fix else ["-mode=diff", "-lint=warn"]
        # Before Bazel 8, CcInfo is built into Bazel and cannot be loaded from rules_cc.
        warnings = "-warnings=-native-cc-info"
        return command_output(root, [buildifier, *mode, warnings, *starlark])

    def shellcheck(_fix: bool) -> str:
        return command_output(root, [_BIN / "shellcheck", *shell])

    def mypy(_fix: bool) -> str:
        cache = Path.home() / ".cache" / "torch_openreg" / "mypy"
        return command_output(
            root, [_BIN / "mypy", "--no-error-summary", "--cache-dir", cache, *python]
        )

    def wording(_fix: bool) -> str:
        return words.find_words(root, prose, _WORDS) + words.find_phrases(
            root, prose, words.read_phrases((root / _PHRASES).read_text())
        )

    def docs(_fix: bool) -> str:
        # Check the whole tree, because a page may name any file.
        return documentation.check(root, source_files(root, []))

    return [
        Linter("words", prose, wording, fixes=False),
        Linter("docs", files, docs, fixes=False),
        Linter("clang-format", cpp, clang_format),
        Linter("ruff", python, ruff),
        Linter("buildifier", starlark, starlark_format),
        Linter("shellcheck", shell, shellcheck, fixes=False),
        Linter("mypy", python, mypy, fixes=False),
        Linter("clang-tidy", cpp, lambda _fix: clang_tidy(folders), fixes=False),
    ]


def report(tools: Sequence[Linter], fix: bool) -> int:
    """Runs tools and prints their findings.

    Args:
        tools: the tools to run, in this order.
        fix: whether the tools fix the findings that they can fix.

    Returns:
        The exit status: 0 if there are no findings.
    """
    failed = []
    for tool in tools:
        start = time.monotonic()
        found = tool.run(fix) if tool.files else ""
        state = "FOUND" if found else "ok"
        seconds = time.monotonic() - start
        print(f"{tool.name:<13} {state:<6} {len(tool.files):4} files {seconds:7.1f} s", flush=True)
        if found:
            print(found.rstrip("\n"), flush=True)
            failed.append(tool)
    if not failed:
        print(f"{len(tools)} linters, nothing found")
        return 0
    print(
        f"{len(failed)} of {len(tools)} linters found something: "
        + ", ".join(t.name for t in failed)
    )
    if not fix and any(tool.fixes for tool in failed):
        print("fix what the tools can fix: ./bazelw run //tools:lint -- --fix")
    return 1


def main() -> int:
    """Parses the command line and runs the linters."""
    parser = argparse.ArgumentParser(prog="./bazelw run //tools:lint --", allow_abbrev=False)
    parser.add_argument("--fix", action="store_true", help="fix what the tools can fix")
    parser.add_argument(
        "--only", metavar="TOOL", action="append", help="run this tool; may be repeated"
    )
    parser.add_argument("--buildifier", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument(
        "folders", nargs="*", metavar="FOLDER", help="check only this folder; may be repeated"
    )
    args = parser.parse_args()
    root = bazel_workspace.root()
    for folder in args.folders:
        if not (root / folder).is_dir():
            parser.error(f"folder {folder} does not exist in {root}")
    tools = linters(root, [f.strip("/") for f in args.folders], args.buildifier.resolve())
    if args.only:
        unknown = set(args.only) - {tool.name for tool in tools}
        if unknown:
            parser.error(
                f"unknown tool {', '.join(sorted(unknown))}; the tools are "
                + ", ".join(tool.name for tool in tools)
            )
        tools = [tool for tool in tools if tool.name in args.only]
    return report(tools, args.fix)


if __name__ == "__main__":
    sys.exit(main())
