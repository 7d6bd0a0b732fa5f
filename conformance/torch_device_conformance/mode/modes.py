# SPDX-License-Identifier: BSD-3-Clause
"""The modes by name. A mode is a way to call the entries of torch's databases."""

import functools
from collections.abc import Callable, Iterable, Mapping

from torch_device_conformance.comparison.comparison import Entry
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

# Modes by suite and name.
SUITES: Mapping[str, Mapping[str, Callable[[], Iterable[Entry]]]] = {
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


@functools.cache
def entries(suite: str, mode: str) -> Mapping[str, Entry]:
    """The entries of a suite in a mode, by name."""
    return {entry.name: entry for entry in SUITES[suite][mode]()}
