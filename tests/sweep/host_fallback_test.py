# SPDX-License-Identifier: BSD-3-Clause
"""op_db on a device that has only factories, views, copies, and the host fallback.

It requires --config=host_fallback, which builds the package without kernels.
"""

import torch

from tests.sweep import known
from tests.sweep.checks import cases, prepare
from tests.sweep.summary import score, summary
from tests.sweep.sweep import sweep


def test_there_is_no_kernel() -> None:
    x = torch.ones(3, device="openreg")
    torch.openreg.fallback.reset()
    x + x
    # torch derives the functional variant from it.
    assert set(torch.openreg.fallback.stats()) == {"aten::add.out"}


def test_nearly_all_operators_agree_with_the_cpu() -> None:
    every = [
        case
        for case in cases(["op"], ["results"], ["float32"])
        if known.reason(known.UNSUPPORTED, case) is None
    ]
    outcomes = list(sweep(every, 2, 120, prepare, "openreg", 1))
    agree, count = score(outcomes)
    assert len(outcomes) == len(every)
    assert count > 500
    assert agree >= 0.99 * count, summary(outcomes)
