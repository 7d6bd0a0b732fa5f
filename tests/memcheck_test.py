# SPDX-License-Identifier: BSD-3-Clause
"""Memcheck finds invalid writes and leaks, and does not change the results of correct programs.

Each test uses a separate process, because memcheck is enabled at process start. The invalid writes
are fills by the driver. The driver checks only the bounds of the allocator's segments, so it
permits writes outside a tensor.
"""

import subprocess

import pytest

from tests import child

PRELUDE = """
import ctypes, gc, os, sys, torch
from pathlib import Path
import torch_openreg
driver = ctypes.CDLL(str(Path(torch_openreg.__file__).parent / "lib" / "libopenreg.so"))
driver.orMemsetAsync.argtypes = [
    ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
]

def write(pointer, count):
    stream = torch.openreg.current_stream().native_handle
    assert driver.orMemsetAsync(pointer, 7, count, stream) == 0

def error_of(function):
    try:
        function()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("no error")

def make(count):
    return torch.zeros(count, dtype=torch.uint8, device="openreg")
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return child.run(PRELUDE + code, OPENREG_MEMCHECK="1")


def output(code: str) -> str:
    """Runs a program and returns its output. It must succeed and print nothing to stderr."""
    done = run(code)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


# ------------------------------------------------------------- invalid writes that must be reported


def test_an_overrun_is_reported_at_the_next_wait() -> None:
    text = output(
        """
tensor = make(1000)
write(tensor.data_ptr() + 990, 30)
text = error_of(torch.openreg.synchronize)
torch.openreg.synchronize()  # reported once
print(text.replace(hex(tensor.data_ptr()), "ADDRESS"))
"""
    )
    assert "openreg: memcheck: 20 bytes were written past the end of a block" in text
    assert "the first at offset 1000" in text
    assert "block: 1000 bytes at ADDRESS of openreg:0" in text
    assert "allocated at (most recent call last):" in text
    assert "in make" in text
    assert "freed at" not in text


def test_an_underrun() -> None:
    text = output(
        """
tensor = make(1000)
write(tensor.data_ptr() - 5, 1)
print(error_of(torch.openreg.memcheck.check))
"""
    )
    assert "1 byte was written before the start of a block, the first at offset -5" in text


def test_a_write_to_freed_memory() -> None:
    text = output(
        """
def drop():
    global tensor
    del tensor
tensor = make(1000)
pointer = tensor.data_ptr()
drop()
write(pointer + 100, 8)
print(error_of(torch.openreg.synchronize))
"""
    )
    assert "8 bytes were written to a block after it was freed, the first at offset 100" in text
    assert "in make" in text
    assert text.index("freed at (most recent call last):") < text.index("in drop")


@pytest.mark.parametrize(
    "wait",
    [
        "torch.openreg.synchronize()",
        "torch.openreg.current_stream().synchronize()",
        "torch.openreg.memcheck.check()",
        "other.sum().item()",
        "other.cpu()",
        "torch.openreg.current_stream().record_event().synchronize()",
    ],
)
def test_every_wait_reports_faults_found_at_a_free(wait: str) -> None:
    text = output(
        f"""
other = torch.ones(100, device="openreg")
tensor = make(1000)
write(tensor.data_ptr() + 1000, 1)
del tensor
print(error_of(lambda: {wait}))
print(other.sum().item())
"""
    )
    assert "1 byte was written past the end" in text
    assert text.endswith("100.0")


def test_other_devices_and_several_faults() -> None:
    text = output(
        """
tensors = [make(100 + i) for i in range(8)]
for i, tensor in enumerate(tensors):
    write(tensor.data_ptr() + tensor.nbytes, 1)
print(error_of(lambda: torch.openreg.synchronize(0)))
with torch.openreg.device(1):
    second = torch.zeros(10, device="openreg:1")
    write(second.data_ptr() + 40, 1)
print(error_of(torch.openreg.memcheck.check))
"""
    )
    assert text.count("past the end of a block") == 6
    assert "(and 3 other blocks)" in text
    assert "of openreg:1" in text


def test_a_pending_fault_is_reported_at_exit() -> None:
    done = run(
        """
tensor = make(1000)
write(tensor.data_ptr() + 1000, 3)
sys.exit(3)
"""
    )
    assert done.returncode == 3
    assert "3 bytes were written past the end of a block" in done.stderr
    assert "in make" in done.stderr


def test_host_access_to_freed_memory() -> None:
    done = run(
        """
tensor = make(1000)
pointer = tensor.data_ptr()
del tensor
print(hex(pointer), flush=True)
ctypes.memset(pointer + 3, 0, 1)
"""
    )
    assert done.returncode < 0
    assert f"block {done.stdout.strip()} of 1000 bytes in it, which is free" in done.stderr


# ---------------------------------------------------------------------- leaks that must be reported


def test_leaks_lists_held_memory() -> None:
    printed = output(
        """
def first():
    return [torch.zeros(1000, device="openreg") for _ in range(3)]
def second():
    return torch.zeros(10, device="openreg:1")
kept = first(), second()
large, small = torch.openreg.memcheck.leaks()
print(large.device, large.blocks, large.bytes, "in first" in large.stack)
print(small.device, small.blocks, small.bytes, "in second" in small.stack)
del kept
print(torch.openreg.memcheck.leaks())
"""
    )
    assert printed.splitlines() == ["0 3 12000 True", "1 1 40 True", "[]"]


def test_leaks_are_reported_at_exit() -> None:
    done = run(
        """
