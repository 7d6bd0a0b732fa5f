# SPDX-License-Identifier: BSD-3-Clause
"""Outcomes of cases: the comparison of the conformance kit, with torch's error texts."""

import re

import torch
from torch_device_conformance.comparison.comparison import Entry, judge
from torch_device_conformance.comparison.wording import Wording, use

from tests.sweep.outcome import Case, Outcome

# The text that the device adds to an error detected by a kernel.
KERNEL = re.compile(r" \(openreg: kernel .*", re.DOTALL)
DEVICE_NAME = re.compile("cpu|openreg|privateuse", re.IGNORECASE)

# openreg has the same error texts as the CPU.
WORDING = Wording(
    compared=True,
    device=DEVICE_NAME,
    addition=KERNEL,
    late=re.compile("Kernels run later than they are launched"),
)


def evaluate(case: Case, entry: Entry, device: torch.device) -> Outcome:
    """Compares all samples of an entry, up to the first difference."""
    use(WORDING)
    found = judge(entry, getattr(torch, case.dtype), device)
    return Outcome(case, found.status, found.compared, found.message, found.samples, found.seconds)
