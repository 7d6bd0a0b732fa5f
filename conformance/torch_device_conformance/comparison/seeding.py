# SPDX-License-Identifier: BSD-3-Clause
"""Seeds the random numbers of the CPU and of the device under test."""

import torch


def seed_generators(seed: int) -> None:
    """Seeds the generators of the CPU and of the accelerator of this process.

    torch.manual_seed also stores the seed, with a stack trace, for each other accelerator that
    torch knows, until that is initialized. This takes longer than a small operator.
    """
    torch.default_generator.manual_seed(seed)
    device = torch.accelerator.current_accelerator()
    module = getattr(torch, device.type, None) if device is not None else None
    seed_device = getattr(module, "manual_seed_all", None)
    if seed_device is not None:
        seed_device(seed)
