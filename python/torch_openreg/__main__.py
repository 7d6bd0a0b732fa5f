# SPDX-License-Identifier: BSD-3-Clause
"""Reports what is installed and checks the device: python -m torch_openreg [--json] [--device N]

A broken installation is reported without a traceback and with advice.
"""

import argparse
import contextlib
import faulthandler
import functools
import importlib
import io
import json
import os
import platform
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch_openreg.name import DEVICE_TYPE, PACKAGE

# The time in seconds after which the program assumes that a step hangs, and exits. Some steps
# import torch or its compiler, which takes more than two minutes if other programs use all cores.
_STEP_TIMEOUT = 600.0

_say = functools.partial(print, flush=True)


def _examine(report: dict[str, Any], index: int, begin_step: Callable[[], None]) -> None:
    """Fill in the report and print each line immediately, so that a hang or crash shows its place.

    Any import can fail, so each import runs only after the previous one has succeeded. Calls
    begin_step() at the start of each step.
    """

    def version(name: str, text: str) -> None:
        begin_step()
        report["versions"][name] = text
        _say(f"{name:<18}{text}")

    version("python", f"{platform.python_version()} ({sys.executable})")
    version("system", platform.platform())
    import torch_openreg.version as built

    python = ", ".join(built.python_versions()) or "(no extension module)"
    version(PACKAGE, f"{built.__version__} for torch {built.TORCH_VERSION}, Python {python}")
    from torch_openreg_autoload import installation, trial

    doubts = installation.find_doubts(PACKAGE, __file__)
    version("files", "; ".join(doubts) or "no difference from the installation found")
    if doubts:
        trial.require_return(f"{PACKAGE}.registration")  # loading the libraries may crash
    import torch

    abi = f"C++11 ABI {'on' if torch._C._GLIBCXX_USE_CXX11_ABI else 'off'}"
    debug = ", debug build" if torch.version.debug else ""
    version("torch", f"{torch.__version__}, {abi}{debug} ({Path(torch.__file__).parent})")
    importlib.import_module(f"{PACKAGE}.registration")  # checks versions before it loads _C
    from torch_openreg import _C, openreg, self_test

    driver = _C.driver_version()
    version("driver", f"{driver // 10000}.{driver // 100 % 100}.{driver % 100}")
    report["advice"] = "correct the setting that the message names (docs/device.md)"
    openreg.init()
    count = openreg.device_count()
    for number in range(count):
        begin_step()
        device = {"index": number, **asdict(openreg.get_device_properties(number))}
        device["uuid"] = str(device["uuid"])
        device["free_memory"] = openreg.mem_get_info(number)[0]
        report["devices"].append(device)
        total, free = (device[key] / 2**30 for key in ("total_memory", "free_memory"))
        cores = f"{device['multi_processor_count']} cores"
        memory = f"{total:.2f} GiB ({free:.2f} free)"
        _say(f"{f'{DEVICE_TYPE}:{number}':<18}{device['name']}, {cores}, {memory}")
    report["advice"] = "--device takes an index; OPENREG_DEVICE_COUNT sets the number of devices"
    if not 0 <= index < count:
        raise IndexError(f"device index {index} is out of range: {count} devices")
    report["advice"] = ""
    for name in self_test.CHECKS:
        begin_step()
        _say(f"{name:<18}", end="")
        start = time.perf_counter()
        failure, lacks = None, ""
        try:
            failure = self_test.run(name, index)
        except NotImplementedError as error:
            lacks = f"not supported by this driver ({error})"
        ms = 1e3 * (time.perf_counter() - start)
        message, advice = failure or (lacks, "")
        check = {"name": name, "passed": not failure, "supported": not lacks, "ms": ms}
        report["checks"].append(check | {"message": message, "advice": advice})
        outcome = "FAIL" if failure else "n/a " if lacks else "PASS"
        _say(f"{outcome}{ms:10.1f} ms  {message}".rstrip())
        if failure:
            _say(f"      next: {advice}")
    failed = sum(not check["passed"] for check in report["checks"])
    _say(f"{len(report['checks'])} checks, {failed or 'none'} failed")
    report["passed"] = not failed


def main(
    arguments: Sequence[str] | None = None, begin_step: Callable[[], None] = lambda: None
) -> int:
    """Run the program and return its exit status. Wrong flags raise SystemExit(2).

    Args:
        arguments: the command line; by default, that of the process.
        begin_step: called at the start of each step, such as a check.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {PACKAGE}",
        description="Reports what is installed and checks the device.",
        epilog="Exit status: 0 if everything works, 1 if something fails, 2 for wrong flags.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--device", type=int, default=0, metavar="N", help="index (default: 0)")
    flags = parser.parse_args(arguments)
    report: dict[str, Any] = {"passed": False, "error": "", "versions": {}, "devices": []}
    # Before the checks run, "advice" is what to do if the next step fails. If the error itself says
    # what to do, the report contains no advice.
    report |= {"checks": [], "advice": f"pip install --force-reinstall {PACKAGE}"}
    with contextlib.redirect_stdout(io.StringIO() if flags.json else sys.stdout):
        try:
            _examine(report, flags.device, begin_step)
        except (KeyboardInterrupt, BrokenPipeError):
            raise
        except BaseException as error:  # a broken backend may raise anything, including SystemExit
            report["error"] = f"{type(error).__name__}: {error}"
            _say(textwrap.fill(f"FAIL  {report['error']}", 100, subsequent_indent="      "))
            if getattr(error, "advises", False):  # compatibility.IncompatibleError
                report["advice"] = ""
            else:
                _say(f"      next: {report['advice']}")
    if flags.json:
        _say(json.dumps(report, indent=1))
    return int(not report["passed"])


def _limit_step() -> None:
    """Start the time limit of a step; this ends the limit of the previous step."""
    faulthandler.dump_traceback_later(_STEP_TIMEOUT, exit=True)


if __name__ == "__main__":
    faulthandler.enable()  # prints stack traces on a crash
    _limit_step()
    try:
        status = main(begin_step=_limit_step)
    except BrokenPipeError:  # the reader of the output, such as `head`, has ended
        # Python flushes the output once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status)
