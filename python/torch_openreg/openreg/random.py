# SPDX-License-Identifier: BSD-3-Clause
"""Seeds and states of the random number generators: one per device, independent of the CPU's.

``torch.manual_seed`` seeds the CPU and all devices. The functions here do not initialize a device,
so a program can set seeds and save states before its first use.
"""

from collections.abc import Iterable

import torch

from torch_openreg import _C
from torch_openreg.name import DEVICE_TYPE
from torch_openreg.openreg._utils import DeviceLike, resolve


def default_generator(device: DeviceLike = None) -> torch.Generator:
    """Return the generator that random operators on ``device`` use by default."""
    return _C.default_generator(resolve(device))


def get_rng_state(device: DeviceLike = DEVICE_TYPE) -> torch.Tensor:
    """Return the state of a device's generator (seed and offset) as a uint8[16] CPU tensor."""
    return default_generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = DEVICE_TYPE) -> None:
    """Set the state of a device's generator to a state that ``get_rng_state`` returned."""
    default_generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the generator states of all devices."""
    return [get_rng_state(index) for index in range(_C.device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the generator states of all devices, in the order of the device indices."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the current device's generator."""
    default_generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices with the same seed."""
    for index in range(_C.device_count()):
        _C.default_generator(index).manual_seed(int(seed))


def seed() -> None:
    """Seed the current device's generator from system entropy."""
    default_generator().seed()


def seed_all() -> None:
    """Seed the generators of all devices with one seed from system entropy."""
    if _C.device_count() > 0:
        manual_seed_all(_C.default_generator(0).seed())


def initial_seed() -> int:
    """Return the seed of the current device's generator."""
    return default_generator().initial_seed()


def _get_rng_state_offset(device: DeviceLike = DEVICE_TYPE) -> int:
    """Return the offset of a device's generator, which is a multiple of 4."""
    return default_generator(device).get_offset()


def _set_rng_state_offset(offset: int, device: DeviceLike = DEVICE_TYPE) -> None:
    """Set the offset of a device's generator to a multiple of 4. The seed does not change."""
    default_generator(device).set_offset(offset)
