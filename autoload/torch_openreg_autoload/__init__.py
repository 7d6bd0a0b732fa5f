# SPDX-License-Identifier: BSD-3-Clause
"""The entry point of group ``torch.backends`` through which ``import torch`` loads torch_openreg.

This is a separate package that requires neither torch nor the backend, so that it can report a
missing or broken backend. With ``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` torch does not call it.
"""

import importlib
import importlib.util
import sys
import warnings

from torch_openreg_autoload import stand_in
from torch_openreg_autoload.installation import find_doubts
from torch_openreg_autoload.name import DEVICE_TYPE, PACKAGE

__all__ = ["load"]

# Importing this module registers the device. Importing the package does nothing more.
_REGISTRATION = f"{PACKAGE}.registration"


def load() -> None:
    """Import the backend. If this fails, warn with the cause and the remedy.

    The function raises no exception except KeyboardInterrupt (Ctrl-C), so that a program that does
    not use the device can continue. A later use of ``torch.openreg`` or ``import torch_openreg``
    raises the cause. torch calls this function at the end of its own import, once for each
    distribution that declares the entry point.
    """
    if stand_in.is_installed():
        return
    # If the program itself imports torch_openreg, that import raises any error, so this function
    # does not report it. Even then, this function must register the device: the program's import
    # may be on another thread that waits until this thread has imported torch.
    imported = PACKAGE in sys.modules
    doubts: list[str] = []
    try:
        if not imported:
            doubts = find_doubts(PACKAGE, _find_package())
        if doubts:
            from torch_openreg_autoload.trial import require_return

            require_return(_REGISTRATION)
        importlib.import_module(_REGISTRATION)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # no error, not even SystemExit, may stop torch
        if not imported:
            explanation = _explain(error, doubts)
            stand_in.install(explanation, error)
            _warn(explanation)


def _find_package() -> str:
    """Return the path of the package's ``__init__.py``, or raise if there is no package."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None:
        raise ModuleNotFoundError(f"No module named '{PACKAGE}'", name=PACKAGE)
    if spec.origin is None:
        # Python treats any folder with this name in sys.path as a namespace package.
        folders = ", ".join(spec.submodule_search_locations or [])
        raise ModuleNotFoundError(
            f"'{PACKAGE}' is not a package but a folder without __init__.py: {folders}",
            name=PACKAGE,
        )
    return spec.origin


def _warn(explanation: str) -> None:
    try:
        # Attribute the warning to the line of torch that called the entry point.
        warnings.warn(explanation, RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        # In this process warnings are errors (python -W error), but no error may stop torch.
        print(explanation, file=sys.stderr)


def _explain(error: BaseException, doubts: list[str]) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == PACKAGE:
        cause = f"the package {PACKAGE} is not installed, but its autoload package is ({error})"
    else:
        cause = f"{type(error).__name__}: {error}"
    if doubts:
        cause += f" [{'; '.join(doubts)}]"
    repair = f"To repair it, run pip install --force-reinstall {PACKAGE} and restart Python. "
    # The message of the package's IncompatibleError says what to do. Files that changed since their
    # installation need the repair in any case.
    if getattr(error, "advises", False) and not doubts:
        repair = ""
    return (
        f"device {DEVICE_TYPE} is not available: {cause}. {repair}To work without it, uninstall "
        f"{PACKAGE} or set TORCH_DEVICE_BACKEND_AUTOLOAD=0"
    )
