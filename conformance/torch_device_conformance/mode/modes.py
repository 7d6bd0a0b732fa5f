# SPDX-License-Identifier: BSD-3-Clause
"""All modes by name. A mode is a way to call the entries of torch's databases."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from torch_device_conformance.comparison.entry import Entry
from torch_device_conformance.comparison.wording import use
from torch_device_conformance.database.modules import modules
from torch_device_conformance.database.operators import Operator, operators
from torch_device_conformance.database.optimizers import optimizers
from torch_device_conformance.mode.autocast import AutocastBfloat16, AutocastFloat16
from torch_device_conformance.mode.compiled import Compiled, Traced
from torch_device_conformance.mode.derivatives import ForwardDerivative
from torch_device_conformance.mode.eager import AcceleratorDtypes, Backward, Forward
from torch_device_conformance.mode.errors import Errors
from torch_device_conformance.mode.inputs import Layouts
from torch_device_conformance.mode.mixed_devices import MixedDevices
from torch_device_conformance.mode.streams import OtherStream
from torch_device_conformance.mode.writes import InPlace, Out
from torch_device_conformance.subject.subject import import_module_or_file

# Maps suites and modes to the function that creates the entries.
Suites: TypeAlias = Mapping[str, Mapping[str, Callable[[], Iterable[Entry]]]]

# The mode for dtypes that OpInfo lists only for CUDA.
ACCELERATOR_DTYPES = "accelerator_dtypes"

OPERATOR_MODES: Mapping[str, type[Operator]] = {
    "eager": Forward,
    "backward": Backward,
    "out": Out,
    "inplace": InPlace,
    "noncontiguous": Layouts,
    "forward_ad": ForwardDerivative,
    "autocast_bfloat16": AutocastBfloat16,
    "autocast_float16": AutocastFloat16,
    "other_stream": OtherStream,
    "errors": Errors,
    "mixed_devices": MixedDevices,
    ACCELERATOR_DTYPES: AcceleratorDtypes,
    "compiled_aot": Traced,
    "compiled_inductor": Compiled,
}

# The modes in this process. `load` adds modes to them.
SUITES: dict[str, dict[str, Callable[[], Iterable[Entry]]]] = {
    "op": {mode: functools.partial(operators, kind) for mode, kind in OPERATOR_MODES.items()},
    "module": {"train": modules},
    "optim": {"steps": optimizers},
}

DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "complex64",
    "complex128",
    "complex32",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "uint16",
    "uint32",
    "uint64",
)


class BadModes(ValueError):
    """Raised if a module that adds modes cannot be used. The message contains the reason."""


def load(names: Iterable[str]) -> None:
    """Adds the modes that modules define to this process. Repeated calls have no effect.

    A module defines SUITES, of type `Suites`, and optionally WORDING, a `Wording`. It must not load
    the device, because the process that plans a run also imports the module.

    Args:
        names: modules, or paths of .py files.

    Raises:
        BadModes: a module cannot be imported, has no SUITES, or defines an existing mode.
    """
    for name in names:
        try:
            module = import_module_or_file(name)
            suites: Suites = module.SUITES
        except Exception as error:
            raise BadModes(f"--modes {name} failed with {type(error).__name__}: {error}") from error
        for suite, modes in suites.items():
            known = SUITES.setdefault(suite, {})
            for mode, make in modes.items():
                if known.setdefault(mode, make) is not make:
                    raise BadModes(f"--modes {name}: the mode {suite}/{mode} already exists")
        if hasattr(module, "WORDING"):
            use(module.WORDING)


@functools.cache
def entries(suite: str, mode: str) -> Mapping[str, Entry]:
    """Returns a suite's entries in a mode, by name."""
    return {entry.name: entry for entry in SUITES[suite][mode]()}
