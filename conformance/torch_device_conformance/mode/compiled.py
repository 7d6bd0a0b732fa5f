# SPDX-License-Identifier: BSD-3-Clause
"""Compares the operator database under torch.compile on the device with eager mode on the CPU."""

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.testing._internal.opinfo.core import SampleInput
from torch_device_conformance.comparison.comparison import Difference, Run, spread
from torch_device_conformance.database.operators import Operator

# Settings that make dynamo capture data-dependent scalars and shapes. By default, it breaks the
# graph there.
CAPTURE = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}


class Traced(Operator):
    """An operator that torch.compile traces with its derivative. The traced operators run eagerly.

    Each sample is a separate graph. Random numbers of compiled graphs differ from those of eager
    mode, so only their metadata are compared.
    """

    drawn = False
    backend = "aot_eager"

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        return spread(super().samples(dtype, device), 20)

    def run(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        torch._dynamo.reset()
        before = counters["stats"]["unique_graphs"]
        with torch._dynamo.config.patch(CAPTURE):
            result = super().run(sample, device, seed)
        if device.type != "cpu" and counters["stats"]["unique_graphs"] == before:
            raise Difference("torch.compile captured no graph: the operator ran in eager mode")
        return result

    def function(self, device: torch.device) -> Callable[..., Any]:
        operator = self.op.op

        def call(*args: Any, **kwargs: Any) -> Any:
            return operator(*args, **kwargs)

        return call if device.type == "cpu" else torch.compile(call, backend=self.backend)


class Compiled(Traced):
    """An operator compiled with Inductor's kernels.

    Compilation takes seconds, so only the first sample of one dtype is run.
    """

    backend = "inductor"

    def supports(self, dtype: torch.dtype) -> bool:
        """Returns whether `dtype` is the one for which the operator is compiled."""
        first = next(filter(super().supports, (torch.float32, torch.int64, torch.complex64)), None)
        return dtype == first

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        return super().samples(dtype, device)[:1]
