# SPDX-License-Identifier: BSD-3-Clause
"""The provenance of a report: versions and hashes of torch, backend and kit; the machine.

If two reports have the same hashes and seed, they tested the same software.
"""

import hashlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch_device_conformance.subject.subject import Subject
from torch_device_conformance.version import VERSION

# A package's hash includes the files with these suffixes.
SUFFIXES = frozenset({".py", ".so", ".pyd", ".json", ".yaml"})


def files_hash(files: Iterable[Path], root: Path) -> str:
    """Returns a SHA-256 hash of files: of their contents, and of their paths relative to `root`."""
    total = hashlib.sha256()
    for file in sorted(files):
        total.update(str(file.relative_to(root)).encode())
        with file.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()


def package_hash(folder: Path) -> str:
    """Returns a SHA-256 hash of a package's code."""
    files = [file for file in folder.rglob("*") if file.suffix in SUFFIXES and file.is_file()]
    return files_hash((f for f in files if "__pycache__" not in f.parts), folder)


def record_hash(record: Path, package: str) -> str:
    """Returns a SHA-256 hash of a wheel's RECORD (PEP 376), which lists the hash of each file.

    Only lines about files in the package count. Others differ between environments, for example
    those about scripts, whose first line is the interpreter's path.
    """
    lines = record.read_text().splitlines()
    own = (line for line in lines if line.startswith(f"{package}/") and "/__pycache__/" not in line)
    return hashlib.sha256("\n".join(sorted(own)).encode()).hexdigest()


def torch_hash() -> str:
    """Returns a SHA-256 hash of torch's wheel, the same in all environments.

    Without the wheel's RECORD, returns the hash of the folder torch/_C, or "unknown" if there is no
    such folder.
    """
    root = Path(torch.__file__).parent
    record = root.parent / f"torch-{torch.__version__}.dist-info" / "RECORD"
    if record.exists():  # hashing the files themselves, about 1 GB, takes too long
        return record_hash(record, "torch")
    return package_hash(root / "_C") if (root / "_C").is_dir() else "unknown"


def backend(subject: Subject, device: torch.device) -> dict[str, Any]:
    """Returns the backend's module, its version and the hashes of its code."""
    module = getattr(torch, device.type, None)
    name = getattr(module, "__name__", "") if not subject.is_cpu else "torch"
    top = name.partition(".")[0] or device.type
    # torch.<device> may have no name, because it need not be a module.
    found: dict[str, Any] = {"module": name or ", ".join(Path(n).name for n in subject.imports)}
    try:
        found["version"] = importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:
        found["version"] = str(getattr(sys.modules.get(top), "__version__", "unknown"))
    hashes = {}
    for part in dict.fromkeys([*subject.imports, *([top] if top != "torch" else [])]):
        file = Path(part) if part.endswith(".py") else None
        loaded = getattr(sys.modules.get(part), "__file__", None)
        if file is not None and file.exists():
            hashes[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
        elif loaded:
            path = Path(loaded)
            package = path.name == "__init__.py"
            hashes[part] = (
                package_hash(path.parent)
                if package
                else hashlib.sha256(path.read_bytes()).hexdigest()
            )
    found["sha256"] = hashes
    return found


def provenance(subject: Subject, device: torch.device) -> dict[str, Any]:
    """Returns the complete provenance for a report."""
    return {
        "torch": {"version": torch.__version__, "sha256": torch_hash()},
        "backend": backend(subject, device),
        "kit": {"version": VERSION, "sha256": package_hash(Path(__file__).parents[1])},
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
            "python": platform.python_version(),
        },
    }
