# SPDX-License-Identifier: BSD-3-Clause
"""Runs a short program for a contract row. The program's Python process loads the subject."""

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass

from torch_device_conformance.contract.row import Backend, Finding
from torch_device_conformance.verdict.verdict import CRASH, HANG, RAISES_WRONGLY

LOAD = """
import faulthandler
faulthandler.enable()
import torch
from torch_device_conformance.subject.subject import Subject
device = Subject({device!r}, {imports!r}, {autoload!r}).load()
"""


@dataclass(frozen=True)
class Ended:
    """The outcome of running a process.

    Attributes:
        status: exit status of the process, or the negated signal number if a signal ended it.
        output: text that the process wrote to stdout.
        errors: text that the process wrote to stderr.
    """

    status: int
    output: str
    errors: str


def run(
    backend: Backend,
    lines: str,
    seconds: float = 120.0,
    load: bool = True,
    environment: dict[str, str] | None = None,
) -> Ended:
    """Runs Python code in a new interpreter in which `device` is the subject's device.

    Args:
        backend: the subject.
        lines: the code, which may be indented.
        seconds: time limit for the process.
        load: whether to load the subject and define `device` before the code runs.
        environment: environment variables to add.

    Raises:
        Finding: the process did not exit in time.
    """
    subject = backend.subject
    values = {
        "device": subject.device,
        "imports": subject.imports,
        "autoload": subject.autoload,
    }
    prologue = LOAD.format(**values) if load else ""
    # PYTHONPATH lets the new interpreter import the same modules as this process.
    path = os.pathsep.join(filter(None, sys.path))
    try:
        done = subprocess.run(
            [sys.executable, "-c", prologue + textwrap.dedent(lines)],
            env={**os.environ, "PYTHONPATH": path, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        message = f"the test process did not exit within {seconds:g} s"
        if words := (late.stderr or b"").decode(errors="replace").strip()[-300:]:
            message += f"; its stderr ends with: {words}"
        raise Finding(HANG, message) from None
    return Ended(done.returncode, done.stdout.strip(), done.stderr.strip())


def survive(ended: Ended, what: str) -> Ended:
    """Returns `ended`, the outcome of a process that must not have crashed.

    Raises:
        Finding: the process crashed.
    """
    if ended.status < 0:
        message = f"{what}: signal {-ended.status} ended the process"
        if ended.errors:
            message += f"; its stderr ends with: {ended.errors[-600:]}"
        raise Finding(CRASH, message)
    return ended


def succeed(ended: Ended, what: str, status: int = 0) -> str:
    """Returns the text that a process printed to stdout. Its exit status must be `status`.

    Raises:
        Finding: the process crashed, or its exit status differs.
    """
    if survive(ended, what).status != status:
        message = f"{what}: the process exited with status {ended.status}"
        if ended.errors:
            message += f"; the last line of its stderr is: {ended.errors.splitlines()[-1]}"
        raise Finding(RAISES_WRONGLY, message)
    return ended.output
