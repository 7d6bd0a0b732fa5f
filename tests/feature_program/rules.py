# SPDX-License-Identifier: BSD-3-Clause
"""Rules: the functions that are steps of random programs, and what they choose from."""

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st

from tests.feature_program.model import DEVICES, STREAMS
from tests.feature_program.operators import Operator

Step = tuple[str, dict[str, Any]]  # the name of a rule, and its arguments

# What rules choose from. Numbers select one of those that exist, modulo how many there are.
some = st.integers(0, 7)
devices = st.integers(0, DEVICES - 1)
streams = st.integers(0, STREAMS - 1)
flags = st.booleans()


def rule(**arguments: st.SearchStrategy[Any]) -> Callable[[Operator], Operator]:
    """Have programs call the function with the program and such arguments."""

    def mark(function: Operator) -> Operator:
        function.arguments = st.fixed_dictionaries(arguments)
        return function

    return mark
