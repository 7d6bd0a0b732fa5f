# SPDX-License-Identifier: BSD-3-Clause
"""Registers the device with torch's compiler when a program imports the compiler, not before.

The registries of torch.compile are in modules that take a second to import. torch reads the
registries without first calling a backend, and it has no entry point for devices. Therefore a
finder in ``sys.meta_path`` registers the device when the import of a module with a registry ends.
No part of torch is replaced.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import torch

from torch_openreg_compile.name import DEVICE_TYPE

_Action = Callable[[], None]


class _LoaderThenAction(Loader):
    """Runs a module's original loader, then an action."""

    def __init__(self, loader: Loader, action: _Action) -> None:
        self._loader = loader
        self._action = action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Restore the original loader, because inspect uses it to read the module's source.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._action()


class _AfterImport(MetaPathFinder):
    """Finds one module through the other finders, and adds an action to its import."""

    def __init__(self, name: str, action: _Action) -> None:
        self._name = name
        self._action = action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _LoaderThenAction(spec.loader, self._run)
                return spec
        return None

    def _run(self) -> None:
        sys.meta_path.remove(self)
        self._action()


def after_import(name: str, action: _Action) -> None:
    """Call ``action`` when module ``name`` is imported, or now if it is already imported.

    Args:
        name: the module's full name.
        action: runs once, in the thread that imports the module, before other threads can use
            the module; its exceptions make the import fail.
    """
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _AfterImport(name, action))


def _register_device_interface() -> None:
    importlib.import_module(".device_interface", __package__).register()


def _register_random_numbers() -> None:
    # Compilers based on AOTAutograd (backend "aot_eager") use this registration. It lets them
    # replay the random numbers of a checkpointed region through torch.openreg._get_generator.
    # Without it they reject the device.
    utils = importlib.import_module("torch._functorch._aot_autograd.utils")
    utils.register_graphsafe_rng_device_type(DEVICE_TYPE)


def _load_compiled_operators() -> None:
    # torch._inductor.package.package loads packages that were compiled ahead of time. It does not
    # import the rest of the compiler.
    device_module = torch.get_device_module(DEVICE_TYPE)
    if device_module._supports_compiled_operators():
        device_module._load_compiled_operators()


def _register_generated_kernels() -> None:
    importlib.import_module(".inductor", __package__).register()


def register() -> None:
    """Register the device with torch's compiler, now or when the compiler is imported.

    Must be called only once, after the device module ``torch.openreg`` was registered.
    """
    after_import("torch._dynamo.device_interface", _register_device_interface)
    after_import("torch._functorch._aot_autograd.utils", _register_random_numbers)
    after_import("torch._inductor.compile_fx", _register_generated_kernels)
    after_import("torch._inductor.package.package", _load_compiled_operators)
