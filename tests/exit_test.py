# SPDX-License-Identifier: BSD-3-Clause
"""A process with queued work exits with the right status, and neither hangs nor crashes."""

import time

import pytest

from tests import child

# This program queues 80 s of work, which is as much as fits into a stream's queue. The work uses a
# tensor that exists until the interpreter exits.
QUEUE = """
import atexit, os, sys, threading, torch
value = torch.zeros(1000, device="openreg")
graph = torch.openreg.OpenRegGraph()
with torch.openreg.graph(graph):
    value.add_(1)
for _ in range(100):
    torch.openreg._sleep(800_000_000)
    value.add_(1)
"""
PATIENCE = 50.0  # seconds, much less than the queued work needs


def finish(tail: str) -> tuple[int, str, str]:
    start = time.monotonic()
    done = child.run(QUEUE + tail)
    assert time.monotonic() - start < PATIENCE
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("tail", "status"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("raise ValueError('mine')", 1),
        ("os._exit(4)", 4),
        ("keep = torch.openreg.Stream(); keep.record_event()", 0),
        ("thread = threading.Thread(target=lambda: value.mul_(2)); thread.start()", 0),
        ("other = torch.ones(5, device='openreg:1').pow_(2)", 0),
        ("value.cycle = value", 0),
        ("sys.modules['keep'] = value", 0),
        ("host = value.to('cpu', non_blocking=True)", 0),
        ("graph.replay()", 0),
        ("graph.replay(); sys.modules['keep'] = graph", 0),
    ],
    ids=[
        "end",
        "sys.exit",
        "exception",
        "os._exit",
        "event",
        "thread",
        "two devices",
        "cycle",
        "module",
        "pinned",
        "graph",
        "graph in a module",
    ],
)
def test_status(tail: str, status: int) -> None:
    returncode, _, stderr = finish(tail)
    assert returncode == status, stderr
    assert "Fatal" not in stderr
    assert ("ValueError: mine" in stderr) == ("mine" in tail)


def test_a_thread_that_waits_does_not_hold_up_the_end() -> None:
    returncode, _, stderr = finish(
        "import time\n"
        "threading.Thread(target=torch.openreg.synchronize, daemon=True).start()\n"
        "time.sleep(0.2)\n"
    )
    assert returncode == 0, stderr


# Continues QUEUE. The shutdown drops queued work: the replay of a graph, and work whose memory is
# freed before or after the shutdown.
DROPPED = """
import ctypes
def say(call):
    try:
        print(call())
    except RuntimeError as error:
        print(str(error).splitlines()[0])
def last():
    global graph, kept
    stream = torch.openreg.current_stream()
    for call in (event.query, stream.query, event.synchronize, torch.openreg.synchronize):
        say(call)
    del kept
    say(torch.openreg.empty_cache)
    graph.reset()
    del graph
    say(torch.openreg.empty_host_cache)
graph.replay()
event = torch.Event("openreg")
event.record()
side = torch.openreg.Stream()
side.wait_event(event)
freed, kept = (torch.empty(30 << 20, device="openreg") for _ in range(2))
freed.record_stream(side)
kept.record_stream(side)
del freed
atexit.register(last)
atexit.register(ctypes.CDLL("libopenreg.so").orShutdown)  # runs first
"""


def test_nothing_waits_for_work_that_the_shutdown_dropped() -> None:
    returncode, stdout, stderr = finish(DROPPED)
    assert returncode == 0, stderr
    dropped = "queued commands were dropped because the process is exiting"
    assert stdout.splitlines() == [
        f"openreg: orEventQuery: {dropped}",
        f"openreg: orStreamQuery: {dropped}",
        "openreg: orEventSynchronize: the process is exiting",
        "openreg: orDeviceSynchronize: the process is exiting",
        "None",
        "None",
    ]


def test_the_end_right_after_a_backward_pass() -> None:
    # torch's autograd thread may still be dropping Python objects at exit. This used to abort about
    # half of the runs.
    code = """
        import torch
        x = torch.randn(3, 4, device="openreg", requires_grad=True)
        (x @ x.t()).sum().backward()
        print(x.grad.shape)
    """
    assert {child.output(code) for _ in range(10)} == {"torch.Size([3, 4])"}


def test_functions_of_atexit_may_use_the_device() -> None:
    # The function is registered before torch is imported, so it runs last at exit.
    printed = child.output(
        """
        import atexit
        def last(): print(torch.ones(3, device="openreg").sum().item())
        atexit.register(last)
        import torch
        torch.ones(3, device="openreg").add_(1)
        """
    )
    assert printed == "3.0"


def test_a_failed_kernel_does_not_affect_the_exit() -> None:
    child.output(
        """
        import torch
        table = torch.zeros(4, 2, device="openreg")
        index = torch.tensor([9], device="openreg")
        torch.openreg._sleep(50_000_000)
        try:
            torch.index_select(table, 0, index)
        except (RuntimeError, IndexError):
            pass
        """
    )


def test_a_process_that_never_used_the_device() -> None:
    child.output("import torch; assert not torch.openreg.is_initialized()")
