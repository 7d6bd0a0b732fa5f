# SPDX-License-Identifier: BSD-3-Clause
"""The module ``torch.acme``: the functions that torch looks for in the module of a device.

Each of them asks torch, which asks the guard and the hooks of csrc/.
"""

from contextlib import AbstractContextManager

import torch
from torch import Tensor

from torch_acme import _C


def is_available() -> bool:
    """Whether there is a device. torch.accelerator.is_available() calls this function."""
    return device_count() > 0


def device_count() -> int:
    """How many devices there are. torch.accelerator.device_count() calls this function."""
    count: int = _C.device_count()
    return count


def current_device() -> int:
    """Return the index of the current device of this thread."""
    return torch.accelerator.current_device_index()


def set_device(device: int | torch.device) -> None:
    """Make a device current in this thread."""
    torch.accelerator.set_device_index(device)


def device(device: int | str | torch.device) -> AbstractContextManager[None]:
    """Make a device current for a block; torch.load and UntypedStorage.to() call it."""
    index = device if isinstance(device, int) else torch.device(device).index
    context: AbstractContextManager[None] = torch.accelerator.device_index(index)
    return context


def is_initialized() -> bool:
    """Whether the device has been started; this one has nothing to start."""
    return True


def _lazy_init() -> None:
    """Start the device; torch calls it before the first tensor is made."""


def _is_in_bad_fork() -> bool:
    """Whether this is the child of a process that used the device; torch.manual_seed asks."""
    return False


def manual_seed_all(seed: int) -> None:
    """Seed the default generator of each device; torch.manual_seed calls it."""
    for index in range(device_count()):
        _generator(index).manual_seed(seed)


def get_rng_state(device: int | str | torch.device = "acme") -> Tensor:
    """Return the state of a device's default generator; torch.random.fork_rng calls it."""
    return _generator(torch.device(device).index).get_state()


def set_rng_state(state: Tensor, device: int | str | torch.device = "acme") -> None:
    """Set the state of a device's default generator."""
    _generator(torch.device(device).index).set_state(state)


def _generator(index: int | None) -> torch.Generator:
    """Return a device's default generator."""
    generator: torch.Generator = _C.default_generator(current_device() if index is None else index)
    return generator


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes of torch.autocast, the default first."""
    return [torch.float16, torch.bfloat16]
