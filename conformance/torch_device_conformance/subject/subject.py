# SPDX-License-Identifier: BSD-3-Clause
"""The device under test: its name, and the way to register it with torch.

A Subject can be pickled. Its `load` makes the device usable in the current process. Like torch,
`load` imports the entry points of the group torch.backends, unless `autoload` is False.
"""

import importlib
import importlib.util
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch_device_conformance.comparison.seeding import seed_also
from torch_device_conformance.subject import preloaded


class NoSubject(Exception):
    """Raised if the device cannot be used in this process. The message contains the reason."""


@dataclass(frozen=True)
class Subject:
    """A device and how to load it.

    Attributes:
        device: name of the device, optionally with an index: "npu", "npu:1", "cpu".
        imports: modules, or paths of .py files, that register the device on import.
        autoload: whether to load installed backends through their entry points.
        fallback_counter: "MODULE:FUNCTION" of a function that returns the number of fallbacks by
            operator, or empty if the backend has no such function.
        environment: variables to set before the backend is loaded.
    """

    device: str
    imports: tuple[str, ...] = ()
    autoload: bool = True
    fallback_counter: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def is_cpu(self) -> bool:
        """Whether the device under test is the CPU.

        If so, the kit compares the CPU with itself. This is a test of the kit.
        """
        return self.device.partition(":")[0] == "cpu"

    def load(self) -> torch.device:
        """Makes the device usable in this process.

        Raises:
            NoSubject: torch does not know the device, or it is not available.
        """
        os.environ.update(self.environment)
        if self.autoload and not self.is_cpu:
            load_entry_points()
        for name in self.imports:
            import_backend(name)
        try:
            device = torch.device(self.device)
        except RuntimeError as error:
            raise NoSubject(self._unknown(str(error).splitlines()[0])) from None
        seed_also(device)
        if device.type == "cpu":
            return device
        module = getattr(torch, device.type, None)
        if module is None:
            raise NoSubject(self._unknown(f"torch.{device.type} does not exist"))
        available = getattr(module, "is_available", None)
        if available is not None and not available():
            raise NoSubject(
                f"cannot use device {self.device!r}, because torch.{device.type}.is_available() is "
                "false"
            )
        count = module.device_count() if hasattr(module, "device_count") else 1
        if (device.index or 0) >= count:
            raise NoSubject(
                f"no device {self.device!r}: torch.{device.type}.device_count() is {count}"
            )
        return device

    def command(self) -> str:
        """Returns the command-line flags that select this subject."""
        parts = [f"--device {self.device}", *(f"--import {name}" for name in self.imports)]
        if not self.autoload:
            parts.append("--no-autoload")
        if self.fallback_counter:
            parts.append(f"--fallback-counter {self.fallback_counter}")
        return " ".join(parts)

    def _unknown(self, reason: str) -> str:
        known = torch._C._get_privateuse1_backend_name()
        found = f"; the out-of-tree device here is {known!r}" if known != "privateuseone" else ""
        return f"no device {self.device!r}: {reason}{found}. Pass the backend's module to --import"


def load_entry_points() -> None:
    """Loads the installed backends, unless `import torch` has already loaded them."""
    if preloaded.pending:
        preloaded.pending = False
        torch._import_device_backends()


def import_backend(name: str) -> ModuleType:
    """Imports a backend's module, given by name or by the path of its file.

    Raises:
        NoSubject: the module does not exist, or its import fails.
    """
    try:
        return import_module_or_file(name)
    except Exception as error:
        raise NoSubject(f"--import {name} failed with {type(error).__name__}: {error}") from error


def import_module_or_file(name: str) -> ModuleType:
    """Imports a module once, given by name or by the path of its file.

    Raises:
        ImportError: the module does not exist.
    """
    if not name.endswith(".py"):
        return importlib.import_module(name)
    path = Path(name).absolute()
    if path.stem in sys.modules:
        return sys.modules[path.stem]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise ImportError(f"file {path} does not exist")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def object_at(place: str) -> Any:
    """Returns the object that the text "MODULE:NAME" names.

    Raises:
        NoSubject: the object does not exist.
    """
    module, _, name = place.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found
    except (ImportError, AttributeError) as error:
        raise NoSubject(f"cannot find {place!r}, because {error}") from None
