# SPDX-License-Identifier: BSD-3-Clause
"""Entries that crash or hang, to test the sweep."""

import os
import signal
import time
from collections.abc import Callable

from tests.sweep.outcome import AGREES, DIFFERS, Case, Outcome


def prepare(file: str) -> Callable[[Case], Outcome]:
    """Returns a function that acts according to an entry's name.

    Args:
        file: file that gets a line with the name of each started entry.
    """

    def evaluate(case: Case) -> Outcome:
        name = case.name
        with open(file, "a") as seen:
            seen.write(f"{name}\n")
        if name == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if name == "hang":
            time.sleep(600)
        return Outcome(case, DIFFERS if name == "differ" else AGREES)

    return evaluate
