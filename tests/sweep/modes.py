# SPDX-License-Identifier: BSD-3-Clause
"""The sweep's modes, which the conformance kit runs in addition to its own (--modes).

They test properties that openreg guarantees but that other backends need not have. For example,
errors have the same text as on the CPU.
"""

import functools
import re

from torch_device_conformance.comparison.wording import Wording
from torch_device_conformance.database.operators import Operator, operators
from torch_device_conformance.mode.derivatives import SecondDerivative
from torch_device_conformance.mode.inputs import Conjugates, Dtypes, Sizes
from torch_device_conformance.mode.modes import Suites

from tests.sweep.aliases import Aliases
from tests.sweep.foreach import Foreach, ForeachInPlace, foreach_operators, fused_optimizers
from tests.sweep.host_memory import HostMemory
from tests.sweep.refusals import refusals
from tests.sweep.transforms import Batches, Fakes
from tests.sweep.undefined import Optional, Undefined
from tests.sweep.versions import Versions

OPERATOR_MODES: dict[str, type[Operator]] = {
    "aliases": Aliases,
    "conjugates": Conjugates,
    "double_backward": SecondDerivative,
    "dtypes": Dtypes,
    "host_memory": HostMemory,
    "meta": Fakes,
    "optional": Optional,
    "sizes": Sizes,
    "undefined": Undefined,
    "versions": Versions,
    "vmap": Batches,
}

SUITES: Suites = {
    "op": {mode: functools.partial(operators, kind) for mode, kind in OPERATOR_MODES.items()},
    "foreach": {
        "new": functools.partial(foreach_operators, Foreach),
        "inplace": functools.partial(foreach_operators, ForeachInPlace),
    },
    "fused": {"inplace": fused_optimizers},
    "refusal": {"errors": refusals},
}

WORDING = Wording(
    compared=True,
    device=re.compile("cpu|openreg|privateuse", re.IGNORECASE),
    # The device appends this text to the message of a kernel error.
    addition=re.compile(r" \(openreg: kernel .*", re.DOTALL),
    late=re.compile("Kernels run later than they are launched"),
)
