# SPDX-License-Identifier: BSD-3-Clause
"""A placeholder at ``torch.openreg`` for a backend that could not be loaded; it raises the cause.

The placeholder is not registered with torch, so there is no device. torch rejects
``torch.device("openreg")`` like any unknown name. Imports of ``torch.openreg`` and
``torch_openreg`` raise the cause too. If ``torch_openreg`` is not installed, its import raises
Python's own error, and ``importlib.util.find_spec`` returns None.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import NoReturn

from torch_openreg_autoload.name import DEVICE_TYPE, MODULE, PACKAGE

__all__ = ["DeviceUnavailableError", "install", "is_installed"]


class DeviceUnavailableError(RuntimeError, AttributeError):
    """Raised if a program uses the device but it could not be loaded; ``__cause__`` is the reason.

    This is also an AttributeError, because tools such as ``inspect`` and ``pickle`` look up names
    in all modules. They treat this error as a missing name.
    """


class _StandIn(ModuleType):
    """The placeholder module. Access to any attribute raises the cause."""

    def __init__(self, explanation: str, cause: BaseException) -> None:
        super().__init__(MODULE, explanation)
        self.__explanation = explanation
        self.__cause = cause

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python and its tools look up these names in every module
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        raise DeviceUnavailableError(self.__explanation) from self.__cause


class _FailingFinder(MetaPathFinder, Loader):
    """A finder for the modules that cannot be imported. Importing them raises the cause."""

    def __init__(self, explanation: str, cause: BaseException) -> None:
        self._explanation = explanation
        self._cause = cause

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == MODULE or (fullname == PACKAGE and PathFinder.find_spec(fullname)):
            return ModuleSpec(fullname, self)
        return None

    def exec_module(self, module: ModuleType) -> NoReturn:
        raise ImportError(self._explanation, name=module.__name__) from self._cause


def is_installed() -> bool:
    """Return whether ``install`` has installed the placeholder."""
    return isinstance(getattr(_torch(), DEVICE_TYPE, None), _StandIn)


def install(explanation: str, cause: BaseException) -> None:
    """Make every later use of the device raise ``explanation``, caused by ``cause``.

    Args:
        explanation: what is wrong and what to do.
        cause: the exception from importing the backend.
    """
    setattr(_torch(), DEVICE_TYPE, _StandIn(explanation, cause))
    # Remove the modules that a failed import left in sys.modules. Otherwise Python would find them
    # before it asks the failing finder.
    for name in (MODULE, PACKAGE):
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _FailingFinder(explanation, cause))


def _torch() -> ModuleType:
    """Return torch, whose import is still in progress."""
    return importlib.import_module("torch")
