# SPDX-License-Identifier: BSD-3-Clause
"""Packs a wheel (PEP 427): archive.py CONTENTS.json OUT.whl

The rule `wheel` of wheel.bzl writes CONTENTS.json. The bytes of the wheel depend only on
the names and contents of the files, because members are sorted, and their times and modes are
fixed.
"""

import base64
import hashlib
import json
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

# The earliest time that a zip archive can contain.
_TIME = (1980, 1, 1, 0, 0, 0)


def _digest(data: bytes) -> str:
    """Returns the hash of a file's contents in the format of RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return "sha256=" + digest.rstrip(b"=").decode()


def _member(name: str) -> zipfile.ZipInfo:
    """Returns a file's archive entry. Shared objects are executable, as linkers create them."""
    info = zipfile.ZipInfo(name, _TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
    return info


def pack(
    out: Path, members: Mapping[str, bytes], dist_info: str, tag: str, description: bytes = b""
) -> None:
    """Writes a wheel.

    Args:
        out: the archive to write.
        members: maps paths in the archive to contents. It includes the files of dist_info, except
            WHEEL and RECORD, which this function creates.
        dist_info: the folder's name, NAME-VERSION.dist-info.
        tag: PYTHON-ABI-PLATFORM.
        description: a page in Markdown that METADATA ends with.

    Raises:
        ValueError: if METADATA is not among the members.
    """
    metadata = f"{dist_info}/METADATA"
    if metadata not in members:
        raise ValueError(f"{out.name}: {metadata} is missing: add the dist_info to srcs")
    wheel = (
        f"Wheel-Version: 1.0\nGenerator: torch_openreg\nRoot-Is-Purelib: false\nTag: {tag}\n"
    ).encode()
    files = {**members, f"{dist_info}/WHEEL": wheel}
    if description:
        files[metadata] += b"Description-Content-Type: text/markdown\n\n" + description
    record = []
    with zipfile.ZipFile(out, "w") as archive:
        # Put metadata last, so that tools can change it in place (PEP 427).
        for name in sorted(files, key=lambda name: (name.startswith(dist_info), name)):
            archive.writestr(_member(name), files[name])
            record.append(f"{name},{_digest(files[name])},{len(files[name])}\n")
        record.append(f"{dist_info}/RECORD,,\n")
        archive.writestr(_member(f"{dist_info}/RECORD"), "".join(record))


def main(contents: str, out: str) -> None:
    """Packs the files that the JSON file `contents` lists."""
    spec = json.loads(Path(contents).read_text(encoding="utf-8"))
    members = {name: Path(path).read_bytes() for name, path in spec["members"]}
    description = Path(spec["description"]).read_bytes() if spec["description"] else b""
    pack(Path(out), members, spec["dist_info"], spec["tag"], description)


if __name__ == "__main__":
    main(*sys.argv[1:])
