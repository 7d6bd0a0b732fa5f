# SPDX-License-Identifier: BSD-3-Clause
"""Compares the device with the CPU in memory, copies, streams and graphs, but not in operators.

The measurement is the same as in the eager benchmark. For features that the CPU lacks, the CPU runs
what a program would use instead (see benchmarks/service_cases.py).
"""

import sys
from collections.abc import Sequence

import torch

from benchmarks import timeline
from benchmarks.eager import parser, run
from benchmarks.service_cases import SERVICES
from tools.flags.flags import picture


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark.

    Returns:
        0, or 1 if a case could not be measured.
    """
    flags_of = parser("services", __doc__, SERVICES)
    flags_of.set_defaults(threads=[1])
    flags_of.add_argument(
        "--timeline",
        type=picture,
        metavar="FILE",
        help="draw the overlap of copies and computation to FILE",
    )
    flags = flags_of.parse_args(argv)
    if flags.timeline and flags.device.type == "cpu":
        flags_of.error(
            "--timeline needs streams, which the CPU does not have: choose another --device"
        )
    status = run(flags, SERVICES)
    if flags.timeline and not flags.list:
        if flags.threads[0]:
            torch.set_num_threads(flags.threads[0])
        chunks, size = (3, 128) if flags.quick else (8, 2048)
        timeline.record(flags.device, chunks, size)  # this run is a warm-up
        spans = timeline.record(flags.device, chunks, size)
        timeline.draw(spans, flags.timeline)
        total = max(span.end for span in spans)
        print(f"\ncopies overlap computation for {timeline.overlap(spans):.1f} of {total:.1f} ms")
    return status


if __name__ == "__main__":
    sys.exit(main())
