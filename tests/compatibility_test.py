# SPDX-License-Identifier: BSD-3-Clause
"""An incompatible environment is reported, with advice, before any library is loaded."""

import subprocess
import sys
from pathlib import Path

import pytest
from torch_openreg import _C

from tests import child

OFF = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def refusal(change: str, **environment: str) -> str:
    """Returns the error of `import torch_openreg` in a process that first executes `change`.

    The child's last printed word is "True" if a library was loaded. torch must work in either case.
    """
    code = f"""
import sys, torch
{change}
try:
    import torch_openreg
except ImportError as error:
    print(error)
else:
    raise AssertionError("it was imported")
assert torch.ones(2).sum().item() == 2
if "privateuseone" == torch._C._get_privateuse1_backend_name():
    assert not hasattr(torch, "openreg")
    assert torch.accelerator.current_accelerator() in (None, torch.device("cuda"))
print("libopenreg" in open("/proc/self/maps").read())
"""
    return child.output(code, **OFF, **environment)


@pytest.mark.parametrize(
    ("change", "built", "found", "advice"),
    [
        (
            "torch.__version__ = '2.12.1+cpu'",
            "built for torch 2.13.0",
            "torch 2.12.1+cpu is installed",
            "install torch==2.13.0, or a torch_openreg that was built for torch 2.12.1",
        ),
        (
            "torch.__version__ = '2.14.0.dev20261101+cpu'",
            "built for torch 2.13.0",
            "torch 2.14.0.dev20261101+cpu is installed",
            "install torch==2.13.0",
        ),
        (
            "torch._C._GLIBCXX_USE_CXX11_ABI = False",
            "built for a torch with the C++11 ABI",
            "_GLIBCXX_USE_CXX11_ABI=0",
            "install torch from PyPI",
        ),
        (
            "torch.version.debug = True",
            "built for a release build of torch",
            "is a debug build",
            "install torch from PyPI",
        ),
        (
            "sys.version_info = (3, 99, 1, 'final', 0)",
            f"built for Python {PYTHON}, but",
            "this is Python 3.99",
            f"use Python {PYTHON}, or",
        ),
    ],
    ids=["older", "newer", "abi", "debug", "python"],
)
def test_other_environment(change: str, built: str, found: str, advice: str) -> None:
    printed = refusal(change)
    for part in (built, found, advice):
        assert part in printed
    assert printed.endswith("False")  # no library was loaded


@pytest.mark.parametrize(
    ("change", "owner"),
    [
        ("torch.utils.rename_privateuse1_backend('npu')", "device 'npu' of another package"),
        (
            "import types; torch.utils.rename_privateuse1_backend('npu')\n"
            "torch._register_device_module('npu', types.ModuleType('torch_npu.npu'))",
            "device 'npu' (torch_npu.npu) of another package",
        ),
        (
            "library = torch.library.Library('aten', 'IMPL', 'PrivateUse1')\n"
            "library.impl('empty.memory_format', lambda *arguments, **named: None)",
            "device 'privateuseone' of another package",
        ),
        (
            "torch.utils.rename_privateuse1_backend('openreg')",
            "device 'openreg' of another package",
        ),
    ],
    ids=["name", "module", "kernels", "same-name"],
)
def test_another_backend_came_first(change: str, owner: str) -> None:
    printed = refusal(change)
    assert "torch_openreg cannot register device 'openreg'" in printed
    assert owner in printed
    assert "Use only one of the two packages in a process" in printed
    assert printed.endswith("False")


VERSION = _C.driver_version()  # major * 10000 + minor * 100 + patch
MINOR, MAJOR = 100, 10000


@pytest.mark.parametrize(
    ("version", "accepted"),
    [
        (VERSION, True),
        (VERSION + 7, True),
        (VERSION + MINOR, True),
        (VERSION - MINOR, False),
        (VERSION - MAJOR, False),
        (VERSION + MAJOR, False),
    ],
)
def test_version_of_the_driver(version: int, accepted: bool, tmp_path: Path) -> None:
    # A library is compatible with callers that were built for the same major version and the same
    # or an older minor version.
    source = tmp_path / "driver.c"
    source.write_text(f"int orGetVersion(int* version) {{ *version = {version}; return 0; }}\n")
    library = tmp_path / "driver.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    if accepted:
        code = "import torch_openreg; print(torch_openreg._C.driver_version())"
        assert child.output(code, LD_PRELOAD=str(library)) == str(version)
        return
    printed = refusal("", LD_PRELOAD=str(library))
    built, found = (f"{each // MAJOR}.{each // MINOR % 100}" for each in (VERSION, version))
    assert f"built for version {built} of the driver's interface (openreg.h)" in printed
    assert f"has version {found}" in printed
