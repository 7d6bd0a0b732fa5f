# SPDX-License-Identifier: BSD-3-Clause
"""Tests for constant numbers in a graph."""

import math

from typing_extensions import TypeIs


def is_number(value: object) -> TypeIs[int | float]:
    """Tell whether an argument is a constant number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_near(value: object, constant: float, digits: int) -> bool:
    """Tell whether a number equals a constant to the given number of digits."""
    return is_number(value) and math.isclose(value, constant, rel_tol=10.0**-digits)
