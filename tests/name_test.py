# SPDX-License-Identifier: BSD-3-Clause
"""Each Python package defines the device's and its own name in one place, to make a rename easy."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ["torch_openreg", "torch_openreg_autoload", "torch_openreg_compile", "openreg_graph"]

# Matches the device's name: alone, as the name of the module, or with an index. Does not match the
# prefix "openreg: " in error messages. Also matches the package's name.
NAME = re.compile(r"^openreg$|\btorch\.openreg\b|\bopenreg:(\d|$)|\btorch_openreg")


def sources(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    origin = Path(spec.origin)
    return sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]


def documentation(tree: ast.AST) -> Iterator[ast.expr]:
    """Yields docstrings, and all other strings that are statements."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            yield node.value


def strays(text: str) -> list[str]:
    """Returns the strings that contain the name of the device or package, with line numbers."""
    tree = ast.parse(text)
    prose = set(documentation(tree))
    return [
        f"{node.lineno}: {node.value!r}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node not in prose
        if isinstance(node.value, str) and NAME.search(node.value)
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_names_are_in_one_file(package: str) -> None:
    files = sources(package)
    assert files
    found = [
        f"{path}:{stray}"
        for path in files
        if path.name != "name.py"
        for stray in strays(path.read_text())
    ]
    assert not found, "use DEVICE_TYPE, MODULE or PACKAGE from name.py:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "x.to('openreg')",
        "x.to('openreg:1')",
        "x.to(f'openreg:{index}')",
        "line = 'torch.openreg.synchronize()'",
        "files('torch_openreg')",
        "prog='python -m torch_openreg'",
        "import_module('torch_openreg_compile.pipeline')",
    ],
)
def test_a_stray_is_found(text: str) -> None:
    assert len(strays(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "'Of torch.openreg.'",
        "'Of torch_openreg.'",
        "raise ValueError('openreg: 3 is too much')",
        "import torch_openreg",
    ],
)
def test_prose_is_none(text: str) -> None:
    assert not strays(text)


def test_the_packages_agree() -> None:
    names = {
        importlib.import_module(f"{package}.name").DEVICE_TYPE
        for package in PACKAGES
        if package != "openreg_graph"
    }
    assert len(names) == 1
    packages = {importlib.import_module(f"{package}.name").PACKAGE for package in PACKAGES[:2]}
    assert packages == {PACKAGES[0]}
