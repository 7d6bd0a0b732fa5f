# SPDX-License-Identifier: BSD-3-Clause
"""Tells what is installed and tries the device: python -m torch_openreg [--json]

Prints versions, devices and features, and runs the self-test. It works with a broken backend too,
and says what is wrong with it. Exit status: 0 if all is well, 1 if something is not.
"""

import argparse
import faulthandler
import importlib
import json
import platform
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_openreg.name import DEVICE_TYPE

if TYPE_CHECKING:
    from torch_openreg.self_test import Outcome

# Seconds after which it is taken to hang.
_PATIENCE = 120.0
_REPAIR = "pip install --force-reinstall torch_openreg"


@dataclass
class _Report:
    """What was found; ``error`` is why there is no device, else empty."""

    versions: dict[str, str] = field(default_factory=dict)
    error: str = ""
    advice: str = ""
    devices: list[dict[str, Any]] = field(default_factory=list)
    features: dict[str, Any] = field(default_factory=dict)
    checks: list["Outcome"] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether all is well."""
        return not self.error and all(check.passed for check in self.checks)


def _look_around(report: _Report) -> None:
    """Find what can be found before anything is loaded.

    Raises:
        ImportError: the files are not as they were installed, and loading them crashes.
    """
    report.versions["python"] = f"{platform.python_version()} ({sys.executable})"
    report.versions["system"] = f"{platform.platform()}"
    version = importlib.import_module("torch_openreg.version")
    report.versions["torch_openreg"] = (
        f"{version.__version__}, for torch {version.TORCH_VERSION} and Python "
        + ".".join(map(str, version.PYTHON_VERSION))
    )
    installation = importlib.import_module("torch_openreg_autoload.installation")
    doubts = installation.find_doubts("torch_openreg", __file__)
    report.versions["files"] = "; ".join(doubts) or "no difference from the installation found"
    if doubts:
        trial = importlib.import_module("torch_openreg_autoload.trial")
        trial.require_return("torch_openreg.registration")


def _load(report: _Report) -> None:
    """Load torch and the device."""
    torch = importlib.import_module("torch")
    report.versions["torch"] = (
        f"{torch.__version__}, C++11 ABI {'on' if torch._C._GLIBCXX_USE_CXX11_ABI else 'off'}"
        f"{', debug build' if torch.version.debug else ''} ({Path(str(torch.__file__)).parent})"
    )
    importlib.import_module("torch_openreg.registration")


def _describe(report: _Report) -> None:
    """Ask the device what it is; this starts it."""
    from torch_openreg import _C, openreg

    driver = _C.driver_version()
    report.versions["driver"] = f"{driver // 10000}.{driver // 100 % 100}.{driver % 100}"
    openreg.init()  # says what is wrong with a setting
    for index in range(openreg.device_count()):
        free, _ = openreg.mem_get_info(index)
        properties = asdict(openreg.get_device_properties(index))
        report.devices.append({"index": index, **properties, "free_memory": free})
    report.features = {
        "autocast": [str(dtype) for dtype in openreg.get_amp_supported_dtype()],
        "memory allocator": openreg.get_allocator_backend(),
        "launch blocking": openreg.get_launch_blocking(),
        "fallback": openreg.fallback.get_policy(),
    }


def _try(report: _Report, device: int) -> None:
    """Run the self-test; a person sees which check is running."""
    from torch_openreg import self_test

    watched = sys.stderr.isatty()
    outcomes = self_test.run(device)
    for number, check in enumerate(self_test.CHECKS, 1):
        if watched:
            line = f"{number}/{len(self_test.CHECKS)} {check.name}"
            print(f"\r{line:<40}", end="", file=sys.stderr, flush=True)
        report.checks.append(next(outcomes))
    if watched:
        print(f"\r{'':<40}\r", end="", file=sys.stderr, flush=True)


def _examine(device: int) -> _Report:
    """Find out all that can be found out."""
    report = _Report()
    try:
        _look_around(report)
        _load(report)
        _describe(report)
        if device >= len(report.devices):
            report.error = f"there is no device {device}, but {len(report.devices)} (from 0)"
            report.advice = "--device takes an index; OPENREG_DEVICE_COUNT sets their number"
        else:
            _try(report, device)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a broken backend raises, SystemExit included
        report.error = f"{type(error).__name__}: {error}"
        report.advice = _REPAIR
    return report


def _lines(report: _Report) -> list[str]:
    """The report for a person."""
    lines = [f"{name:<18}{value}" for name, value in report.versions.items()]
    for device in report.devices:
        gib = [device[key] / 2**30 for key in ("total_memory", "free_memory")]
        lines.append(
            f"{DEVICE_TYPE + ':' + str(device['index']):<18}{device['name']}, capability "
            f"{device['major']}.{device['minor']}, {device['multi_processor_count']} cores, "
            f"{gib[0]:.2f} GiB ({gib[1]:.2f} free)"
        )
    for name, value in report.features.items():
        text = ", ".join(value) if isinstance(value, list) else str(value)
        lines.append(f"{name:<18}{text}")
    lines.append("")
    for check in report.checks:
        word = "PASS" if check.passed else "FAIL"
        lines.append(f"{word}  {check.name:<15}{check.ms:8.1f} ms  {check.message}".rstrip())
        if check.advice:
            lines.append(f"      next: {check.advice}")
    if report.error:
        lines += textwrap.wrap(f"FAIL  {report.error}", 100, subsequent_indent="      ")
        lines.append(f"      next: {report.advice}")
    failed = sum(not check.passed for check in report.checks) + bool(report.error)
    seconds = sum(check.ms for check in report.checks) / 1e3
    lines.append(f"{len(report.checks)} checks in {seconds:.1f} s, {failed or 'none'} failed")
    return lines


def _whole_number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no index")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Returns:
        0, or 1 if something is not well. Wrong flags end it with 2.
    """
    parser = argparse.ArgumentParser(
        prog="python -m torch_openreg",
        description="Tells what is installed and tries the device.",
        epilog="Exit status: 0 if all is well, 1 if something is not, 2 for wrong flags.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--device", type=_whole_number, default=0, metavar="N", help="to try (default: 0)"
    )
    flags = parser.parse_args(arguments)
    report = _examine(flags.device)
    if flags.json:
        print(json.dumps({"passed": report.passed, **asdict(report)}, indent=1))
    else:
        print("\n".join(_lines(report)))
    return int(not report.passed)


if __name__ == "__main__":
    # A crash and a hang say where.
    faulthandler.enable()
    faulthandler.dump_traceback_later(_PATIENCE, exit=True)
    sys.exit(main())
