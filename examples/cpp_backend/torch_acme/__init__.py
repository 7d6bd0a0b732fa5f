# SPDX-License-Identifier: BSD-3-Clause
"""Device ``acme``: importing the package registers it with torch."""

import atexit

import torch
from torch.utils.backend_registration import (
    generate_methods_for_privateuse1_backend,
    rename_privateuse1_backend,
)

# The order matters: libraries, name, module, methods. The module must exist before the first tensor
# is created. The methods are derived from the name.
from torch_acme import _C  # noqa: F401  loads the library
from torch_acme import device as _device
from torch_acme.autograd_threads import wait_for_autograd_threads

rename_privateuse1_backend("acme")
torch._register_device_module("acme", _device)
generate_methods_for_privateuse1_backend(for_storage=True)
atexit.register(wait_for_autograd_threads)


def load() -> None:
    """Does nothing: importing this package for the entry point already registers the device."""
