# SPDX-License-Identifier: BSD-3-Clause
"""How error texts are compared; one setting per process.

A vendor's kernels have their own error texts. Therefore only the presence of an error is compared
by default. A backend that promises torch's texts calls `use`.
"""

import re
from dataclasses import dataclass

NEVER = re.compile(r"(?!)")


@dataclass(frozen=True)
class Wording:
    """What is compared of an error.

    Attributes:
        compared: whether the type and the first line must be the same as on the CPU.
        device: matches names of devices. Texts that name a device are not compared.
        addition: matches the text that the device adds to an error found by a kernel.
        late: matches the text that the device adds to an error raised after the call.
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
