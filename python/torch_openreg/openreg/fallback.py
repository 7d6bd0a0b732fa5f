# SPDX-License-Identifier: BSD-3-Clause
"""What ran on the CPU's kernels through the boxed fallback, because openreg has none of its own.

Counted per operator and overload, over all devices and threads, from the start of the process or
the last ``reset``.
"""

from dataclasses import dataclass

from torch_openreg import _C


@dataclass(frozen=True)
class FallbackRecord:
    """The fallbacks of one operator."""

    calls: int
    #: Calls that were queued on the stream like any kernel.
    asynchronous: int
    #: Calls for which the host waited.
    synchronous: int
    #: Bytes of arguments that were copied to the host; most are used where they are.
    bytes_in: int
    #: Bytes of results that were copied to the device.
    bytes_out: int
    #: Nanoseconds that the calling threads spent in the calls, waits included.
    ns: int


def stats() -> dict[str, FallbackRecord]:
    """Return the record of each operator that fell back, by its name (``"aten::cdist"``)."""
    return {name: FallbackRecord(**record) for name, record in _C.fallback_stats().items()}


def reset() -> None:
    """Forget all records."""
    _C.fallback_reset()


def report() -> str:
    """Return a table of the fallbacks, the operator with the most time first."""
    header = ("operator", "calls", "async", "sync", "MB in", "MB out", "ms")
    rows = [header]
    for name, record in sorted(stats().items(), key=lambda item: (-item[1].ns, item[0])):
        rows.append(
            (
                name,
                str(record.calls),
                str(record.asynchronous),
                str(record.synchronous),
                f"{record.bytes_in / 1e6:.2f}",
                f"{record.bytes_out / 1e6:.2f}",
                f"{record.ns / 1e6:.2f}",
            )
        )
    if len(rows) == 1:
        return "no operator fell back"
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells))
    return "\n".join(lines)
