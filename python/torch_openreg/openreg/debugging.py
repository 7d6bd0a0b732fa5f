# SPDX-License-Identifier: BSD-3-Clause
"""Settings for those who look for an error: waits, launches and where they come from.

All of them are for the process, in all threads, and may be changed at any time.
"""

from typing import Literal, get_args

from torch_openreg import _C

SyncDebugMode = Literal["default", "warn", "error"]

#: In the order of SyncDebugMode in runtime/diagnostics/implicit_wait.h, and of torch.cuda's modes.
_MODES: tuple[SyncDebugMode, ...] = get_args(SyncDebugMode)


def set_sync_debug_mode(debug_mode: SyncDebugMode | int) -> None:
    """Say what happens when an operator makes the host wait for the device without being asked to.

    That is: reading a number (``item``, ``tolist``, ``if tensor:``), copies to pageable host memory
    and large ones from it, and what runs on the host because the device has no kernel for it
    (``nonzero``, an index of bools). Waits that the program asks for (``synchronize``) are none.

    Args:
        debug_mode: ``"default"`` or 0: nothing. ``"warn"`` or 1: a UserWarning that names the
            operator. ``"error"`` or 2: a RuntimeError instead of the wait; the operator does
            nothing.

    Raises:
        ValueError: for anything else.
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
    """Say whether each launch waits for its kernel, so that its error is raised at the call.

    ``OPENREG_LAUNCH_BLOCKING=1`` has a process start with it.
    """
    _C.set_launch_blocking(on)


def get_launch_blocking() -> bool:
    """Return whether each launch waits for its kernel."""
    return _C.launch_blocking()


def set_launch_sites(on: bool) -> None:
    """Say whether launches keep the Python stack they come from, for the error of their kernel.

    It costs about a microsecond for each launch, and nothing waits.
    ``OPENREG_LAUNCH_SITES=1`` has a process start with it.
    """
    _C.set_launch_sites(on)


def get_launch_sites() -> bool:
    """Return whether launches keep the Python stack they come from."""
    return _C.launch_sites()
