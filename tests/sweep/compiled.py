# SPDX-License-Identifier: BSD-3-Clause
"""The operator database through torch.compile on the device, beside the CPU's eager mode."""

from typing import Any

import torch
from torch.testing._internal.opinfo.core import SampleInput

from tests.sweep.comparison import Run, gradients
from tests.sweep.operators import Operator, differentiable


class Compiled(Operator):
    """An operator, compiled with its derivative: its first sample of one dtype. That takes seconds.

    Random numbers of generated kernels are not those of the operators: only metadata count there.
    """

    drawn = False

    def supports(self, dtype: torch.dtype) -> bool:
        """Whether it is the one dtype of the operator that is compiled."""
        first = next(filter(super().supports, (torch.float32, torch.int64, torch.complex64)), None)
        return dtype == first

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        return super().samples(dtype, device)[:1]

    def run(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        sample = self.copy(sample, device)
        inputs = differentiable(sample)
        operator = self.op.op

        def function(*args: Any, **kwargs: Any) -> Any:
            return operator(*args, **kwargs)

        if device.type != "cpu":
            torch._dynamo.reset()
            function = torch.compile(function)
        outputs = self.call(sample, seed, function)
        return Run(
            {f"output {number}": leaf for number, leaf in enumerate(outputs)},
            {f"gradient {number}": leaf for number, leaf in enumerate(gradients(outputs, inputs))},
        )
