# SPDX-License-Identifier: BSD-3-Clause
"""torch's own tests of torch.distributed pass on the device, as with NCCL.

If torch skips a test, the reason must be listed here. Each listed reason also applies to CUDA and
NCCL. Tests that cannot pass are listed with their reasons, and it is an error if one of them
passes.
"""

import re
import unittest

import pytest

from tests.distributed import torch_suite

#: Regular expressions for torch's reasons to skip tests. A number in parentheses is the number of
#: tests, of 285, that torch skips with two ranks for the reasons that follow.
SKIPPED = [
    # The test is for other backends, and torch does not run it with NCCL either (99).
    r"(?i)Nccl does not support (CPU tensors|DDP on CPU models|i?send|irecv)",
    r"(?i)Nccl send/recv tested by test_send_recv_nccl",
    r"Only MPI supports (CPU all_to_all_single|all_to_all)",
    r"Only [gG]loo backend supports (timeouts|sparse all reduce)",
    r"GLOO Batch Send Recv CPU",
    r"Gloo-only test",
    r"Test requires backend occl to be one of \{'gloo'\}",
    # torch's table lists features that NCCL lacks (11). occl has some of them, but the tests use
    # CPU tensors.
    r"occl does not support (CPU barrier|all_gather_coalesced|send/recv from any source)",
    # torch has disabled the test (3).
    r"Test is failing, tracking issue at https://github\.com/pytorch/pytorch/issues/102751",
    r"Skipped due to flakiness",
    r"Currently failing in NVIDIA internal CI",
    # The test needs a package that this project does not install (1).
    r"no torchvision",
    # The test needs more ranks (17). BUILD.bazel has targets with 4 and 8 ranks.
    r"Skipped due to small world size\.",
    r"Test requires (an exact )?world size of 4",
    r"Need at least 4 CUDA devices",
]

#: Tests that cannot pass, and the reason for each.
CANNOT = {
    "test_DistributedDataParallel": "In torch 2.13, a model with a static graph that is saved and "
    "loaded between iterations no longer reduces its gradients, not even on the CPU with Gloo: "
    "DistributedDataParallel also saves the flag that says that the first iteration's reduction "
    "was enqueued (_static_graph_delay_allreduce_enqueued)"
}
if torch_suite.WORLD_SIZE != 2:
    CANNOT["test_ddp_profiling_execution_trace"] = "It asserts that the group has two ranks"
if torch_suite.WORLD_SIZE == 8:
    CANNOT["test_batch_isend_irecv_no_rank_zero_nccl"] = (
        "It calls barrier() before set_device(), so the first operation of the group runs on "
        "openreg:0. Then two ranks send on other devices, but the first operation of a group on a "
        "device needs all ranks. NCCL's barrier uses the device with the rank's number instead"
    )


def check(outcome: torch_suite.Outcome, name: str) -> None:
    if outcome.result == "skipped":
        assert any(re.fullmatch(reason, outcome.detail) for reason in SKIPPED), outcome.detail
        pytest.skip(outcome.detail)
    if name in CANNOT:
        assert outcome.result == "failed", f"{name} {outcome.result}; remove it from CANNOT"
        pytest.xfail(CANNOT[name])
    assert outcome.result == "passed", outcome.detail


@pytest.mark.parametrize("name", torch_suite.names(torch_suite.Suite))
def test_on_ranks(name: str) -> None:
    check(torch_suite.run(torch_suite.Suite, name), name)


@pytest.mark.parametrize("case", torch_suite.OTHERS)
def test_in_process(case: type[unittest.TestCase]) -> None:
    for name in torch_suite.names(case):
        check(torch_suite.run(case, name), name)


def test_each_listed_test_exists() -> None:
    assert set(CANNOT) <= set(torch_suite.names(torch_suite.Suite))
