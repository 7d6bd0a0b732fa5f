# SPDX-License-Identifier: BSD-3-Clause
"""Rules, which are the functions that random programs call, and strategies for arguments."""

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st

from tests.feature_program.model import DEVICES, STREAMS
from tests.feature_program.operators import Operator

Step = tuple[str, dict[str, Any]]  # the name of a rule, and its arguments

# Strategies for arguments. A number selects an existing object, modulo the number of objects.
some = st.integers(0, 7)
devices = st.integers(0, DEVICES - 1)
streams = st.integers(0, STREAMS - 1)
flags = st.booleans()


def rule(**arguments: st.SearchStrategy[Any]) -> Callable[[Operator], Operator]:
    """Marks a function as a rule. A program passes itself and the generated arguments."""

    def mark(function: Operator) -> Operator:
        function.arguments = st.fixed_dictionaries(arguments)
        return function

    return mark
