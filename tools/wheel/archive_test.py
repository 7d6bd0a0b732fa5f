# SPDX-License-Identifier: BSD-3-Clause
"""pip can install a wheel, and the same files result in the same bytes."""

import base64
import csv
import email
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools.wheel.archive import pack

INFO = "thing-1.0.dist-info"
TAG = "py3-none-any"
MEMBERS = {
    f"{INFO}/METADATA": b"Metadata-Version: 2.4\nName: thing\nVersion: 1.0\n",
    "thing/__init__.py": b"answer = 42\n",
    "thing/lib/libthing.so": b"\x7fELF",
}


def test_bytes_do_not_depend_on_order(tmp_path: Path) -> None:
    first, second = tmp_path / "first.whl", tmp_path / "second.whl"
    pack(first, MEMBERS, INFO, TAG)
    pack(second, dict(reversed(MEMBERS.items())), INFO, TAG)
    assert first.read_bytes() == second.read_bytes()


def test_modes_and_times(tmp_path: Path) -> None:
    out = tmp_path / "thing.whl"
    pack(out, MEMBERS, INFO, TAG)
    with zipfile.ZipFile(out) as archive:
        modes = {i.filename: i.external_attr >> 16 for i in archive.infolist()}
        assert {i.date_time for i in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert modes["thing/lib/libthing.so"] == 0o100755
    assert modes["thing/__init__.py"] == 0o100644


def test_description_ends_the_metadata(tmp_path: Path) -> None:
    out = tmp_path / "thing.whl"
    pack(out, MEMBERS, INFO, TAG, b"# Thing\n")
    with zipfile.ZipFile(out) as archive:
        metadata = email.message_from_bytes(archive.read(f"{INFO}/METADATA"))
    assert metadata["Version"] == "1.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == "# Thing\n"


def test_pip_installs_it(tmp_path: Path) -> None:
    out = tmp_path / f"thing-1.0-{TAG}.whl"
    pack(out, MEMBERS, INFO, TAG)
    target = tmp_path / "target"
    pip = [sys.executable, "-I", "-m", "pip", "install", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(target), str(out)], check=True)
    code = "import importlib.metadata as m, thing; print(thing.answer, m.version('thing'))"
    environment = os.environ | {"PYTHONPATH": str(target)}
    printed = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert printed == "42 1.0\n"


def test_record_lists_every_member(tmp_path: Path) -> None:
    out = tmp_path / "thing.whl"
    pack(out, MEMBERS, INFO, TAG)
    with zipfile.ZipFile(out) as archive:
        rows = csv.reader(archive.read(f"{INFO}/RECORD").decode().splitlines())
        record = {name: (digest, size) for name, digest, size in rows}
        assert set(record) == set(archive.namelist())
    code = base64.urlsafe_b64encode(hashlib.sha256(b"answer = 42\n").digest()).decode()
    assert record["thing/__init__.py"] == ("sha256=" + code.rstrip("="), "12")
    assert record[f"{INFO}/RECORD"] == ("", "")


def test_metadata_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="METADATA is missing"):
        pack(tmp_path / "thing.whl", {"thing/__init__.py": b""}, INFO, TAG)
