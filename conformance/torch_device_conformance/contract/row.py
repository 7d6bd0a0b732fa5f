# SPDX-License-Identifier: BSD-3-Clause
"""A row of the runtime contract: a requirement of torch for devices, and the check for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch_device_conformance.subject.delay import LONG, delay_kernel
from torch_device_conformance.subject.subject import Subject
from torch_device_conformance.verdict.verdict import (
    ACCEPTS_WRONGLY,
    LATE_ERROR,
    MISSING,
    RAISES_WRONGLY,
    WRONG,
    Case,
)


class Finding(Exception):
    """Raised by the check of a row if the subject does not meet the requirement.

    Attributes:
        verdict: the verdict of the row.
    """

    def __init__(self, verdict: str, message: str) -> None:
        super().__init__(message)
        self.verdict = verdict


def wrong(message: str) -> NoReturn:
    """Reports a wrong result."""
    raise Finding(WRONG, message)


def missing(message: str) -> NoReturn:
    """Reports that the subject does not implement something."""
    raise Finding(MISSING, message)


def require(condition: bool, message: str) -> None:
    """Reports a wrong result if the condition is false."""
    if not condition:
        wrong(message)


def require_equal(what: str, found: Any, wanted: Any) -> None:
    """Reports a wrong result if two values are not equal.

    Two tensors are equal if their dtypes, shapes and values are equal. Their devices may differ.
    """
    if isinstance(wanted, torch.Tensor) or isinstance(found, torch.Tensor):
        found, wanted = (torch.as_tensor(x).detach().cpu() for x in (found, wanted))
        equal = found.dtype == wanted.dtype and found.shape == wanted.shape
        equal = equal and bool(torch.equal(found, wanted))
        if not equal:
            wrong(f"{what}: got {_brief(found)}, expected {_brief(wanted)}")
    elif found != wanted:
        wrong(f"{what}: got {found!r}, expected {wanted!r}")


def _brief(x: torch.Tensor) -> str:
    values = x.flatten()[:4].tolist()
    return f"{str(x.dtype)[6:]}{list(x.shape)} {values}{'...' if x.numel() > 4 else ''}"


def require_error(what: str, call: Callable[[], Any], *kinds: type[BaseException]) -> Exception:
    """Makes a call that must raise an error. Returns the error.

    Args:
        what: description of the call, for messages.
        call: the call.
        kinds: the accepted types of the error; any type if none is given.

    Raises:
        Finding: the call raised no error, or an error of a different type.
    """
    try:
        call()
    except Exception as error:
        if kinds and not isinstance(error, kinds):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise Finding(
                RAISES_WRONGLY, f"{what}: expected {names}, but got {type(error).__name__}: {error}"
            ) from None
        return error
    raise Finding(ACCEPTS_WRONGLY, f"{what}: the call raised no error")


def late(message: str) -> NoReturn:
    """Reports an error that was raised after the call."""
    raise Finding(LATE_ERROR, message)


class Backend:
    """The subject as the rows use it: its device, and the functions that every device supports.

    Attributes:
        subject: the subject's description, for other processes that load the backend.
        device: the subject's device, with an index.
        type: the name of the device type.
    """

    def __init__(self, subject: Subject, device: torch.device) -> None:
        self.subject = subject
        # A CPU device has no index.
        indexed = device.index is not None or device.type == "cpu"
        self.device = device if indexed else torch.device(device.type, 0)
        self.type = device.type

    @property
    def module(self) -> Any:
        """The module ``torch.<device>``. Its absence is a finding."""
        found = getattr(torch, self.type, None)
        if found is None:
            missing(f"torch.{self.type} does not exist")
        return found

    def function(self, name: str) -> Callable[..., Any]:
        """Returns a function of the device's module. Its absence is a finding."""
        found = getattr(self.module, name, None)
        if not callable(found):
            missing(f"torch.{self.type}.{name} does not exist")
        result: Callable[..., Any] = found
        return result

    def count(self) -> int:
        """Returns the number of devices."""
        return 1 if self.type == "cpu" else int(torch.accelerator.device_count())

    def last(self) -> torch.device:
        """Returns the device with the highest index."""
        return self.device if self.type == "cpu" else torch.device(self.type, self.count() - 1)

    def synchronize(self) -> None:
        """Waits for all work on the device."""
        if self.type != "cpu":
            torch.accelerator.synchronize(self.device)

    def stream(self) -> torch.Stream:
        """Returns a new stream."""
        return torch.Stream(self.device)

    def current_stream(self) -> torch.Stream:
        """Returns the device's current stream."""
        return torch.accelerator.current_stream(self.device)

    def delay(self, duration: int = LONG) -> bool:
        """Keeps the current stream busy. Returns whether the backend has a delay kernel."""
        kernel = delay_kernel(self.device)
        if kernel is None:
            return False
        kernel(duration)
        return True

    def randn(self, *size: int, **options: Any) -> torch.Tensor:
        """Draws random numbers on the CPU and copies them to the device."""
        return torch.randn(*size, **options).to(self.device)


@dataclass(frozen=True)
class Row:
    """A requirement of the contract, with its check and its documentation.

    Attributes:
        area: the part of the contract, such as "streams".
        name: name of the row, unique in its area.
        check: raises `Finding` if the subject does not meet the requirement.
        requires: what torch or an accelerator-agnostic program requires.
        implement: the API to implement.
        without: the consequence for a program if the API is not implemented.
        shown_by: the file in torch_openreg that implements the API.
        required: whether torch itself depends on the API.
        seconds: time after which the row counts as hung.
    """

    area: str
    name: str
    check: Callable[[Backend], None]
    requires: str
    implement: str
    without: str
    shown_by: str
    required: bool = True
    seconds: float = 60.0

    @property
    def case(self) -> Case:
        """The case that identifies the row."""
        return Case("contract", self.area, "", self.name)


_rows: dict[Case, Row] = {}


def row(
    area: str,
    name: str,
    *,
    requires: str,
    implement: str,
    without: str,
    shown_by: str,
    required: bool = True,
    seconds: float = 60.0,
) -> Callable[[Callable[[Backend], None]], Callable[[Backend], None]]:
    """Registers the decorated function as a row's check. The arguments are those of `Row`."""

    def register(check: Callable[[Backend], None]) -> Callable[[Backend], None]:
        made = Row(area, name, check, requires, implement, without, shown_by, required, seconds)
        if made.case in _rows:
            raise ValueError(f"two rows are named {made.case}; rename one of them")
        _rows[made.case] = made
        return check

    return register


def registered() -> dict[Case, Row]:
    """Returns the rows of all imported modules by case, in the order of their definition."""
    return _rows
