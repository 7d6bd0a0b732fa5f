# SPDX-License-Identifier: BSD-3-Clause
"""The rules by which error texts are compared, one set per process.

A vendor's kernels have their own error texts, hence by default only the presence of an error is
compared. The modes of a backend that promises torch's texts set other rules with `use`.
"""

import re
from dataclasses import dataclass

NEVER = re.compile(r"(?!)")


@dataclass(frozen=True)
class Wording:
    """The rules for comparing an error of the device with the error of the CPU.

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
