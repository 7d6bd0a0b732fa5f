# SPDX-License-Identifier: BSD-3-Clause
"""Determines whether the call or the next synchronization raises an error."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import SampleInput
from torch_device_conformance.comparison.difference import describe
from torch_device_conformance.comparison.entry import Run, gradients, settle, synchronize
from torch_device_conformance.comparison.wording import wording
from torch_device_conformance.database.data_errors import depends_on_data
from torch_device_conformance.database.operators import Attempt
from torch_device_conformance.subject.delay import keep_busy


class Watch:
    """Makes calls on a busy stream, and synchronizes after each call.

    Attributes:
        device: the device to synchronize. Calls on the CPU are not changed.
        late: whether a synchronization raised an error.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.late = False

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a function, and then synchronizes. Raises the error of either step."""
        if self.device.type == "cpu":
            return function(*args, **kwargs)
        # Delay the kernels until the call has returned. A kernel error is then never mistaken for
        # an error of the call itself.
        keep_busy(self.device)
        result = function(*args, **kwargs)
        try:
            synchronize(self.device)
        except Exception:
            self.late = True
            raise
        return result

    def attempt(self, name: str, function: Callable[[], Run]) -> Run:
        """Returns the run that a function returns, or a run with the error that it raises.

        Args:
            name: name of the entry, used to look up errors that depend on data.
            function: function that makes its calls through `call`.
        """
        try:
            return function()
        except Exception as error:
            settle(self.device)
            return Run({}, {}, error.with_traceback(None), self.complaint(name, error))

    def complaint(self, name: str, error: Exception) -> str:
        """Returns what is wrong with the time of an error, or an empty text if nothing is."""
        rules = wording()
        words = rules.addition.sub("", describe(error))
        if self.late and not depends_on_data(name, error):
            return f"raises late: {words}"
        if not self.late and rules.late.search(str(error)):
            return f"mentions later kernels in an error of the call: {words}"
        return ""


class Punctual(Attempt):
    """An attempt whose errors must be raised by the call, unless they depend on data."""

    watch = Watch(torch.device("cpu"))

    def run(self, sample: Any, device: torch.device, seed: int) -> Run:
        self.watch = Watch(device)
        return self.watch.attempt(self.name, lambda: self.attempt(sample, device, seed))

    def apply(self, function: Callable[..., Any], sample: SampleInput, **more: Any) -> Any:
        return self.watch.call(super().apply, function, sample, **more)

    def gradients(self, outputs: list[Any], inputs: list[Tensor]) -> list[Tensor | None]:
        found: list[Tensor | None] = self.watch.call(gradients, outputs, inputs)
        return found
