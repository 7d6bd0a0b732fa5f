# SPDX-License-Identifier: BSD-3-Clause
"""The operator database through torch.compile on the device, beside the CPU's eager mode."""

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.testing._internal.opinfo.core import SampleInput
from torch_device_conformance.comparison.comparison import Difference, Run, spread
from torch_device_conformance.database.operators import Operator

# Numbers and sizes that depend on data: else torch leaves the graph for them.
CAPTURE = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}


class Traced(Operator):
    """An operator, traced with its derivative by torch's compiler; its operators run one by one.

    Each sample is a graph of its own. Random numbers of compiled graphs are not those of eager
    mode: only metadata count there.
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
            raise Difference("torch captured no graph: it ran in eager mode")
        return result

    def function(self, device: torch.device) -> Callable[..., Any]:
        operator = self.op.op

        def call(*args: Any, **kwargs: Any) -> Any:
            return operator(*args, **kwargs)

        return call if device.type == "cpu" else torch.compile(call, backend=self.backend)


class Compiled(Traced):
    """The same with generated kernels, which take seconds: the first sample of one dtype."""

    backend = "inductor"

    def supports(self, dtype: torch.dtype) -> bool:
        """Whether it is the one dtype of the operator that is compiled."""
        first = next(filter(super().supports, (torch.float32, torch.int64, torch.complex64)), None)
        return dtype == first

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        return super().samples(dtype, device)[:1]
