# SPDX-License-Identifier: BSD-3-Clause
"""Calls a function when a module is imported: for modules that are too slow to import in advance.

The module is found and loaded by those who would do it without the hook, and keeps its own loader.
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
    """Call ``function(module)`` each time that the module ``name`` has been executed.

    If it is imported already, the call happens now. Otherwise it happens in the thread that imports
    the module, which other threads cannot use before the call has returned. The function must not
    import another module that torch may be importing in another thread: Python would refuse one of
    the two imports as a deadlock.

    Args:
        name: of the module, in full.
        function: may be called more than once (``importlib.reload``). What it raises is raised by
            the import.
    """
    sys.meta_path.insert(0, _Finder(name, function))
    if name in sys.modules:
        function(importlib.import_module(name))  # waits for a thread that imports it


class _Finder(MetaPathFinder):
    """Asks the other finders, and has the function called by the loader that they give."""

    def __init__(self, name: str, function: _Function) -> None:
        self._name = name
        self._function = function
        self._search = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # A finder that does as this one may ask back.
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
    """Calls a function after another loader has executed the module, which is then that one's."""

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
        return getattr(self._loader, name)  # get_source() and the like
