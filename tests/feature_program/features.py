# SPDX-License-Identifier: BSD-3-Clause
"""Collects the rules for the features in random programs, and runs a program.

A program is a list of steps. A step consists of the name of a function marked with ``rule``, and of
its arguments. To cover another feature, add a rule to a module in ``FEATURES``, or add a module.
hypothesis then generates steps from it.
"""

import functools
import inspect
import warnings
from types import ModuleType

import hypothesis.strategies as st

from tests.feature_program import (
    generators,
    graphs,
    memory,
    modes,
    pinned_memory,
    processes,
    sharing,
    streams,
    tensors,
)
from tests.feature_program.model import DEVICES
from tests.feature_program.operators import Operator
from tests.feature_program.program import Program
from tests.feature_program.rules import Step

#: The modules that define rules. hypothesis gets the rules in this order.
FEATURES = (tensors, streams, modes, memory, pinned_memory, generators, graphs, sharing)


def rules_of(*features: ModuleType) -> dict[str, Operator]:
    """Returns the functions in the modules that are marked with ``rule``, by name."""
    return {
        name: function
        for feature in features
        for name, function in vars(feature).items()
        if inspect.isfunction(function)
        and function.__module__ == feature.__name__
        and hasattr(function, "arguments")
    }


def steps_of(rules: dict[str, Operator]) -> dict[str, st.SearchStrategy[Step]]:
    """Maps each rule to the strategy for its steps."""
    return {name: st.tuples(st.just(name), function.arguments) for name, function in rules.items()}


def begin(program: Program) -> None:
    """Creates the first values. Steps that precede this one are the first to use the device."""
    for device in range(DEVICES):
        tensors.new(program, 8, "float32", device)
    pinned_memory.new_pinned(program, 8, "float32")


RULES = steps_of(rules_of(*FEATURES))
RULES_OF_PROCESSES = steps_of(rules_of(processes))  # separate, because these rules are slower

STEPS = {"begin": begin} | rules_of(*FEATURES, processes)


def run(steps: list[Step]) -> None:
    """Runs a program in this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Program().run(functools.partial(STEPS[name], **arguments) for name, arguments in steps)
