# SPDX-License-Identifier: BSD-3-Clause
"""Checks operators on inputs that they must reject."""

import torch
from torch.testing._internal.opinfo.core import SampleInput
from torch_device_conformance.mode.timing import Punctual


class Errors(Punctual):
    """Calls an operator with the database's error inputs.

    The device must raise an error for each input that the CPU rejects. The call itself must raise
    all errors that do not depend on data. The inputs have fixed dtypes, so each entry runs for one
    dtype only.
    """

    raises = True

    def supports(self, dtype: torch.dtype) -> bool:
        return dtype == torch.float32 and self.op.error_inputs_func is not None

    def samples(self, dtype: torch.dtype, device: torch.device) -> list[SampleInput]:
        return [wrong.sample_input for wrong in self.op.error_inputs("cpu")]
