# SPDX-License-Identifier: BSD-3-Clause
"""The module ``torch.acme``. It has the functions that torch calls in a device's module.

Most functions call torch, which calls the guard and the hooks in csrc/.
"""

from contextlib import AbstractContextManager

import torch
from torch import Tensor

from torch_acme import _C

# torch.utils.checkpoint saves and restores the states of the device's generators only if this is
# true.
_initialized = True


def is_available() -> bool:
    """Returns whether there is a device. torch.accelerator.is_available() calls this function."""
    return device_count() > 0


def device_count() -> int:
    """Returns the number of devices. torch.accelerator.device_count() calls this function."""
    count: int = _C.device_count()
    return count


def current_device() -> int:
    """Returns the index of this thread's current device."""
    return torch.accelerator.current_device_index()


def set_device(device: int | torch.device) -> None:
    """Makes a device current in this thread."""
    torch.accelerator.set_device_index(device)


def device(device: int | str | torch.device) -> AbstractContextManager[None]:
    """Makes a device current in a `with` block. torch.load and UntypedStorage.to() call this."""
    index = device if isinstance(device, int) else torch.device(device).index
    context: AbstractContextManager[None] = torch.accelerator.device_index(index)
    return context


def is_initialized() -> bool:
    """Returns whether the device is initialized. This device needs no initialization."""
    return _initialized


def _lazy_init() -> None:
    """Initializes the device. torch calls this function before it creates the first tensor."""


def _is_in_bad_fork() -> bool:
    """Returns whether this process was forked after the device was used; for torch.manual_seed."""
    return False


def manual_seed_all(seed: int) -> None:
    """Seeds the default generator of each device. torch.manual_seed calls this function."""
    for index in range(device_count()):
        _generator(index).manual_seed(seed)


def get_rng_state(device: int | str | torch.device = "acme") -> Tensor:
    """Returns the state of a device's default generator. torch.random.fork_rng calls this."""
    return _generator(torch.device(device).index).get_state()


def set_rng_state(state: Tensor, device: int | str | torch.device = "acme") -> None:
    """Sets the state of a device's default generator."""
    _generator(torch.device(device).index).set_state(state)


def _generator(index: int | None) -> torch.Generator:
    """Returns the default generator of a device; None means the current device."""
    generator: torch.Generator = _C.default_generator(current_device() if index is None else index)
    return generator


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Returns the dtypes that torch.autocast accepts."""
    return [torch.float16, torch.bfloat16]
