# SPDX-License-Identifier: BSD-3-Clause
"""Defines capture(), and a fixture that waits for the devices after each test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch_openreg as torch_openreg

NAP = 100_000_000  # nanoseconds


@pytest.fixture(autouse=True)
def quiet_devices() -> Iterator[None]:
    torch.openreg.set_device(0)
    yield
    assert not torch.openreg.is_current_stream_capturing()
    for index in range(torch.openreg.device_count()):
        torch.openreg.synchronize(index)


def capture(work: Callable[[], Any], **options: Any) -> tuple[Any, Any]:
    """Runs `work` on a separate stream to warm up, captures it, and returns graph and result."""
    side = torch.openreg.Stream()
    side.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(side):
        work()
    graph = torch.openreg.OpenRegGraph()
    with torch.openreg.graph(graph, **options):
        result = work()
    return graph, result
