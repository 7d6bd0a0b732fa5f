# SPDX-License-Identifier: BSD-3-Clause
"""Compares operators under torch.compile on the device with eager mode on the CPU."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.testing._internal.opinfo.core import SampleInput
from torch_device_conformance.comparison.comparison import CPU, Difference, Run, spread
from torch_device_conformance.database.operators import Operator

# With these settings, dynamo captures scalars and shapes that depend on data. By default, they
# break the graph.
CAPTURE = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}


class Traced(Operator):
    """Traces an operator and its derivative with torch.compile, and runs the traced operators.

    Each sample has a separate graph. The random numbers of compiled graphs differ from those of
    eager mode, so only the metadata of random results are compared.
    """

    drawn = False
    backend = "aot_eager"
    compiles_on_cpu = False

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

        if device.type == "cpu" and not self.compiles_on_cpu:
            return call
        return torch.compile(call, backend=self.backend)

    def alternative(self, sample: SampleInput, seed: int) -> Run:
        """Compiles the operator on the CPU.

        torch's decompositions may round differently from the kernels of eager mode. For example, an
        interpolation of uint8 differs by 1.
        """
        compiling = copy.copy(self)
        compiling.compiles_on_cpu = True
        return compiling.run(sample, CPU, seed)


class Compiled(Traced):
    """Compiles an operator to Inductor's kernels.

    Compilation takes seconds, so each entry runs only its first sample, in one dtype.
    """

    backend = "inductor"

    def supports(self, dtype: torch.dtype) -> bool:
        """Returns whether the operator is compiled for `dtype`."""
        first = next(filter(super().supports, (torch.float32, torch.int64, torch.complex64)), None)
        return dtype == first

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        return super().samples(dtype, device)[:1]
