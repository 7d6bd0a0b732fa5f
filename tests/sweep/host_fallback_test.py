# SPDX-License-Identifier: BSD-3-Clause
"""Runs op_db on a device that has only factories, views, copies, and the host fallback.

Requires --config=host_fallback, which builds the package without other kernels.
"""

import torch

from tests.sweep.verdicts import every_case, results, verdicts


def test_there_is_no_kernel() -> None:
    x = torch.ones(3, device="openreg")
    torch.openreg.fallback.reset()
    x + x
    # torch implements the functional variant through the out= variant.
    assert set(torch.openreg.fallback.stats()) == {"aten::add.out"}


def test_nearly_all_operators_agree_with_the_cpu() -> None:
    every = results(["float32"], {case.name for case in every_case()})
    counted = [verdict for verdict in verdicts(every, 120).values() if verdict.counts]
    failed = [f"{v.case}: {v.verdict} {v.message}" for v in counted if not v.passes]
    assert len(counted) > 500
    assert len(failed) <= 0.01 * len(counted), "\n".join(failed)
