# SPDX-License-Identifier: BSD-3-Clause
"""Device ``openreg`` for PyTorch: an accelerator emulated on the CPU.

Importing the package makes the device known to torch; ``import torch`` does it by itself through
the entry point of ``torch_openreg_autoload``. Afterwards ``torch.ones(3, device="openreg")`` works
and ``torch.openreg`` is the module of the device; for type checkers: ``torch_openreg.openreg``.

An import starts no thread, maps no memory and reads no setting of the device: all that waits for
the first use. Importing twice, or reloading, changes nothing.
"""

import atexit
import sys

import torch
from torch.utils.backend_registration import (
    generate_methods_for_privateuse1_backend,
    rename_privateuse1_backend,
)
from torch_openreg_compile import registration

from torch_openreg.version import TORCH_VERSION, __version__

__all__ = ["__version__"]

_DEVICE_TYPE = "openreg"


def _require_matching_torch() -> None:
    """Raise ImportError where the libraries of this package can not be loaded.

    They would crash, or fail with an undefined symbol, inside of another release of torch.
    """
    found = torch.__version__.split("+", maxsplit=1)[0]
    if found != TORCH_VERSION:
        raise ImportError(
            f"torch_openreg {__version__} was built for torch {TORCH_VERSION}, but torch "
            f"{torch.__version__} is installed: install torch=={TORCH_VERSION}, or a torch_openreg "
            f"that was built for torch {found}"
        )
    owner: str = torch._C._get_privateuse1_backend_name()
    if owner not in ("privateuseone", _DEVICE_TYPE):
        raise ImportError(
            f"torch_openreg can not register device '{_DEVICE_TYPE}': device '{owner}' of another "
            "package holds torch's one place for an out-of-tree device (PrivateUse1). Use one of "
            "both packages in a process; TORCH_DEVICE_BACKEND_AUTOLOAD=0 stops torch from loading "
            "both"
        )


def _register() -> None:
    """Register the device with torch: libraries, name, module, methods, compiler, in this order.

    Where the libraries can not be loaded torch stays as it was. The name comes before the module,
    which torch keeps under it, and both before the first factory call. generate_methods_... refuses
    a second run.
    """
    if getattr(getattr(torch, _DEVICE_TYPE, None), "__name__", None) == "torch_openreg.openreg":
        return
    from torch_openreg import _C, openreg  # loads the libraries
    from torch_openreg.openreg import dlpack, storage

    rename_privateuse1_backend(_DEVICE_TYPE)
    torch._register_device_module(_DEVICE_TYPE, openreg)
    _name_submodules(openreg.__name__)
    generate_methods_for_privateuse1_backend(for_storage=True)
    dlpack.register()
    storage.register()
    registration.register()
    atexit.register(openreg.memcheck._report_at_exit)
    openreg.sharing.register()
    atexit.register(_C.let_autograd_threads_finish)


def _name_submodules(package: str) -> None:
    """Let ``import torch.openreg.amp`` find the module that there is, instead of a second one."""
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        sys.modules[f"torch.{_DEVICE_TYPE}{name.removeprefix(package)}"] = sys.modules[name]


_require_matching_torch()
_register()
