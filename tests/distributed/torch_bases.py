# SPDX-License-Identifier: BSD-3-Clause
"""Tests derived from torch's base classes for distributed tests, as a user would write them.

torch starts the ranks of such a test with "spawn", and each rank imports the test's module.
Therefore the tests are in this module instead of a test file.
"""

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.testing._internal.common_distributed import DistributedTestBase, MultiProcContinuousTest
from torch.testing._internal.distributed._tensor.common_dtensor import (
    DTensorContinuousTestBase,
    DTensorTestBase,
    with_comms,
)
from torch.testing._internal.distributed.checkpoint_utils import with_temp_dir

DEVICE = "openreg"


class Collective(DistributedTestBase):
    """A test that creates its own group."""

    @property
    def world_size(self) -> int:
        return 2

    def backend(self, device: str) -> str:
        """Replaces torch's method, which returns "gloo" for unknown devices."""
        name: str = dist.get_default_backend_for_device(device)
        return name

    def test_all_reduce(self) -> None:
        group = self.create_pg(DEVICE)  # type: ignore[no-untyped-call]
        assert dist.get_backend(group) == "occl"
        (device,) = self.rank_to_device(DEVICE)[self.rank]  # type: ignore[no-untyped-call]
        tensor = torch.full((3,), self.rank + 1.0, device=device)
        dist.all_reduce(tensor)
        torch.testing.assert_close(tensor.cpu(), torch.full((3,), 3.0))


class Continuous(MultiProcContinuousTest):
    """Tests that share their processes and their group. torch chooses the backend."""

    world_size = 2

    @classmethod
    def device_type(cls) -> str:
        return DEVICE

    def test_all_gather(self) -> None:
        device = torch.device(DEVICE, self.rank)
        gathered = torch.empty(2, device=device)
        dist.all_gather_into_tensor(gathered, torch.full((1,), float(self.rank), device=device))
        assert gathered.tolist() == [0.0, 1.0]

    def test_broadcast(self) -> None:
        tensor = torch.full((2,), float(self.rank), device=torch.device(DEVICE, self.rank))
        dist.broadcast(tensor, src=1)
        assert tensor.tolist() == [1.0, 1.0]


class Sharded(DTensorTestBase):
    """Tests DTensors and their checkpoints."""

    @with_comms(backend=f"cpu:gloo,{DEVICE}:occl")
    def test_redistribute(self) -> None:
        assert self.device_type == DEVICE
        mesh = self.build_device_mesh()
        whole = torch.arange(16.0).reshape(8, 2)
        sharded = distribute_tensor(whole, mesh, [Shard(0)])
        assert sharded.to_local().device.type == DEVICE
        torch.testing.assert_close(
            sharded.redistribute(mesh, [Replicate()]).to_local().cpu(), whole
        )
        torch.testing.assert_close((sharded @ sharded.t()).full_tensor().cpu(), whole @ whole.t())

    @with_comms(backend=f"cpu:gloo,{DEVICE}:occl")
    @with_temp_dir
    def test_checkpoint(self) -> None:
        mesh = self.build_device_mesh()
        whole = torch.arange(16.0).reshape(8, 2)
        folder: str = self.temp_dir
        dcp.save({"weight": distribute_tensor(whole, mesh, [Shard(0)])}, checkpoint_id=folder)
        loaded: dict[str, Any] = {"weight": distribute_tensor(torch.zeros(8, 2), mesh, [Shard(1)])}
        dcp.load(loaded, checkpoint_id=folder)
        torch.testing.assert_close(loaded["weight"].full_tensor().cpu(), whole)


class ShardedByDefault(DTensorTestBase):
    """A test that does not specify a backend, so torch uses the device's backend."""

    @pytest.mark.xfail(
        strict=True,
        raises=RuntimeError,
        reason="DTensorTestBase.init_pg (torch 2.13) has a list of accepted backends: it rejects "
        'the default backend of any plugin, but not "cpu:gloo,DEVICE:BACKEND"',
    )
    @with_comms
    def test_redistribute(self) -> None:
        mesh = self.build_device_mesh()
        sharded = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])
        torch.testing.assert_close(sharded.full_tensor().cpu(), torch.arange(8.0))


class ShardedContinuous(DTensorContinuousTestBase):
    """A DTensor test. Its processes run all tests of the class."""

    world_size = 2

    def test_product(self) -> None:
        mesh = self.build_device_mesh()
        left, right = torch.arange(8.0).reshape(2, 4), torch.arange(8.0).reshape(4, 2)
        product = distribute_tensor(left, mesh, [Shard(1)]) @ distribute_tensor(
            right, mesh, [Shard(0)]
        )
        torch.testing.assert_close(product.full_tensor().cpu(), left @ right)
