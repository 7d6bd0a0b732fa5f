# SPDX-License-Identifier: BSD-3-Clause
"""Recognizes constant numbers among the arguments of a graph's nodes."""

import math

from typing_extensions import TypeIs


def is_number(value: object) -> TypeIs[int | float]:
    """Return whether an argument is a constant number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_near(value: object, constant: float, digits: int) -> bool:
    """Return whether a number equals a constant to the given number of digits."""
    return is_number(value) and math.isclose(value, constant, rel_tol=10.0**-digits)
