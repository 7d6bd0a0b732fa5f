# SPDX-License-Identifier: BSD-3-Clause
"""Runs operators on a stream other than the current one."""

import torch
from torch.testing._internal.opinfo.core import SampleInput
from torch_device_conformance.comparison.entry import CPU, Run
from torch_device_conformance.database.operators import Operator, differentiable
from torch_device_conformance.subject.delay import keep_busy


class OtherStream(Operator):
    """Runs an operator's forward and backward on a new stream.

    If the backend has a delay kernel, they run after a delay. The inputs are written and the
    results are read on the current stream. The test contains only the waits that torch requires of
    a program.
    """

    drawn = False

    def run(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        if device.type == CPU.type:
            return super().run(sample, device, seed)
        sample = self.copy(sample, device)
        inputs = differentiable(sample)
        here, side = torch.accelerator.current_stream(device.index), torch.Stream(device)
        side.wait_stream(here)
        with side:
            keep_busy(device)
            outputs = self.call(sample, seed)
            slopes = self.gradients(outputs, inputs)
        here.wait_stream(side)
        return Run(
            {f"output {number}": leaf for number, leaf in enumerate(outputs)},
            {f"gradient {number}": leaf for number, leaf in enumerate(slopes)},
        )
