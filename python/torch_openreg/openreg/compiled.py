# SPDX-License-Identifier: BSD-3-Clause
"""Lets C++ code that torch's compiler generates call the operators, as C functions."""

import ctypes
from importlib.abc import Traversable
from importlib.resources import as_file, files

from torch_openreg.name import PACKAGE


def _library() -> Traversable:
    # Not a constant: files() imports the package, and another thread may be importing it while this
    # module is being imported. That thread waits for this one, so Python would report a deadlock.
    return files(PACKAGE) / "lib" / "libopenreg_aoti.so"


def supported() -> bool:
    """Return whether this build's driver can run generated kernels."""
    return _library().is_file()


def load() -> None:
    """Make the functions of libopenreg_aoti.so visible to libraries that are loaded later.

    Generated libraries use these symbols without linking libopenreg_aoti.so, so they work wherever
    this package is installed.

    Raises:
        NotImplementedError: if this build's driver cannot run generated kernels.
    """
    if not supported():
        raise NotImplementedError(
            "openreg: the driver of this build cannot run kernels that torch.compile generates: "
            "use backend='openreg' or 'aot_eager'"
        )
    with as_file(_library()) as path:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def operators() -> str:
    """Return the C++ declarations of the operators."""
    return (files(PACKAGE) / "include" / "aten" / "aoti" / "c_shim.h").read_text()
