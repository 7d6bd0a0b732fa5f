# SPDX-License-Identifier: BSD-3-Clause
"""Check of operators on inputs that they have to refuse."""

import torch
from torch.testing._internal.opinfo.core import SampleInput
from torch_device_conformance.mode.timing import Punctual


class Errors(Punctual):
    """The wrong inputs of the database.

    The device raises what the CPU raises, with the call where the error does not depend on data.
    The inputs have their own dtypes: they are tried once.
    """

    raises = True

    def supports(self, dtype: torch.dtype) -> bool:
        return dtype == torch.float32 and self.op.error_inputs_func is not None

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        return [wrong.sample_input for wrong in self.op.error_inputs("cpu")]
