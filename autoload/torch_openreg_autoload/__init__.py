# SPDX-License-Identifier: BSD-3-Clause
"""What ``import torch`` finds of torch_openreg: the entry point of group ``torch.backends``.

A package of its own, which needs neither torch nor the backend: it says what is wrong where the
backend is absent or broken. ``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` keeps torch from calling it.
"""

import importlib
import sys
import warnings

__all__ = ["load"]

_PACKAGE = "torch_openreg"


def load() -> None:
    """Import the backend; where that fails, warn with the cause and what to do about it.

    Never raises an Exception: a program that does not use the device goes on. Called by torch at
    the end of its own import. When it is torch_openreg that imports torch, there is nothing to do:
    its import goes on when torch's is done.
    """
    try:
        if importlib.import_module(_PACKAGE).__file__ is None:
            # Not the backend: any folder of that name in sys.path can be imported.
            del sys.modules[_PACKAGE]
            raise ModuleNotFoundError(name=_PACKAGE)
    except Exception as error:  # whatever it is, torch goes on without the device
        try:
            warnings.warn(_explain(error), RuntimeWarning, stacklevel=2)
        except RuntimeWarning as warning:
            # Warnings are errors in this process (python -W error), and no error may stop torch.
            print(warning, file=sys.stderr)


def _explain(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == _PACKAGE:
        cause = f"the package {_PACKAGE} is not installed, but its autoload package is"
    else:
        cause = f"{type(error).__name__}: {error}"
    return (
        f"device openreg is not available: {cause}. To repair: pip install --force-reinstall "
        f"{_PACKAGE}; `import {_PACKAGE}` shows the whole error. To go without it: uninstall "
        f"{_PACKAGE}, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0"
    )
