# SPDX-License-Identifier: BSD-3-Clause
"""torch's databases that the sweep covers, and the checks for each."""

import functools
import warnings
from collections.abc import Callable, Iterable

import torch
from torch_device_conformance.comparison.comparison import Entry
from torch_device_conformance.database.modules import modules
from torch_device_conformance.database.operators import Operator, operators
from torch_device_conformance.database.optimizers import optimizers
from torch_device_conformance.mode.autocast import AutocastBfloat16, AutocastFloat16
from torch_device_conformance.mode.compiled import Compiled, Traced
from torch_device_conformance.mode.derivatives import ForwardDerivative, SecondDerivative
from torch_device_conformance.mode.errors import Errors
from torch_device_conformance.mode.inputs import Conjugates, Dtypes, Layouts, Sizes
from torch_device_conformance.mode.mixed_devices import MixedDevices
from torch_device_conformance.mode.modes import DTYPES as DTYPES
from torch_device_conformance.mode.writes import InPlace, Out

from tests.sweep.aliases import Aliases
from tests.sweep.evaluation import evaluate
from tests.sweep.foreach import Foreach, ForeachInPlace, foreach_operators, fused_optimizers
from tests.sweep.host_memory import HostMemory
from tests.sweep.outcome import Case, Outcome
from tests.sweep.refusals import refusals
from tests.sweep.transforms import Batches, Fakes
from tests.sweep.undefined import Optional, Undefined
from tests.sweep.versions import Versions

OPERATOR_CHECKS: dict[str, type[Operator]] = {
    "results": Operator,
    "aliases": Aliases,
    "aot_eager": Traced,
    "autocast_bfloat16": AutocastBfloat16,
    "autocast_float16": AutocastFloat16,
    "compiled": Compiled,
    "conjugates": Conjugates,
    "double_backward": SecondDerivative,
    "dtypes": Dtypes,
    "errors": Errors,
    "forward_ad": ForwardDerivative,
    "host_memory": HostMemory,
    "inplace": InPlace,
    "layouts": Layouts,
    "meta": Fakes,
    "mixed_devices": MixedDevices,
    "optional": Optional,
    "out": Out,
    "sizes": Sizes,
    "undefined": Undefined,
    "versions": Versions,
    "vmap": Batches,
}

# Entries by database and check.
DATABASES: dict[str, dict[str, Callable[[], Iterable[Entry]]]] = {
    "op": {check: functools.partial(operators, kind) for check, kind in OPERATOR_CHECKS.items()},
    "foreach": {
        "results": functools.partial(foreach_operators, Foreach),
        "inplace": functools.partial(foreach_operators, ForeachInPlace),
    },
    "fused": {"results": fused_optimizers},
    "module": {"results": modules},
    "optim": {"results": optimizers},
    "refusal": {"errors": refusals},
}

CHECKS = tuple(OPERATOR_CHECKS)


@functools.cache
def entries(database: str, check: str) -> dict[str, Entry]:
    """The entries of a database by name, as instances of a check."""
    return {entry.name: entry for entry in DATABASES[database][check]()}


def cases(databases: Iterable[str], checks: Iterable[str], dtypes: Iterable[str]) -> list[Case]:
    """The cases to compare, always in the same order."""
    wanted = set(checks)
    return [
        Case(database, check, dtype, name)
        for database in databases
        for check in DATABASES[database]
        if check in wanted
        for dtype in dtypes
        for name, entry in entries(database, check).items()
        if entry.supports(getattr(torch, dtype))
    ]


def prepare(device: str, threads: int) -> Callable[[Case], Outcome]:
    """Returns the function that evaluates a case; runs in a worker."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)

    def evaluate_case(case: Case) -> Outcome:
        entry = entries(case.database, case.check)[case.name]
        return evaluate(case, entry, torch.device(device))

    return evaluate_case
