# SPDX-License-Identifier: BSD-3-Clause
"""Imports a module in a separate process, to determine whether the import crashes.

If loading a library crashes, the process cannot catch the crash.
"""

import os
import signal
import subprocess
import sys

from torch_openreg_autoload.name import PACKAGE

__all__ = ["require_return"]

# The timeout of a trial in seconds. Any import of torch is much faster.
_SECONDS = 60.0
_RETURNED = f"{PACKAGE}: the import returned"
_PROGRAM = """\
import importlib, sys
name, word, *sys.path = sys.argv[1:]
try:
    importlib.import_module(name)
except BaseException:
    pass  # the real import reports this error
sys.__stdout__.write(word)
sys.__stdout__.flush()
"""


def require_return(module: str) -> None:
    """Raise an error unless an import of ``module`` returns or raises an exception.

    This takes as long as an import of torch. The new process has the same sys.path and environment.

    Raises:
        ImportError: if the import ended its process or took too long.
    """
    if not sys.executable:
        return  # in an application that embeds Python, there is no interpreter to start
    command = [sys.executable, "-c", _PROGRAM, module, _RETURNED, *sys.path]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ImportError(
            f"loading it takes more than {_SECONDS:g} s in a separate process"
        ) from None
    if _RETURNED.encode() in done.stdout:
        return
    said = done.stderr.decode(errors="replace").strip().splitlines()
    raise ImportError(
        f"loading it ends the process ({_ending(done.returncode)}), as a trial in a separate "
        "process showed" + (f", whose last output was: {said[-1].strip()}" if said else "")
    )


def _ending(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:  # a real-time signal has no name
        return f"signal {-status}"
