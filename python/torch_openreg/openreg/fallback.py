# SPDX-License-Identifier: BSD-3-Clause
"""What ran on the CPU's kernels through the boxed fallback, because openreg has none of its own.

Counted per operator and overload, over all devices and threads, from the start of the process or
the last ``reset``. A policy, one for the process too, says whether operators may fall back at all.
Two variables of the environment are read once, at the first fallback:

- ``OPENREG_FALLBACK``: the policy to start with, ``silent`` (default), ``warn`` or ``error``.
- ``OPENREG_FALLBACK_MODE``: ``alias`` (default), the CPU's kernels work on device memory itself, or
  ``copy``, on copies in host memory, as a device has to whose memory the CPU cannot reach.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from torch_openreg import _C

Policy = Literal["silent", "warn", "error"]

#: In the order of FallbackPolicy in aten/fallback/fallback.h.
_POLICIES: tuple[Policy, ...] = get_args(Policy)


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


def get_policy() -> Policy:
    """Return what happens when an operator falls back."""
    return _POLICIES[_C.fallback_policy()]


def set_policy(policy: Policy) -> None:
    """Say what happens when an operator falls back, in all threads.

    Args:
        policy: ``"silent"``: it is counted. ``"warn"``: a UserWarning as well, one for each
            operator until ``reset``. ``"error"``: NotImplementedError, before anything is done.

    Raises:
        ValueError: for any other word.
    """
    if policy not in _POLICIES:
        raise ValueError(f"policy {policy!r}: expected one of {', '.join(_POLICIES)}")
    _C.set_fallback_policy(_POLICIES.index(policy))


@contextmanager
def policy(policy: Policy) -> Iterator[None]:
    """Have another policy within a block: ``with torch.openreg.fallback.policy("error"): ...``.

    It holds for all threads: the autograd threads that run a backward pass, too.
    """
    before = get_policy()
    set_policy(policy)
    try:
        yield
    finally:
        set_policy(before)


def irreplaceable() -> dict[str, str]:
    """Return the operators of strided tensors that never fall back, by name, with the reason.

    All of them have kernels of the device. They are listed for backends that start from this one.
    """
    return dict(_C.irreplaceable_operators())


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
