# SPDX-License-Identifier: BSD-3-Clause
"""Registers the device with torch when this module is imported: once per process, in any thread.

This is a separate module because it is imported both by the package and by the entry point that
torch calls. If one thread imports ``torch`` and another imports ``torch_openreg``, the second
thread waits until torch has been imported. Meanwhile torch's entry point registers the device in
the first thread.
"""

import atexit
import sys

import torch
from torch.utils.backend_registration import (
    generate_methods_for_privateuse1_backend,
    rename_privateuse1_backend,
)
from torch_openreg_compile import registration as compiler

from torch_openreg.compatibility import explain_missing_library, require_compatible
from torch_openreg.name import DEVICE_TYPE, PACKAGE


def _register() -> None:
    """Register the device with torch, in this order: libraries, name, module, methods, compiler.

    If the libraries cannot be loaded, torch is not changed. The name must be registered before the
    module, because torch stores the module under this name. Both must be registered before the
    first factory call. generate_methods_... cannot run twice.
    """
    if getattr(getattr(torch, DEVICE_TYPE, None), "__name__", None) == f"{PACKAGE}.openreg":
        return
    require_compatible(DEVICE_TYPE)
    try:
        from torch_openreg import _C, backends, openreg  # loads the libraries
    except ImportError as error:
        explain_missing_library(error)
        raise
    from torch_openreg.distributed import registration as collectives
    from torch_openreg.openreg import dlpack, fakes, out_dtype, tensor_meta

    rename_privateuse1_backend(DEVICE_TYPE)
    torch._register_device_module(DEVICE_TYPE, openreg)
    _name_submodules(openreg.__name__)
    sys.modules[f"torch.backends.{DEVICE_TYPE}"] = backends
    setattr(torch.backends, DEVICE_TYPE, backends)
    generate_methods_for_privateuse1_backend(for_storage=True)
    dlpack.register()
    tensor_meta.register()
    fakes.register(DEVICE_TYPE)
    out_dtype.register()
    compiler.register()
    collectives.register()
    atexit.register(openreg.memcheck._report_at_exit)
    openreg.sharing.register()
    atexit.register(_C.wait_for_autograd_threads)
    atexit.register(_C.leave_replays_to_exit)
    atexit.register(_C.end_completion_threads)


def _name_submodules(package: str) -> None:
    """Make ``import torch.openreg.amp`` find the existing module, not create a second one."""
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        sys.modules[f"torch.{DEVICE_TYPE}{name.removeprefix(package)}"] = sys.modules[name]


_register()
