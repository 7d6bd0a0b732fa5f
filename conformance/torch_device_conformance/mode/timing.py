# SPDX-License-Identifier: BSD-3-Clause
"""When an error comes: with the call, or only at the synchronization after it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import SampleInput
from torch_device_conformance.comparison.comparison import (
    Run,
    describe,
    gradients,
    settle,
    synchronize,
)
from torch_device_conformance.comparison.wording import wording
from torch_device_conformance.database.data_errors import depends_on_data
from torch_device_conformance.database.operators import Attempt
from torch_device_conformance.subject.delay import keep_busy


class Watch:
    """Makes calls behind a busy stream and synchronizes after each.

    Attributes:
        device: which is synchronized; calls on the CPU are made as they are.
        late: whether an error came at a synchronization.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.late = False

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a function; raises what it raises, or what comes afterwards."""
        if self.device.type == "cpu":
            return function(*args, **kwargs)
        # No kernel of the call can run before the call returns: an error of a kernel is never
        # mistaken for an error of the call.
        keep_busy(self.device)
        result = function(*args, **kwargs)
        try:
            synchronize(self.device)
        except Exception:
            self.late = True
            raise
        return result

    def attempt(self, name: str, function: Callable[[], Run]) -> Run:
        """The run that a function returns, or what it raised and how that came.

        Args:
            name: of the entry, for the table of errors that depend on data.
            function: makes its calls with `call`.
        """
        try:
            return function()
        except Exception as error:
            settle(self.device)
            return Run({}, {}, error.with_traceback(None), self.complaint(name, error))

    def complaint(self, name: str, error: Exception) -> str:
        """What is wrong with the way an error came; empty if nothing."""
        rules = wording()
        words = rules.addition.sub("", describe(error))
        if self.late and not depends_on_data(name, error):
            return f"raises late: {words}"
        if not self.late and rules.late.search(str(error)):
            return f"speaks of later kernels in an error of the call: {words}"
        return ""


class Punctual(Attempt):
    """An attempt whose errors have to come with the call, except those that depend on data."""

    watch = Watch(torch.device("cpu"))

    def run(self, sample: Any, device: torch.device, seed: int) -> Run:
        self.watch = Watch(device)
        return self.watch.attempt(self.name, lambda: self.attempt(sample, device, seed))

    def apply(self, function: Callable[..., Any], sample: SampleInput, **more: Any) -> Any:
        return self.watch.call(super().apply, function, sample, **more)

    def gradients(self, outputs: list[Any], inputs: list[Tensor]) -> list[Tensor | None]:
        found: list[Tensor | None] = self.watch.call(gradients, outputs, inputs)
        return found
