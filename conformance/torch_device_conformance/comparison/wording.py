# SPDX-License-Identifier: BSD-3-Clause
"""The rules for comparing error texts. Each process has a single set of rules.

A vendor's kernels have their own error texts. By default, the kit therefore checks only whether an
error is raised. A backend that uses torch's error texts can set stricter rules in its modes with
`use`.
"""

import re
from dataclasses import dataclass

NEVER = re.compile(r"(?!)")


@dataclass(frozen=True)
class Wording:
    """The rules for comparing the device's error with the CPU's error.

    Attributes:
        compared: whether the type and the first line of an error must be the same as on the CPU.
        device: matches device names. Texts that name a device are not compared.
        addition: matches the text that the device adds to an error detected by a kernel.
        late: matches the text that the device adds to an error that is raised after the call.
    """

    compared: bool = False
    device: re.Pattern[str] = re.compile("cpu|privateuse", re.IGNORECASE)
    addition: re.Pattern[str] = NEVER
    late: re.Pattern[str] = NEVER


_wording = Wording()


def use(wording: Wording) -> None:
    """Sets the rules of this process."""
    global _wording
    _wording = wording


def wording() -> Wording:
    """Returns the rules of this process."""
    return _wording
