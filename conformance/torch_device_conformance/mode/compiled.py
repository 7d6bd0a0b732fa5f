# SPDX-License-Identifier: BSD-3-Clause
"""Compares operators under torch.compile on the device with eager mode on the CPU."""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch._dynamo import guards
from torch._dynamo.utils import counters
from torch.testing._internal.opinfo.core import SampleInput
from torch_device_conformance.comparison.difference import Difference
from torch_device_conformance.comparison.entry import CPU, ReferenceError_, Run, spread
from torch_device_conformance.database.operators import Operator

# With these settings, dynamo captures scalars and shapes that depend on data. By default, they
# break the graph.
CAPTURE = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}


# The dtypes in order of preference. The first one that an operator supports has up to 20 samples.
PREFERRED = (torch.float32, torch.int64, torch.complex64)


def unmeasured(*_: Any, **__: Any) -> float:
    """Replaces the function with which dynamo measures how many microseconds the guards take."""
    return 0.0


def without_measurement() -> AbstractContextManager[Any]:
    """Returns a context in which dynamo does not measure the guards of a graph.

    To measure them, dynamo empties the processor's caches, which takes longer than a small graph.
    The result is only logged.
    """
    if not hasattr(guards, "profile_guard_manager"):
        return nullcontext()
    return mock.patch.object(guards, "profile_guard_manager", unmeasured)


class Traced(Operator):
    """Traces an operator and its derivative with torch.compile, and runs the traced operators.

    Each sample has a separate graph. Compiling it takes about 0.1 s. In every dtype, the samples
    cover the same kinds of arguments. Therefore one dtype has up to 20 samples, and each other
    dtype has up to 4.

    The random numbers of compiled graphs differ from those of eager mode, so only the metadata of
    random results are compared.
    """

    drawn = False
    backend = "aot_eager"
    compiles_on_cpu = False

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        return spread(super().samples(dtype, device), 20 if dtype == self.preferred() else 4)

    def preferred(self) -> torch.dtype | None:
        """Returns the first of the preferred dtypes that the operator supports."""
        return next(filter(super().supports, PREFERRED), None)

    def run(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        if not self.compiles(device):
            return super().run(sample, device, seed)
        torch._dynamo.reset()
        before = counters["stats"]["unique_graphs"]
        with torch._dynamo.config.patch(CAPTURE), without_measurement():
            result = super().run(sample, device, seed)
        if counters["stats"]["unique_graphs"] == before:
            if device.type == "cpu":
                raise ReferenceError_("torch.compile captures no graph, even on the CPU")
            self.alternative(sample, seed)  # raises an error if the CPU captures no graph either
            raise Difference("torch.compile captured no graph: the operator ran in eager mode")
        return result

    def compiles(self, device: torch.device) -> bool:
        """Returns whether the operator is compiled on a device."""
        return device.type != "cpu" or self.compiles_on_cpu

    def function(self, device: torch.device) -> Callable[..., Any]:
        operator = self.op.op

        def call(*args: Any, **kwargs: Any) -> Any:
            return operator(*args, **kwargs)

        return torch.compile(call, backend=self.backend) if self.compiles(device) else call

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
        return dtype == self.preferred()

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        return super().samples(dtype, device)[:1]
