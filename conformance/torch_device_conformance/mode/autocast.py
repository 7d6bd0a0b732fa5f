# SPDX-License-Identifier: BSD-3-Clause
"""Checks forward calls in an autocast region. Backward runs outside, as in user programs.

The CPU has its own autocast lists of operators. For the reference run, they are replaced with
torch's lists for devices, implemented by the casts in autocast_policies.py. The CPU and the device
must therefore agree.
"""

import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import SampleInput
from torch_device_conformance.comparison.entry import spread
from torch_device_conformance.database.operators import Attempt, changed_tensors
from torch_device_conformance.mode import autocast_policies as policies
from torch_device_conformance.mode.autocast_policies import Casts

# The dtypes of a sample's float32 tensors: unchanged, the region's dtype for all of them, or the
# region's dtype for the first one only.
VARIANTS = "float32", "lower", "mixed"

# The maximum number of samples per entry. Each sample is run in all VARIANTS.
MOST = 12

REFUSED = "aten::binary_cross_entropy"

# The casts of the regions that are active on the CPU. The innermost region is the last.
_casts: list[Casts] = []


class Autocast(Attempt):
    """Calls an operator in an autocast region whose dtype is `lower`."""

    lower: torch.dtype

    def supports(self, dtype: torch.dtype) -> bool:
        return dtype == torch.float32 and super().supports(dtype)

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        made = spread(super().samples(dtype, device), MOST)
        return [self.variant(sample, name) for sample in made for name in VARIANTS]

    def variant(self, sample: SampleInput, name: str) -> SampleInput:
        """Returns a sample with the dtypes of a variant. `name` is one of VARIANTS."""
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
    """Calls an operator in a bfloat16 region."""

    lower = torch.bfloat16


class AutocastFloat16(Autocast):
    """Calls an operator in a float16 region."""

    lower = torch.float16


@contextmanager
def region(device: str, lower: torch.dtype) -> Iterator[None]:
    """Enables autocast in the `with` block. The CPU uses torch's lists for devices."""
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
    """The CPU's autocast kernel: calls an operator with the casts of the innermost region."""
    key = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    with torch._C._ExcludeDispatchKeyGuard(key):
        return policies.call(name, _casts[-1], *args, **kwargs)


def refuse(*args: Any, **kwargs: Any) -> Any:
    """The CPU's autocast kernel for unsafe operators (REFUSED), which raises an error."""
    raise RuntimeError(f"{REFUSED} is unsafe to autocast on any device")
