# SPDX-License-Identifier: BSD-3-Clause
"""Debugging settings: implicit waits, blocking launches, and launch sites.

Each setting applies to all threads of the process and can be changed at any time.
"""

from typing import Literal, get_args

from torch_openreg import _C

SyncDebugMode = Literal["default", "warn", "error"]

#: The modes, in the order of SyncDebugMode (runtime/diagnostics/implicit_wait.h) and of torch.cuda.
_MODES: tuple[SyncDebugMode, ...] = get_args(SyncDebugMode)


def set_sync_debug_mode(debug_mode: SyncDebugMode | int) -> None:
    """Set what happens when an operator makes the host wait for the device implicitly.

    The following operations wait implicitly: reading a value (``item``, ``tolist``,
    ``if tensor:``), copies to pageable host memory, large copies from pageable host memory, and
    operators that run on the host because the device has no kernel for them (``nonzero``, indexing
    with a bool tensor). Explicit waits (``synchronize``) are not affected.

    Args:
        debug_mode: the reaction to a wait. ``"default"`` or 0: none. ``"warn"`` or 1: a UserWarning
            that names the operator. ``"error"`` or 2: a RuntimeError instead of the wait; the
            operator has no effect.

    Raises:
        ValueError: for any other value.
    """
    mode = _MODES.index(debug_mode) if debug_mode in _MODES else debug_mode
    if not isinstance(mode, int) or isinstance(mode, bool) or not 0 <= mode < len(_MODES):
        expected = ", ".join(f"{word!r} ({number})" for number, word in enumerate(_MODES))
        raise ValueError(f"invalid value of debug_mode, {debug_mode!r}: expected one of {expected}")
    _C.set_sync_debug_mode(mode)


def get_sync_debug_mode() -> int:
    """Return the mode as a number: 0 for ``"default"``, 1 for ``"warn"``, 2 for ``"error"``."""
    return _C.sync_debug_mode()


def set_launch_blocking(on: bool) -> None:
    """Set whether each launch waits for its kernel, so that the call raises the kernel's error.

    ``OPENREG_LAUNCH_BLOCKING=1`` enables this setting from the start.
    """
    _C.set_launch_blocking(on)


def get_launch_blocking() -> bool:
    """Return whether each launch waits for its kernel."""
    return _C.launch_blocking()


def set_launch_sites(on: bool) -> None:
    """Set whether launches record their Python stack and add it to the kernel's error.

    Recording takes about a microsecond per launch and never waits for the device.
    ``OPENREG_LAUNCH_SITES=1`` enables this setting from the start.
    """
    _C.set_launch_sites(on)


def get_launch_sites() -> bool:
    """Return whether launches record their Python stack."""
    return _C.launch_sites()
