# SPDX-License-Identifier: BSD-3-Clause
"""How far the words of errors count in a comparison; one setting for the process.

A vendor's kernels say in their own words what is wrong, so that by default only the presence of
an error is compared. A backend that promises torch's own words says so with `use`.
"""

import re
from dataclasses import dataclass

NEVER = re.compile(r"(?!)")


@dataclass(frozen=True)
class Wording:
    """What is compared of an error.

    Attributes:
        compared: whether type and first line must be those of the CPU.
        device: finds names of devices. Words that name a device are not compared.
        addition: finds what the device adds to an error that a kernel found.
        late: finds what the device says in an error that came after the call.
    """

    compared: bool = False
    device: re.Pattern[str] = re.compile("cpu|privateuse", re.IGNORECASE)
    addition: re.Pattern[str] = NEVER
    late: re.Pattern[str] = NEVER


_wording = Wording()


def use(wording: Wording) -> None:
    """Sets the wording of this process."""
    global _wording
    _wording = wording


def wording() -> Wording:
    """Returns the wording of this process."""
    return _wording
