# SPDX-License-Identifier: BSD-3-Clause
"""Tests ways to create a process group: with or without a backend, with a device, with Gloo."""

import pytest
import torch
import torch.distributed as dist

from tests.distributed.ranks import Group, run


def sums() -> tuple[str, list[float], list[object]]:
    rank = dist.get_rank()
    tensor = torch.arange(4.0, device="openreg") + rank
    dist.all_reduce(tensor)
    objects: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(objects, {"rank": rank})
    dist.barrier()
    return dist.get_backend(), tensor.tolist(), objects


@pytest.mark.parametrize(
    ("group", "name"),
    [
        (Group("occl"), "occl"),
        (Group("occl", bound=True), "occl"),
        (Group(None, bound=True), "occl"),
        (Group(None), "undefined"),
        (Group("cpu:gloo,openreg:occl"), "cpu:gloo,openreg:occl"),
    ],
)
def test_each_way_creates_a_group(group: Group, name: str) -> None:
    for backend, values, objects in run(2, sums, group=group):
        assert backend == name
        assert values == [1.0, 3.0, 5.0, 7.0]
        assert objects == [{"rank": 0}, {"rank": 1}]
