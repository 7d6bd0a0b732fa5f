# SPDX-License-Identifier: BSD-3-Clause
"""The wheels of all Python releases differ only in the extension module, which fits its release.

torch is installed only for the release that runs this test, so the other wheels are not imported.
docs/python.md describes how to test such a wheel with a torch of its release.
"""

import ast
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environment import runfile

HERE = f"3{sys.version_info.minor}"
WHEELS = {
    match[1]: path
    for path in runfile("python").glob("*.whl")
    if (match := re.search(r"-cp(\d+)-cp\1-manylinux", path.name))
}
# Maps a release, for instance "310", to its interpreter. Releases that this machine lacks are
# missing, and have no wheel.
INTERPRETERS = dict(
    pair.split("=", maxsplit=1) for pair in os.environ["OTHER_PYTHONS"].split(":") if pair
)
OTHERS = [
    pytest.param(
        release,
        marks=[]
        if release in INTERPRETERS
        else pytest.mark.skip(reason=f"this machine has no headers of Python 3.{release[1:]}"),
    )
    for release in ("310", "312", "313")
]


def contents(release: str) -> dict[str, bytes]:
    with zipfile.ZipFile(WHEELS[release]) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist()}


def differing(name: str) -> bool:
    """Returns whether a member of a wheel depends on the Python release."""
    return "/_C." in name or name.endswith((".dist-info/WHEEL", ".dist-info/RECORD"))


@pytest.mark.parametrize("release", OTHERS)
def test_only_the_extension_module_differs(release: str) -> None:
    ours, theirs = contents(HERE), contents(release)
    for members in (ours, theirs):
        for name in [
            name for name in members if differing(name) and name != "torch_openreg/_C.pyi"
        ]:
            del members[name]
    assert theirs == ours


@pytest.mark.parametrize("release", OTHERS)
def test_the_name_of_the_module_is_one_that_the_interpreter_looks_for(release: str) -> None:
    code = "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"
    suffix = output(INTERPRETERS[release], "-c", code).strip()
    names = [name for name in contents(release) if "/_C." in name and name.endswith(".so")]
    assert names == [f"torch_openreg/_C{suffix}"]


@pytest.mark.parametrize("release", OTHERS)
def test_the_interpreter_has_all_symbols(release: str, tmp_path: Path) -> None:
    """The interpreter has all symbols that the extension module imports from it.

    Symbols that the module for this test's release also imports are not checked: torch has the same
    ones for all releases.
    """
    needed = undefined(release, tmp_path) - undefined(HERE, tmp_path)
    python = INTERPRETERS[release]
    code = "import sysconfig as s; print(s.get_config_var('LIBDIR'), s.get_config_var('LDLIBRARY'))"
    folder, name = output(python, "-c", code).split()
    library = Path(folder, name)
    has = output("nm", "--dynamic", "--defined-only", library if ".so" in name else python)
    assert needed <= {line.split()[-1].partition("@")[0] for line in has.splitlines()}


def undefined(release: str, folder: Path) -> set[str]:
    (path, data), *_ = [
        (folder / name.replace("/", "_"), data)
        for name, data in contents(release).items()
        if name.endswith(".so") and "/_C." in name
    ]
    path.write_bytes(data)
    lines = output("nm", "--dynamic", "--undefined-only", path).splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines}


@pytest.mark.parametrize("release", OTHERS)
def test_the_interpreter_has_the_names_that_modules_import(release: str, tmp_path: Path) -> None:
    """The modules compile, and the standard library contains all names that they import from it."""
    program = [
        "import importlib, pathlib, sys",
        "for path in pathlib.Path(sys.argv[1]).rglob('*.py'):",
        "    compile(path.read_text(), str(path), 'exec')",
    ]
    for name, data in contents(release).items():
        if name.endswith(".py"):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            program += standard_imports(data.decode())
    assert len(program) > 50
    (tmp_path / "program.py").write_text("\n".join(program))
    output(INTERPRETERS[release], str(tmp_path / "program.py"), str(tmp_path))


def standard_imports(text: str) -> Iterator[str]:
    """Yields a statement for each import of the standard library that runs in a module."""
    tree = ast.parse(text)
    for_types = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for child in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module.partition(".")[0] in sys.stdlib_module_names:
                yield from (f"from {node.module} import {alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in sys.stdlib_module_names:
                    yield f"import {alias.name}"


@pytest.mark.parametrize("release", OTHERS)
def test_the_wheel_of_another_release_is_refused(release: str, tmp_path: Path) -> None:
    # pip rejects the wheel, so unpack it as if somebody had copied the folder.
    with zipfile.ZipFile(WHEELS[release]) as wheel:
        wheel.extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "torch_openreg"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    there, here = (f"3.{release[1:]}" for release in (release, HERE))
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"was built for Python {there}, but this is Python {here}" in " ".join(
        done.stdout.split()
    )
    assert "pip install --force-reinstall" not in done.stdout  # the same wheel would not help


def output(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
