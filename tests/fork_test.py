# SPDX-License-Identifier: BSD-3-Clause
"""A forked child can use the device only if its parent has not; otherwise it gets an error."""

from tests import child

FORK = """
import os, sys, torch

def in_child(function):
    # Runs function in a forked child and returns its exit status: 0 unless it raises.
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def test_child_of_a_parent_that_used_the_device() -> None:
    printed = child.output(
        FORK
        + """
value = torch.arange(1000.0, device="openreg")

def use():
    assert torch.openreg._is_in_bad_fork()
    assert not torch.openreg.is_initialized()
    for attempt in (
        lambda: torch.ones(2, device="openreg"),
        torch.openreg.init,
        lambda: torch.randn(2, device="openreg"),
    ):
        try:
            attempt()
        except RuntimeError as error:
            print(error, flush=True)
        else:
            raise AssertionError("no error")

assert in_child(use) == 0
assert value.sum().item() == 499500
assert not torch.openreg._is_in_bad_fork()
"""
    )
    lines = [line for line in printed.splitlines() if line.startswith("Cannot re-initialize")]
    assert set(lines) == {
        (
            "Cannot re-initialize OpenReg in forked subprocess. To use OpenReg with "
            "multiprocessing, you must use the 'spawn' start method"
        )
    }
    assert len(lines) == 3


def test_child_leaves_the_parent_s_memory_alone() -> None:
    # The child frees tensors, empties the cache and exits. None of this may change the parent's
    # tensors.
    child.output(
        FORK
        + """
values = [torch.full((100_000,), float(i), device="openreg") for i in range(8)]
torch.openreg.synchronize()

def clean_up():
    values.clear()
    torch.openreg.empty_cache()
    torch.manual_seed(1)

assert in_child(clean_up) == 0
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    sys.exit(0)  # runs the functions of atexit and the end of the device
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert [value.mean().item() for value in values] == [float(i) for i in range(8)]
"""
    )


def test_child_that_frees_pinned_memory_which_a_stream_used() -> None:
    child.output(
        FORK
        + """
pinned = [torch.ones(1000, pin_memory=True)]
there = pinned[0].to("openreg", non_blocking=True)
assert in_child(pinned.clear) == 0
pinned.clear()
torch.openreg.synchronize()
assert there.sum().item() == 1000
"""
    )


def test_child_of_a_parent_that_did_not_use_the_device() -> None:
    child.output(
        FORK
        + """
torch.manual_seed(1)
torch.openreg.device_count()

def use():
    assert not torch.openreg._is_in_bad_fork()
    assert torch.ones(100, device="openreg").add_(1).sum().item() == 200

assert in_child(use) == 0
use()
"""
    )


def test_child_of_a_parent_that_used_autograd() -> None:
    # A backward pass starts an autograd thread per registered device, even if it uses only the CPU.
    child.output(
        FORK
        + """
import time

def train(device):
    weight = torch.ones(2, device=device, requires_grad=True)
    (weight * 2).sum().backward()

def names():
    threads = os.listdir("/proc/self/task")
    return sorted(open(f"/proc/self/task/{thread}/comm").read().strip() for thread in threads)

def refused(device):
    try:
        train(device)
    except RuntimeError as error:
        assert "Unable to handle autograd's threading in combination with fork" in str(error)
    else:
        raise AssertionError("no error")

def use():
    refused("cpu")
    refused("openreg")
    assert torch.ones(2, device="openreg").sum().item() == 2

assert in_child(lambda: train("openreg")) == 0
assert not [name for name in names() if name.startswith("pt_autograd_")]
train("cpu")
devices = [f"pt_autograd_{index}" for index in range(torch.openreg.device_count())]
end = time.monotonic() + 60  # a thread has its name only after it has started to run
while [name for name in names() if name.startswith("pt_autograd_")] != devices:
    assert time.monotonic() < end, names()
assert not torch.openreg.is_initialized()
assert in_child(use) == 0
"""
    )


def test_workers_of_a_dataloader() -> None:
    child.output(
        """
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        weight = torch.ones(1, device="openreg")
        data = TensorDataset(torch.arange(64.0))
        loader = DataLoader(data, batch_size=8, num_workers=2, pin_memory=True)
        total = torch.zeros(1, device="openreg")
        for (batch,) in loader:
            assert batch.is_pinned()
            total += batch.to("openreg", non_blocking=True).sum() * weight
        assert total.item() == 2016
        """
    )
