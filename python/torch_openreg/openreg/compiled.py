# SPDX-License-Identifier: BSD-3-Clause
"""Lets C++ code that torch's compiler generates call the operators, as C functions."""

import ctypes
from importlib.resources import as_file, files

_PACKAGE = "torch_openreg"


def load() -> None:
    """Make the functions of libopenreg_aoti.so visible to libraries that are loaded later.

    Generated libraries use these symbols without linking libopenreg_aoti.so, so they work wherever
    this package is installed.
    """
    with as_file(files(_PACKAGE) / "lib" / "libopenreg_aoti.so") as path:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def operators() -> str:
    """Return the C++ declarations of the operators."""
    return (files(_PACKAGE) / "include" / "aten" / "aoti" / "c_shim.h").read_text()
