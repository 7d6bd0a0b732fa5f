# SPDX-License-Identifier: BSD-3-Clause
"""Waits for torch's autograd threads before Python is finalized."""

import re
import time
from pathlib import Path


def wait_for_autograd_threads() -> None:
    """Waits until torch's autograd threads sleep, but at most one second.

    backward() returns when the last gradient is ready. The thread that computed the gradient may
    still be releasing Python objects. If it acquires the GIL after Python is finalized, the process
    aborts. torch has no function that waits for these threads, so this function reads their states.
    """
    deadline = time.monotonic() + 1
    asleep = 0
    # A thread that is between two states may be missed in one scan, so several scans must agree.
    while asleep < 3 and time.monotonic() < deadline:
        asleep = 0 if _any_autograd_thread_runs() else asleep + 1
        time.sleep(1e-4)  # sleep without the GIL, which the threads need


def _any_autograd_thread_runs() -> bool:
    for stat in Path("/proc/self/task").glob("*/stat"):
        try:
            line = stat.read_bytes()  # id (name) state ...
        except OSError:
            continue  # the thread has ended
        if re.search(rb"\(pt_autograd_.*\) [^S]", line):
            return True
    return False
