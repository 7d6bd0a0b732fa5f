# SPDX-License-Identifier: BSD-3-Clause
"""Statistics and policy of the boxed fallback, which runs CPU kernels where openreg has none.

Fallbacks are counted per operator overload for all devices and threads, since the start of the
process or the last ``reset``. A process-wide policy determines whether operators may fall back. Two
environment variables are read once, at the first fallback:

- ``OPENREG_FALLBACK``: the initial policy, ``silent`` (default), ``warn`` or ``error``.
- ``OPENREG_FALLBACK_MODE``: with ``alias`` (default), CPU kernels work directly on device memory.
  With ``copy``, they work on copies in host memory. A device whose memory the CPU cannot access
  requires ``copy``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from torch_openreg import _C

Policy = Literal["silent", "warn", "error"]

#: The policies, in the order of FallbackPolicy in aten/fallback/fallback.h.
_POLICIES: tuple[Policy, ...] = get_args(Policy)


@dataclass(frozen=True)
class FallbackRecord:
    """Statistics about the fallbacks of one operator."""

    calls: int
    #: The number of calls that were queued on the stream like a kernel.
    asynchronous: int
    #: The number of calls that made the host wait.
    synchronous: int
    #: The number of bytes of arguments that were copied to the host. Most arguments are not copied.
    bytes_in: int
    #: The number of bytes of results that were copied to the device.
    bytes_out: int
    #: The time that threads spent in the calls, including waits, in nanoseconds.
    ns: int


def stats() -> dict[str, FallbackRecord]:
    """Return a record for each operator that fell back, by its name (``"aten::cdist"``)."""
    return {name: FallbackRecord(**record) for name, record in _C.fallback_stats().items()}


def reset() -> None:
    """Clear all records."""
    _C.fallback_reset()


def get_policy() -> Policy:
    """Return what happens when an operator falls back."""
    return _POLICIES[_C.fallback_policy()]


def set_policy(policy: Policy) -> None:
    """Set what happens in all threads when an operator falls back.

    Args:
        policy: ``"silent"``: the call is only counted. ``"warn"``: torch also issues a UserWarning,
            once per operator until ``reset``. ``"error"``: the call raises a NotImplementedError
            before the operator has any effect.

    Raises:
        ValueError: for any other value.
    """
    if policy not in _POLICIES:
        raise ValueError(f"unknown policy {policy!r}: expected one of {', '.join(_POLICIES)}")
    _C.set_fallback_policy(_POLICIES.index(policy))


@contextmanager
def policy(policy: Policy) -> Iterator[None]:
    """Set the policy within a block: ``with torch.openreg.fallback.policy("error"): ...``.

    The policy applies to all threads, including the autograd threads that run a backward pass.
    """
    before = get_policy()
    set_policy(policy)
    try:
        yield
    finally:
        set_policy(before)


def irreplaceable() -> dict[str, str]:
    """Return the operators that never fall back for strided tensors, by name, with the reason.

    This device has kernels for all of them. The list is for backends that are derived from this
    one.
    """
    return dict(_C.irreplaceable_operators())


def report() -> str:
    """Return a table of the fallbacks, sorted by their time in descending order."""
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
