# SPDX-License-Identifier: BSD-3-Clause
"""Functions for fault tests: kill a random rank, and return the text of an error."""

import contextlib
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.ranks import Group, Ranks


def message(function: Callable[..., Any], *arguments: Any) -> str:
    """Returns the text of the error that an operation or the next synchronization raises."""
    try:
        function(*arguments)
    except (RuntimeError, ValueError) as error:
        with contextlib.suppress(RuntimeError):  # the kernel may report an error, too
            torch.openreg.synchronize()
        return str(error)
    with pytest.raises(RuntimeError) as caught:
        torch.openreg.synchronize()
    return str(caught.value)


def errors_after_a_kill(
    generator: random.Random, folder: Path, function: Callable[..., None], *arguments: Any
) -> tuple[int, list[str]]:
    """Kills one of two or four ranks at a random time. The others must end within 5 s.

    Args:
        generator: determines the number of ranks, the victim, and the time.
        folder: an empty folder. Each rank creates a file there, named after its number, when it is
            ready.
        function: the function that each rank runs. It must not return.
        arguments: the function's arguments.

    Returns:
        The rank that was killed, and the tracebacks of the other ranks.
    """
    size = generator.choice([2, 4])
    with Ranks(size, function, *arguments, group=Group(timeout=20)) as ranks:
        end = time.monotonic() + 60
        while len(list(folder.iterdir())) < size and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.1 * generator.random())
        victim = generator.randrange(size)
        ranks.kill(victim)
        start = time.monotonic()
        outcomes = ranks.outcomes(30)
        seconds = time.monotonic() - start
    assert seconds < 5
    assert outcomes.pop(victim).exit_code == -signal.SIGKILL
    assert all(outcome.exit_code == 1 for outcome in outcomes)
    return victim, [outcome.error or "" for outcome in outcomes]
