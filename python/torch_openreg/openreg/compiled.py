# SPDX-License-Identifier: BSD-3-Clause
"""What C++ that torch's compiler generated needs of this package: operators as C functions."""

import ctypes
from importlib.resources import as_file, files

_PACKAGE = "torch_openreg"


def load() -> None:
    """Make the functions of libopenreg_aoti.so known to libraries that are loaded later.

    Generated libraries name them and say not where they are: so they work wherever this package
    is installed.
    """
    with as_file(files(_PACKAGE) / "lib" / "libopenreg_aoti.so") as path:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def operators() -> str:
    """Return the C++ declarations of the operators."""
    return (files(_PACKAGE) / "include" / "aten" / "aoti" / "c_shim.h").read_text()
