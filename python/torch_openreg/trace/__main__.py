# SPDX-License-Identifier: BSD-3-Clause
"""Validates, summarizes and converts traces from torch.profiler: python -m torch_openreg.trace."""

import argparse
import gzip
import json
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

from torch_openreg.name import PACKAGE
from torch_openreg.trace import cuda_names, summary, validation
from torch_openreg.trace.events import Trace, read

_MAX_FAULTS = 20


def _check(trace: Trace) -> int:
    found = list(validation.faults(trace))
    for fault in found[:_MAX_FAULTS]:
        print(f"FAULT  {fault}")
    if len(found) > _MAX_FAULTS:
        print(f"       and {len(found) - _MAX_FAULTS} more")
    unlinked = sum(work.external_id is None for work in trace.work)
    print(
        f"{len(trace.work)} kernels and copies on {len(trace.streams())} streams, "
        f"{len(trace.calls)} calls, {len(trace.operators)} operators; {unlinked} kernels and "
        f"copies outside of operators; {len(found) or 'no'} faults"
    )
    return int(bool(found))


def _summarize(trace: Trace, flags: argparse.Namespace) -> int:
    if not trace.work:
        print(f"{flags.file}: the trace contains no device work", file=sys.stderr)
        return 1
    print("\n".join(summary.summarize(trace).lines(flags.top)))
    if trace.dropped:
        print(f"{trace.dropped} records are missing: the profiler ran out of memory")
    if flags.plot != "none":
        trace_name = flags.file.with_suffix("") if flags.file.suffix == ".gz" else flags.file
        path = Path(flags.plot) if flags.plot else trace_name.with_suffix(".png")
        path = path if path.suffix else path.with_suffix(".png")
        try:
            summary.draw(trace, path, flags.top)
        except ImportError as error:
            print(f"cannot plot: {error} (pip install matplotlib, or --plot none)", file=sys.stderr)
            return 1
        print(f"\npicture: {path}")
    return 0


def _convert(trace: Trace, flags: argparse.Namespace) -> int:
    path: Path = flags.output or flags.file.with_name("cuda_" + flags.file.name)
    if path.exists() and path.samefile(flags.file):
        raise ValueError("--output is the input file: choose another file")
    text = json.dumps(cuda_names.rewritten(trace.document))
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    print(f"written: {path}")
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, but got {number}")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {PACKAGE}.trace",
        description="Reads traces that torch.profiler exported (export_chrome_trace).",
        epilog="Exit status: 0 on success, 1 for a faulty or unreadable trace, 2 for wrong flags.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    texts = {
        "check": "validate a trace: links, arrows, and overlaps within a stream",
        "summary": "print and plot how the device spent its time",
        "cuda": "write a copy with CUDA's names, for tools such as HolisticTraceAnalysis",
    }
    for name, text in texts.items():
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        command.add_argument("file", type=Path, help="trace (.json or .json.gz)")
        if name == "summary":
            command.add_argument(
                "--top", type=_positive, default=12, help="names to list (default: %(default)s)"
            )
            command.add_argument(
                "--plot",
                default="",
                metavar="FILE",
                help="image to write, or 'none' (default: the trace's path with suffix .png)",
            )
        elif name == "cuda":
            command.add_argument(
                "--output", type=Path, help="file to write (default: cuda_ and the trace's name)"
            )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in ``arguments``; None means the process's arguments.

    Returns:
        0, or 1 if the trace is faulty or cannot be read. Wrong flags raise SystemExit(2).
    """
    flags = _parser().parse_args(arguments)
    try:
        trace = read(flags.file)
        if flags.command == "check":
            return _check(trace)
        return _summarize(trace, flags) if flags.command == "summary" else _convert(trace, flags)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        print(f"{flags.file}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
