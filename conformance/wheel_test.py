# SPDX-License-Identifier: BSD-3-Clause
"""The wheel is pure Python, complete, and independent of openreg."""

import zipfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def wheel() -> zipfile.ZipFile:
    (path,) = Path("conformance").glob("torch_device_conformance-*.whl")
    assert path.name.endswith("-py3-none-any.whl")
    return zipfile.ZipFile(path)


def test_all_files_are_there(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    for name in ("__main__.py", "py.typed", "report/page.html", "report/schema.json"):
        assert f"torch_device_conformance/{name}" in names
    assert not [name for name in names if name.endswith((".so", "_test.py"))]


def test_code_does_not_import_our_device(wheel: zipfile.ZipFile) -> None:
    for name in wheel.namelist():
        if name.endswith(".py") and "/contract/" not in name:
            lines = wheel.read(name).decode().splitlines()
            assert not [line for line in lines if "import" in line and "openreg" in line], name


def test_requirements(wheel: zipfile.ZipFile) -> None:
    (name,) = [n for n in wheel.namelist() if n.endswith("METADATA")]
    metadata = wheel.read(name).decode()
    required = {
        line.partition(": ")[2].partition(">")[0]
        for line in metadata.splitlines()
        if line.startswith("Requires-Dist: ")
    }
    assert required == {"torch", "numpy", "expecttest", "tqdm"}
