# SPDX-License-Identifier: BSD-3-Clause
"""Checks whether this package's libraries can be loaded here, before they are loaded.

With a different version of torch, loading the libraries would at best fail with an undefined symbol
and at worst crash. Errors that the loader reports itself are not checked: a missing file, an
outdated C library, a wrong architecture. The libraries require no processor features beyond
baseline x86-64. torch checks the processor for its own kernels.
"""

import re
import sys
from pathlib import Path

import torch

from torch_openreg.name import DEVICE_TYPE, PACKAGE
from torch_openreg.version import TORCH_VERSION, __version__, python_versions

__all__ = ["IncompatibleError", "explain_missing_library", "require_compatible"]


class IncompatibleError(ImportError):
    """The package does not fit this Python, this torch, or another device of the process.

    The message says what to do, so callers add no advice of their own. The autoload package cannot
    import this class; it checks the attribute ``advises``.
    """

    advises = True


def require_compatible(device_type: str) -> None:
    """Raise if the libraries cannot be loaded, or the device cannot be registered.

    Args:
        device_type: the device's name, which must not be registered yet.

    Raises:
        ImportError: if the extension module is missing.
        IncompatibleError: if a check fails; the message states the cause and what to do.
    """
    _require_python()
    _require_torch()
    # If an earlier import failed after it had loaded the libraries, PrivateUse1 is already in use
    # by them. Allow a second attempt.
    if f"{PACKAGE}._C" not in sys.modules:
        _require_place(device_type)


def explain_missing_library(error: ImportError) -> None:
    """Raise an IncompatibleError if `error` says that a library of another package is missing.

    An example is a library of the device's SDK, which the driver needs. To install this package
    again would not help.
    """
    found = re.match(r"(\S+): cannot open shared object file: No such file", str(error))
    # This package's own libraries have no version in their names.
    if found is None or re.fullmatch(rf"lib{DEVICE_TYPE}(_\w+)?\.so", found[1]):
        return
    raise IncompatibleError(
        f"{PACKAGE} needs {found[1]}, which is not part of this package: install the software that "
        "contains it, or add its folder to LD_LIBRARY_PATH"
    ) from error


def _require_python() -> None:
    here = ".".join(map(str, sys.version_info[:2]))
    versions = python_versions()
    if not versions:
        raise ImportError(
            f"{PACKAGE} {__version__} has no extension module (_C.*.so) in "
            f"{Path(__file__).parent}: install the package again"
        )
    if here not in versions:
        built = " or ".join(versions)
        raise IncompatibleError(
            f"{PACKAGE} {__version__} was built for Python {built}, but this is Python {here}: "
            f"use Python {built}, or a {PACKAGE} that was built for Python {here}"
        )


def _require_torch() -> None:
    found = torch.__version__.split("+", maxsplit=1)[0]
    if found != TORCH_VERSION:
        raise IncompatibleError(
            f"{PACKAGE} {__version__} was built for torch {TORCH_VERSION}, but torch "
            f"{torch.__version__} is installed: install torch=={TORCH_VERSION}, or a {PACKAGE} "
            f"that was built for torch {found}"
        )
    if not torch._C._GLIBCXX_USE_CXX11_ABI:
        raise IncompatibleError(
            f"{PACKAGE} {__version__} was built for a torch with the C++11 ABI, but torch "
            f"{torch.__version__} uses the old ABI of std::string and std::list "
            "(_GLIBCXX_USE_CXX11_ABI=0): install torch from PyPI or download.pytorch.org"
        )
    if torch.version.debug:
        raise IncompatibleError(
            f"{PACKAGE} {__version__} was built for a release build of torch, but torch "
            f"{torch.__version__} is a debug build, whose C++ interface differs: install torch "
            "from PyPI or download.pytorch.org"
        )


def _require_place(device_type: str) -> None:
    """Raise if PrivateUse1 is taken: a second registration would abort the process."""
    owner: str = torch._C._get_privateuse1_backend_name()
    # A device may have registered kernels without renaming PrivateUse1.
    if owner == "privateuseone" and not torch._C._dispatch_has_kernel_for_dispatch_key(
        "aten::empty.memory_format", "PrivateUse1"
    ):
        return
    module = getattr(torch, owner, None)
    whose = f" ({module.__name__})" if module is not None else ""
    raise IncompatibleError(
        f"{PACKAGE} cannot register device '{device_type}': device '{owner}'{whose} of "
        "another package already uses PrivateUse1, torch's only slot for an out-of-tree device. "
        "Use only one of the two packages in a process; TORCH_DEVICE_BACKEND_AUTOLOAD=0 stops "
        "torch from loading both"
    )
