# SPDX-License-Identifier: BSD-3-Clause
"""Checks forward calls in an autocast region. Backward runs after the region, as in user programs.

The CPU has its own autocast operator lists. For the reference run, torch's lists for devices
replace them, with the casts in autocast_policies.py, so the CPU and the device must agree.
"""

import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import SampleInput
from torch_device_conformance.comparison.comparison import spread
from torch_device_conformance.database.operators import Attempt, changed_tensors
from torch_device_conformance.mode import autocast_policies as policies
from torch_device_conformance.mode.autocast_policies import Casts

# The dtypes given to a sample's float32 tensors: unchanged, the region's dtype for all, or the
# region's dtype for the first one only.
VARIANTS = "float32", "lower", "mixed"

# The maximum number of samples per entry, before VARIANTS.
MOST = 12

REFUSED = "aten::binary_cross_entropy"

# The casts of the active regions on the CPU, the innermost last.
_casts: list[Casts] = []


class Autocast(Attempt):
    """An operator called in an autocast region whose dtype is `lower`."""

    lower: torch.dtype

    def supports(self, dtype: torch.dtype) -> bool:
        return dtype == torch.float32 and super().supports(dtype)

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        made = spread(super().samples(dtype, device), MOST)
        return [self.variant(sample, name) for sample in made for name in VARIANTS]

    def variant(self, sample: SampleInput, name: str) -> SampleInput:
        """Returns the sample with the dtypes of the variant `name`, one of VARIANTS."""
        left = {"float32": 0, "mixed": 1}.get(name, -1)

        def change(leaf: Tensor) -> Tensor:
            nonlocal left
            if not left or leaf.dtype != torch.float32:
                return leaf
            left -= 1
            return leaf.detach().to(self.lower).requires_grad_(leaf.requires_grad)

        return changed_tensors(sample, change, name)

    def around(self, device: torch.device) -> AbstractContextManager[Any]:
        return region(device.type, self.lower)


class AutocastBfloat16(Autocast):
    """An operator called in a bfloat16 region."""

    lower = torch.bfloat16


class AutocastFloat16(Autocast):
    """An operator called in a float16 region."""

    lower = torch.float16


@contextmanager
def region(device: str, lower: torch.dtype) -> Iterator[None]:
    """Enables autocast in the `with` block. On the CPU, uses torch's lists for devices."""
    if device != "cpu":
        with torch.autocast(device, dtype=lower):
            yield
        return
    replace_lists_of_the_cpu()
    _casts.append(Casts(device, lower))
    try:
        with torch.autocast(device, dtype=lower):
            yield
    finally:
        _casts.pop()


@functools.cache
def replace_lists_of_the_cpu() -> torch.library.Library:
    """Replaces the CPU's autocast lists with those for devices, until the process ends."""
    library = torch.library.Library("aten", "IMPL")
    key = "AutocastCPU"
    listed = policies.lists()
    for name in torch._C._dispatch_get_registrations_for_dispatch_key(key):
        if name not in listed:
            library.impl(name, torch.library.fallthrough_kernel, key, allow_override=True)
    for name in listed:
        library.impl(name, functools.partial(cast, name), key, allow_override=True)
    library.impl(REFUSED, refuse, key, allow_override=True)
    return library


def cast(name: str, *args: Any, **kwargs: Any) -> Any:
    """The CPU's autocast kernel: calls a listed operator with the casts of the innermost region."""
    key = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    with torch._C._ExcludeDispatchKeyGuard(key):
        return policies.call(name, _casts[-1], *args, **kwargs)


def refuse(*args: Any, **kwargs: Any) -> Any:
    """The CPU's autocast kernel for REFUSED: raises an error, because autocast is unsafe there."""
    raise RuntimeError(f"{REFUSED} is unsafe to autocast on any device")
