# SPDX-License-Identifier: BSD-3-Clause
"""Modes that call operators unchanged: only forward, or forward and backward."""

from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import SampleInput
from torch_device_conformance.comparison.entry import CPU, Run
from torch_device_conformance.database.operators import Operator, changed_tensors


class Forward(Operator):
    """Calls an operator without gradients."""

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        return list(self.op.sample_inputs("cpu", dtype, requires_grad=False))


class Backward(Operator):
    """Calls an operator, and computes the gradients of its inputs."""

    def supports(self, dtype: torch.dtype) -> bool:
        return super().supports(dtype) and self.backward(dtype)


# If the CPU does not support a dtype, it computes the reference in this wider dtype.
WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
    torch.uint8: torch.int64,
    torch.int8: torch.int64,
    torch.int16: torch.int64,
    torch.int32: torch.int64,
    torch.bool: torch.int64,
}


class AcceleratorDtypes(Forward):
    """Calls an operator with dtypes that OpInfo lists for CUDA but not for the CPU.

    The CPU computes the reference in a wider dtype.
    """

    drawn = False

    def supports(self, dtype: torch.dtype) -> bool:
        wide = WIDER.get(dtype)
        if wide is None or super().supports(dtype) or not super().supports(wide):
            return False
        return dtype in self.op.supported_dtypes("cuda")

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        made = list(self.op.sample_inputs("cpu", dtype, requires_grad=False))
        return [sample for sample in made if isinstance(sample.input, Tensor)]

    def run(self, sample: SampleInput, device: torch.device, seed: int) -> Run:
        if device.type != CPU.type:
            return super().run(sample, device, seed)
        narrow = sample.input.dtype
        wide = WIDER[narrow]
        widened = changed_tensors(sample, lambda x: x.to(wide) if x.dtype == narrow else x)
        run = super().run(widened, device, seed)
        dtypes = self.result_dtypes(sample, seed)

        def back(number: int, leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            if dtypes is not None:
                return leaf.to(dtypes[number])
            return leaf.to(narrow) if leaf.dtype == wide else leaf

        leaves = enumerate(run.outputs.items())
        return Run({name: back(number, leaf) for number, (name, leaf) in leaves}, {})

    def result_dtypes(self, sample: SampleInput, seed: int) -> list[torch.dtype | None] | None:
        """Returns the dtypes of the results, or None if torch cannot compute them without values.

        For example, the trace of bool is int64, but the absolute value of bool is bool.
        """
        try:
            leaves = self.call(changed_tensors(sample, lambda x: x.to("meta")), seed)
        except Exception:
            return None
        return [leaf.dtype if isinstance(leaf, Tensor) else None for leaf in leaves]
