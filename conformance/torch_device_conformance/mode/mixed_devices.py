# SPDX-License-Identifier: BSD-3-Clause
"""Checks operators whose arguments are on different devices."""

import re
from typing import Any

import torch
from torch import Tensor
from torch.testing import assert_close
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, SampleInput
from torch.utils._pytree import tree_leaves, tree_map_only
from torch_device_conformance.comparison.difference import describe
from torch_device_conformance.comparison.entry import CPU, Run, settle, spread
from torch_device_conformance.comparison.wording import wording
from torch_device_conformance.database.host_arguments import is_host_argument, placed, positions
from torch_device_conformance.database.operators import STEERED_BY_CPU_TENSORS, named
from torch_device_conformance.mode.timing import Punctual

# The maximum number of samples per entry. Each sample is run once for each of its tensors.
MOST = 6

OUT = "out= on the cpu"
INPUTS = "out= on the device only"

# Matches torch's error text for mixed devices, and the texts of functions that perform this check
# themselves.
REFUSAL = re.compile(
    "Expected all tensors to be on the same device"
    "|Expected out tensor to have device"
    "|(on|in|have) the same device"
    "|on different devices"
    "|[Ee]xpected (out )?(tensor|device).* (found|got) "
    "|too many CPU scalars to non-CPU kernel"
    r"|Input type \(\S*\) and (weight|bias) type"
)

ACCEPTED = "accepted"
REFUSED = "refused"


class MixedDevices(Punctual):
    """Calls an operator with one tensor, or out=, on the CPU and the others on the device.

    If the CPU tensor has dimensions, the call must reject it with torch's error text, unless
    HOST_ARGUMENTS lists it. A 0-dim tensor counts as a scalar. Binary operators must accept it, and
    other operators may reject it. An accepted call must have the same result as with all tensors on
    one device.
    """

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        made = []
        for sample in spread(list(self.op.sample_inputs("cpu", dtype)), MOST):
            places = positions(sample)
            if len(places) > 1:
                made += [named(sample, place) for place in places]
            if self.op.supports_out and any(leaf.dim() for leaf in places.values()):
                made += [named(sample, OUT), named(sample, INPUTS)]
        return made

    def attempt(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        wanted = self.wanted(sample)
        if device.type == "cpu":
            self.raw(placed(sample, CPU, set()), seed)  # if this raises, the device must raise too
            return Run({"call": " or ".join(sorted(wanted))}, {})
        seen = self.verdict(sample, device, seed)
        return Run({"call": " or ".join(sorted(wanted)) if seen in wanted else seen}, {})

    def wanted(self, sample: SampleInput) -> set[str]:
        """Returns the acceptable outcomes of a call: ACCEPTED, REFUSED or both."""
        if sample.name in (OUT, INPUTS):
            return {REFUSED}
        places = positions(sample)
        leaf = places[sample.name]
        others = [other for place, other in places.items() if place != sample.name]
        if is_host_argument(self.name, sample.name):
            return {ACCEPTED}
        if leaf.dim():
            return {REFUSED}
        if isinstance(self.op, BinaryUfuncInfo) and any(other.dim() for other in others):
            return {ACCEPTED}
        return {ACCEPTED, REFUSED}

    def always_on_host(self, sample: SampleInput) -> set[str]:
        """Returns the names of the arguments that must be on the CPU for every device."""
        if self.op.name not in STEERED_BY_CPU_TENSORS:
            return set()
        return {place for place in positions(sample) if is_host_argument(self.name, place)}

    def verdict(self, sample: SampleInput, device: torch.device, seed: int) -> str:
        """Calls the operator on the device. Returns ACCEPTED, REFUSED, or the mistake as text."""
        always = self.always_on_host(sample)
        if always == set(positions(sample)) - {sample.name}:
            return REFUSED  # all arguments would be on the CPU
        result = self.raw(placed(sample, device, always), seed)
        more: dict[str, Any] = {}
        on_host = {sample.name, *always}
        if sample.name == OUT:
            more["out"] = tree_map_only(Tensor, lambda leaf: leaf.to("cpu"), result)
        if sample.name == INPUTS:
            more["out"] = tree_map_only(Tensor, torch.clone, result)
            on_host = set(positions(sample))
        try:
            if more:
                self.raw(
                    placed(sample, device, always),
                    seed,
                    out=tree_map_only(Tensor, torch.clone, result),
                )
        except Exception:
            return REFUSED  # the sample does not support out=
        try:
            mixed = self.raw(placed(sample, device, on_host), seed, **more)
        except Exception as error:
            settle(device)
            late, self.watch.late = self.watch.late, False
            if not REFUSAL.search(str(error)):
                return f"raises {'late ' if late else ''}{describe(error)}"
            return (
                "refused late"
                if late
                else "with a hint"
                if wording().late.search(str(error))
                else REFUSED
            )
        if more:
            return ACCEPTED
        try:
            for actual, expected in zip(tree_leaves(mixed), tree_leaves(result), strict=True):
                assert_close(actual, expected, equal_nan=True, check_device=False)
        except AssertionError as error:
            return f"gives a different result: {str(error).splitlines()[0]}"
        return ACCEPTED
