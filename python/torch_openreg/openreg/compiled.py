# SPDX-License-Identifier: BSD-3-Clause
"""Makes the operators callable, as C functions, from C++ code that torch's compiler generates."""

import ctypes
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from torch_openreg.name import PACKAGE

if TYPE_CHECKING:
    # Python 3.10 does not have this module. In importlib.abc, the name is deprecated.
    from importlib.resources.abc import Traversable


def _library() -> "Traversable":
    # This is not a constant, because files() imports the package. While this module is imported,
    # another thread may be importing the package and waiting for this thread. Python would report a
    # deadlock.
    return files(PACKAGE) / "lib" / "libopenreg_aoti.so"


def supported() -> bool:
    """Return whether this build's driver can run generated kernels."""
    return _library().is_file()


def load() -> None:
    """Make the functions of libopenreg_aoti.so visible to libraries that are loaded later.

    Generated libraries use these symbols but are not linked with libopenreg_aoti.so. Therefore they
    do not depend on the place where this package is installed.

    Raises:
        NotImplementedError: if this build's driver cannot run generated kernels.
    """
    if not supported():
        raise NotImplementedError(
            "openreg: the driver of this build cannot run kernels that torch.compile generates: "
            "use backend='openreg' or 'aot_eager', or select one for all calls with "
            "torch.compiler.set_default_backend"
        )
    with as_file(_library()) as path:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def operators() -> str:
    """Return the C++ declarations of the C functions."""
    return (files(PACKAGE) / "include" / "aten" / "aoti" / "c_shim.h").read_text()
