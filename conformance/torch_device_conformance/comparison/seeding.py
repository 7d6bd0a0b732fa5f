# SPDX-License-Identifier: BSD-3-Clause
"""Seeds the random numbers of the CPU and of the device under test."""

import torch

# The type of the device under test. None stands for the current accelerator.
_device_type: str | None = None


def seed_also(device: torch.device) -> None:
    """Makes `seed_generators` seed this device, which may not be the current accelerator."""
    global _device_type
    _device_type = device.type


def seed_generators(seed: int) -> None:
    """Seeds the generators of the device under test and of the CPU.

    For each accelerator that is not initialized, torch.manual_seed also stores the seed and a stack
    trace. That takes longer than a small operator.
    """
    name = _device_type
    if name is None:
        accelerator = torch.accelerator.current_accelerator()
        name = accelerator.type if accelerator is not None else "cpu"
    if name != "cpu":
        module = getattr(torch, name, None)
        # torch.mps has only manual_seed.
        seed_device = getattr(module, "manual_seed_all", None) or getattr(
            module, "manual_seed", None
        )
        if seed_device is not None:
            seed_device(seed)
    torch.default_generator.manual_seed(seed)
