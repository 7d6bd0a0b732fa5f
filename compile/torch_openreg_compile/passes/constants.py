# SPDX-License-Identifier: BSD-3-Clause
"""Numbers in a graph."""

import math

from typing_extensions import TypeIs


def is_number(value: object) -> TypeIs[int | float]:
    """Tell whether an argument is a number that is known now."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_near(value: object, constant: float, digits: int) -> bool:
    """Tell whether a number is the constant, of which so many digits have to be right."""
    return is_number(value) and math.isclose(value, constant, rel_tol=10.0**-digits)
