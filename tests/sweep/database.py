# SPDX-License-Identifier: BSD-3-Clause
"""The databases of torch that can be swept."""

import warnings
from collections.abc import Callable

import torch

from tests.sweep.comparison import Entry, evaluate
from tests.sweep.modules import modules
from tests.sweep.operators import operators
from tests.sweep.optimizers import optimizers
from tests.sweep.outcome import Outcome

DATABASES: dict[str, Callable[[], dict[str, Entry]]] = {
    "op": operators,
    "module": modules,
    "optim": optimizers,
}


def prepare(database: str, device: str, dtype: str, threads: int) -> Callable[[str], Outcome]:
    """Makes the function that evaluates an entry by its name; runs in a worker."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    known = DATABASES[database]()
    return lambda name: evaluate(known[name], torch.device(device), getattr(torch, dtype))
