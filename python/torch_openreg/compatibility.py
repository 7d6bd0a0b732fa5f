# SPDX-License-Identifier: BSD-3-Clause
"""Tells whether the libraries of this package can be loaded here, before they are.

Inside of another torch they would fail with an undefined symbol at best, and crash at worst. What
the loader itself refuses with an exception is left to it: a missing file, a C library that is too
old, another architecture. Nothing is needed of the processor beyond x86-64: the libraries are
compiled for the least of them, and kernels that need more are torch's, which looks by itself.
"""

import sys

import torch

from torch_openreg.version import PYTHON_VERSION, TORCH_VERSION, __version__

__all__ = ["require_compatible"]


def require_compatible(device_type: str) -> None:
    """Raise where the libraries cannot be loaded, or the device not be registered.

    Args:
        device_type: the name of the device, which torch must not know yet.

    Raises:
        ImportError: what is built for what, what was found, and what to do.
    """
    _require_python()
    _require_torch()
    # An import that failed after the libraries were loaded may be tried again.
    if "torch_openreg._C" not in sys.modules:
        _require_place(device_type)


def _require_python() -> None:
    found = sys.version_info[:2]
    if found != PYTHON_VERSION:
        built, here = (".".join(map(str, version)) for version in (PYTHON_VERSION, found))
        raise ImportError(
            f"torch_openreg {__version__} was built for Python {built}, but this is Python {here}: "
            f"use Python {built}, or a torch_openreg that was built for Python {here}"
        )


def _require_torch() -> None:
    found = torch.__version__.split("+", maxsplit=1)[0]
    if found != TORCH_VERSION:
        raise ImportError(
            f"torch_openreg {__version__} was built for torch {TORCH_VERSION}, but torch "
            f"{torch.__version__} is installed: install torch=={TORCH_VERSION}, or a torch_openreg "
            f"that was built for torch {found}"
        )
    if not torch._C._GLIBCXX_USE_CXX11_ABI:
        raise ImportError(
            f"torch_openreg {__version__} was built for a torch with the C++11 ABI, but torch "
            f"{torch.__version__} has std::string and std::list of the old one "
            "(_GLIBCXX_USE_CXX11_ABI=0): install torch from PyPI or download.pytorch.org"
        )
    if torch.version.debug:
        raise ImportError(
            f"torch_openreg {__version__} was built for a release of torch, but torch "
            f"{torch.__version__} is a debug build, whose C++ interface differs: install torch "
            "from PyPI or download.pytorch.org"
        )


def _require_place(device_type: str) -> None:
    """Torch has one place for an out-of-tree device; a second one would end the process."""
    owner: str = torch._C._get_privateuse1_backend_name()
    # A device may have kernels and no name of its own.
    if owner == "privateuseone" and not torch._C._dispatch_has_kernel_for_dispatch_key(
        "aten::empty.memory_format", "PrivateUse1"
    ):
        return
    module = getattr(torch, owner, None)
    whose = f" ({module.__name__})" if module is not None else ""
    raise ImportError(
        f"torch_openreg cannot register device '{device_type}': device '{owner}'{whose} of "
        "another package holds torch's one place for an out-of-tree device (PrivateUse1). Use one "
        "of both packages in a process; TORCH_DEVICE_BACKEND_AUTOLOAD=0 stops torch from loading "
        "both"
    )