def lose():
    tensor = torch.zeros(1000, device="openreg")
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(tensor))
kept = torch.ones(77, device="openreg")  # freed with the interpreter
for _ in range(2):
    lose()
"""
    )
    assert done.returncode == 0
    assert "8000 bytes in 2 blocks of openreg:0 were never freed" in done.stderr
    assert "in lose" in done.stderr
    assert done.stderr.count("openreg: memcheck:") == 1


def test_a_process_without_leaks_prints_nothing() -> None:
    output(
        """
model = torch.nn.Linear(10, 10).to("openreg")
optimizer = torch.optim.Adam(model.parameters())
model(torch.randn(3, 10, device="openreg")).sum().backward()
optimizer.step()
sys.modules["kept"] = model.weight
"""
    )


# --------------------------------------------------------------------------------- correct programs


def test_training_is_the_same() -> None:
    code = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
    torch.nn.Linear(4 * 36, 10),
).to("openreg")
optimizer = torch.optim.AdamW(model.parameters())
side = torch.openreg.Stream()
for _ in range(5):
    x = torch.randn(8, 1, 8, 8).to("openreg")
    side.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(side):
        loss = torch.nn.functional.cross_entropy(model(x), torch.arange(8, device="openreg"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x.record_stream(side)
    torch.openreg.current_stream().wait_stream(side)
    print(loss.item())
stats = torch.openreg.memory_stats()
print({name: number for name, number in stats.items() if "time" not in name})
print(torch.openreg.mem_get_info())
torch.openreg.empty_cache()
print(torch.openreg.mem_get_info(), torch.openreg.memory_reserved())
"""
    checked = child.run(code, OPENREG_MEMCHECK="1")
    assert checked.returncode == 0, checked.stderr
    assert checked.stderr == ""
    assert checked.stdout == child.run(code, OPENREG_MEMCHECK="0").stdout


def test_views_and_strides_stay_inside() -> None:
    output(
        """
x = torch.randn(33, 65, device="openreg")
(x.t() @ x[:, 3:]).cumsum(0).sort().values.to(torch.float16).cpu()
torch.nn.functional.conv1d(x[None], x[None, :, :3].transpose(0, 1)[:5].repeat(1, 33, 1))
torch.openreg.memcheck.check()
"""
    )


def test_a_full_device() -> None:
    printed = child.output(
        """
        import torch
        for round in range(3):
            kept = [torch.zeros(10 << 20, dtype=torch.uint8, device="openreg") for _ in range(4)]
            try:
                torch.zeros(100 << 20, dtype=torch.uint8, device="openreg")
            except torch.OutOfMemoryError:
                print("full")
            del kept
        torch.openreg.memcheck.check()
        """,
        OPENREG_MEMCHECK="1",
        OPENREG_DEVICE_MEMORY="64M",
    )
    assert printed.split() == ["full"] * 3


def test_forks() -> None:
    printed = output(
        """
tensor = make(1000)
child = os.fork()
if child == 0:
    del tensor
    os._exit(0)
print(os.waitpid(child, 0)[1], tensor.sum().item())
"""
    )
    assert printed == "0 0"


def test_with_the_other_watchers() -> None:
    done = child.run(
        PRELUDE
        + """
torch.openreg.memory._record_memory_history()
tensor = make(1000)
side = torch.openreg.Stream()
side.wait_stream(torch.openreg.current_stream())
with torch.openreg.stream(side):
    tensor.add_(1)
tensor.record_stream(side)
del tensor
torch.openreg.synchronize()
print([e["action"] for e in torch.openreg.memory._snapshot()["device_traces"][0]].count("alloc"))
""",
        OPENREG_MEMCHECK="1",
        OPENREG_STREAM_SANITIZER="1",
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert int(done.stdout) >= 1


# ----------------------------------------------------------------------------- settings of memcheck


def test_without_it_questions_are_refused() -> None:
    printed = child.output(
        """
        import torch
        print(torch.openreg.memcheck.is_enabled())
        for question in (torch.openreg.memcheck.check, torch.openreg.memcheck.leaks):
            try:
                question()
            except RuntimeError as error:
                print("OPENREG_MEMCHECK=1" in str(error))
        """,
        OPENREG_MEMCHECK="0",
    )
    assert printed.split() == ["False", "True", "True"]


def test_wrong_values_are_refused() -> None:
    done = child.run("import torch; torch.ones(3, device='openreg')", OPENREG_MEMCHECK="yes")
    assert done.returncode == 1
    assert 'OPENREG_MEMCHECK is "yes": expected 0 or 1' in done.stderr


def test_threads_free_memory_while_a_queue_is_full() -> None:
    # One thread waits for room in the queue, with the GIL released, but needs the GIL to continue.
    # The other thread waits for the first one, and must release the GIL during this wait.
    text = output(
        """
import threading
side = torch.openreg.Stream()
with torch.openreg.stream(side):
    kept = [torch.UntypedStorage(8, device="openreg") for _ in range(3000)]
others = [torch.UntypedStorage(8, device="openreg") for _ in range(3000)]
torch.openreg.synchronize()
asleep = threading.Event()

def free():
    with torch.openreg.stream(side):
        torch.openreg._sleep(300_000_000)
        asleep.set()
        kept.clear()

thread = threading.Thread(target=free)
thread.start()
asleep.wait()
while others:
    others.pop()
    threading.Event().wait(0.0005)
thread.join()
torch.openreg.synchronize()
print("done")
"""
    )
    assert text == "done"
