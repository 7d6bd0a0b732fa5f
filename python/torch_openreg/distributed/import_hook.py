# SPDX-License-Identifier: BSD-3-Clause
"""Calls a function when a module is imported, if the module is too slow to import in advance.

The usual finder and loader still find and load the module. The module's ``__loader__`` is its
original loader.
"""

import importlib
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["call_after_import"]

_Function = Callable[[ModuleType], None]


def call_after_import(name: str, function: _Function) -> None:
    """Call ``function(module)`` each time module ``name`` has been executed.

    If the module has already been imported, the function is called immediately. Otherwise the
    thread that imports the module calls the function. Other threads cannot use the module until the
    call returns. The function must not import another module that torch may be importing in another
    thread, because Python would reject one of the two imports as a deadlock.

    Args:
        name: the module's full name.
        function: may be called more than once (``importlib.reload``). Its exceptions propagate from
            the import.
    """
    sys.meta_path.insert(0, _Finder(name, function))
    if name in sys.modules:
        function(importlib.import_module(name))  # waits if another thread is importing the module


class _Finder(MetaPathFinder):
    """Uses the other finders to find the module, and wraps the loader that they return."""

    def __init__(self, name: str, function: _Function) -> None:
        self._name = name
        self._function = function
        self._search = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # Another finder that works in the same way may call this one. Do not search again in this
        # case.
        if fullname != self._name or getattr(self._search, "runs", False):
            return None
        self._search.runs = True
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = find(fullname, path, target) if find else None
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _Loader(spec.loader, self._function)
                    return spec
        finally:
            self._search.runs = False
        return None


class _Loader(Loader):
    """Runs a module with its original loader, restores that loader, then calls a function."""

    def __init__(self, loader: Any, function: _Function) -> None:
        self._loader = loader
        self._function = function

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._function(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # for get_source() and other optional methods
