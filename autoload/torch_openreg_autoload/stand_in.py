# SPDX-License-Identifier: BSD-3-Clause
"""What stands at ``torch.openreg`` where the backend could not be loaded: it raises the cause.

Nothing of torch knows it: no device is registered, and ``torch.device("openreg")`` is refused as
any unknown name. Imports of ``torch.openreg`` and ``torch_openreg`` raise the cause too; but where
there is no ``torch_openreg`` at all, Python says so by itself, and ``importlib.util.find_spec``.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import NoReturn

from torch_openreg_autoload.name import DEVICE_TYPE, MODULE

__all__ = ["DeviceUnavailableError", "install", "is_installed"]

_PACKAGE = "torch_openreg"


class DeviceUnavailableError(RuntimeError, AttributeError):
    """The device was asked for and could not be loaded; ``__cause__`` is why.

    An AttributeError too, because programs go through modules and ask them for names
    (``inspect``, ``pickle``): those take it for a name that is not there.
    """


class _StandIn(ModuleType):
    """The module: it has no name but its own."""

    def __init__(self, explanation: str, cause: BaseException) -> None:
        super().__init__(MODULE, explanation)
        self.__explanation = explanation
        self.__cause = cause

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # asked of any module, by Python and its tools
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        raise DeviceUnavailableError(self.__explanation) from self.__cause


class _Refusal(MetaPathFinder, Loader):
    """Finds the modules that cannot be imported any more, and raises why."""

    def __init__(self, explanation: str, cause: BaseException) -> None:
        self._explanation = explanation
        self._cause = cause

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == MODULE or (fullname == _PACKAGE and PathFinder.find_spec(fullname)):
            return ModuleSpec(fullname, self)
        return None

    def exec_module(self, module: ModuleType) -> NoReturn:
        raise ImportError(self._explanation, name=module.__name__) from self._cause


def is_installed() -> bool:
    """Tell whether an earlier call of ``install`` has taken the place."""
    return isinstance(getattr(_torch(), DEVICE_TYPE, None), _StandIn)


def install(explanation: str, cause: BaseException) -> None:
    """Let whoever asks for the device from now on get ``explanation``, caused by ``cause``.

    Args:
        explanation: what is wrong and what to do.
        cause: what the import of the backend raised.
    """
    setattr(_torch(), DEVICE_TYPE, _StandIn(explanation, cause))
    # What came to be of a failed import would be found before the refusal.
    for name in (MODULE, _PACKAGE):
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Refusal(explanation, cause))


def _torch() -> ModuleType:
    """Return torch, which is being imported."""
    return importlib.import_module("torch")
