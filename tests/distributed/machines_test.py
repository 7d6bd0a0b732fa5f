# SPDX-License-Identifier: BSD-3-Clause
"""Groups on two machines, emulated by connected network namespaces that each run torchrun.

If OPENREG_TEST_HOSTS is 2, the other tests in this folder run every collective between machines.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import torch.nn.functional as F

from tests.distributed import collectives_test
from tests.distributed.faults import message
from tests.distributed.ranks import Group, Ranks, run

DEVICE = "openreg"
PATIENCE = 150.0
#: The addresses of the two machines, by machine number. Only the test uses this network.
ADDRESSES = ("10.231.77.1", "10.231.77.2")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Yields the names of two new network namespaces, connected by interfaces named ``cable``."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("creating network namespaces needs root and the program ip (iproute2)")
    names = [f"openreg-{os.getpid()}-{number}" for number in range(2)]
    with contextlib.ExitStack() as stack:
        for name in names:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "delete", name)
            ip("-n", name, "link", "set", "lo", "up")
        one, other = names
        ip("link", "add", "cable", "netns", one, "type", "veth", "peer", "cable", "netns", other)
        for name, address in zip(names, ADDRESSES, strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
        yield names


PROGRAM = """
    import os, pathlib, sys
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    rank = dist.get_rank()
    space = os.readlink("/proc/self/ns/net")
    spaces = [None] * dist.get_world_size()
    dist.all_gather_object(spaces, space)
    assert spaces[0] == spaces[1] != spaces[2] == spaces[3], spaces

    weights = {}
    for kind in ("ddp", "fsdp"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
        model = model.to("openreg", torch.float64)
        whole = DistributedDataParallel(model) if kind == "ddp" else fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for step in range(5):
            generator = torch.Generator().manual_seed(step)
            x = torch.randn(8, 6, dtype=torch.float64, generator=generator)
            x = x[2 * rank : 2 * rank + 2].to("openreg")
            F.mse_loss(whole(x), x[:, :3]).backward()
            optimizer.step()
            optimizer.zero_grad()
        full = model.weight if hasattr(model, "weight") else model[0].weight
        weights[kind] = (full.full_tensor() if kind == "fsdp" else full).detach().cpu()
    if rank == 0:
        torch.save(weights, pathlib.Path(sys.argv[1], "result.pt"))
    dist.destroy_process_group()
"""


def trained_at_once() -> torch.Tensor:
    """Returns the first weight of PROGRAM's network, trained in a single process on the CPU."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    model = model.to(torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(5):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(8, 6, dtype=torch.float64, generator=generator)
        F.mse_loss(model(x), x[:, :3]).backward()
        optimizer.step()
        optimizer.zero_grad()
    first = model[0]
    assert isinstance(first, torch.nn.Linear)
    return first.weight.detach()


def test_training_on_two_machines_with_two_ranks_each(hosts: list[str], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"]
    environment = {
        **os.environ,
        "GLOO_SOCKET_IFNAME": "cable",
        "OMP_NUM_THREADS": "1",
    }
    with contextlib.ExitStack() as stack:
        machines = [
            stack.enter_context(
                subprocess.Popen(
                    [
                        *("ip", "netns", "exec", host, *launcher, f"--node-rank={number}"),
                        *(f"--master-addr={ADDRESSES[0]}", "--master-port=29571"),
                        *(str(program), str(tmp_path)),
                    ],
                    env=environment,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            for number, host in enumerate(hosts)
        ]
        for machine in machines:
            stack.callback(machine.kill)
        errors = [machine.communicate(timeout=PATIENCE)[1] for machine in machines]
    for machine, error in zip(machines, errors, strict=True):
        assert machine.returncode == 0, error[-3000:]
    weights = torch.load(tmp_path / "result.pt")
    torch.testing.assert_close(weights["ddp"], trained_at_once(), rtol=0, atol=1e-10)
    torch.testing.assert_close(weights["fsdp"], trained_at_once(), rtol=0, atol=1e-10)


#: Three ranks on one machine, and one rank on the other.
UNEVEN = Group(hosts=(0, 0, 1, 0), timeout=20)


@pytest.mark.parametrize("collectives", [collectives_test.all_reduces, collectives_test.movements])
def test_machines_of_different_sizes(collectives: Callable[[], None]) -> None:
    run(4, collectives, group=UNEVEN)


def reduces_numbers() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64):
        largest = torch.iinfo(dtype).max
        for op, expected in ((dist.ReduceOp.MAX, largest), (dist.ReduceOp.MIN, 3)):
            numbers = torch.tensor([3, largest][:: 1 if rank else -1], dtype=dtype).to(DEVICE)
            dist.all_reduce(numbers, op)
            assert numbers.cpu().tolist() == [expected] * 2, (dtype, op)
        numbers = torch.tensor([largest // ranks], dtype=dtype).to(DEVICE)
        dist.all_reduce(numbers, dist.ReduceOp.AVG)
        assert numbers.cpu().tolist() == [largest // ranks * ranks // ranks], dtype
    numbers = torch.tensor([-7, 2 * rank], dtype=torch.int32, device=DEVICE)
    dist.all_reduce(numbers, dist.ReduceOp.AVG)
    assert numbers.tolist() == [-7, ranks - 1]
    numbers = torch.tensor([float("nan") if rank == 2 else 1.0], device=DEVICE)
    dist.all_reduce(numbers, dist.ReduceOp.MAX)
    assert numbers.isnan().all()
    # The sum of the values overflows, but their average must not.
    for dtype in (torch.float16, torch.float8_e5m2):
        numbers = torch.full((4 * ranks,), 49152.0).to(dtype).to(DEVICE)
        dist.all_reduce(numbers, dist.ReduceOp.AVG)
        part = torch.empty(4, dtype=dtype, device=DEVICE)
        dist.reduce_scatter_tensor(part, numbers, dist.ReduceOp.AVG)
        assert part.float().cpu().eq(49152).all(), dtype
    for wrong in (lambda: dist.broadcast(numbers, 99), lambda: dist.send(numbers, 99)):
        with pytest.raises(ValueError, match="there is no rank 99: the group has 4 ranks"):
            wrong()
    with pytest.raises(TypeError, match="an average of bool is not supported"):
        dist.all_reduce(torch.ones(3, dtype=torch.bool, device=DEVICE), dist.ReduceOp.AVG)
    # Run collectives on two streams. The dimensions of the dense parameter are stored in a
    # different order.
    parameter = torch.nn.Parameter(torch.ones(4, 3, device=DEVICE).t().requires_grad_())
    side = torch.openreg.Stream()
    with torch.openreg.stream(side):
        dist.broadcast(parameter.detach().mul_(rank), 2)
        dist.all_reduce(parameter.data)
    dist.all_reduce(parameter.data)
    torch.openreg.current_stream().wait_stream(side)
    assert parameter.eq(2 * ranks * ranks).all()


def test_reductions_over_uneven_machines() -> None:
    run(4, reduces_numbers, group=Group(hosts=(0, 0, 1, 1)))


def refuses_capture() -> None:
    x = torch.ones(3, device=DEVICE)
    dist.all_reduce(x)
    neighbor = dist.get_rank() ^ 1
    for call in (lambda: dist.all_reduce(x), lambda: dist.isend(x, neighbor)):
        with (
            pytest.raises(RuntimeError, match="several machines cannot be captured in a graph"),
            torch.openreg.graph(torch.openreg.OpenRegGraph()),
        ):
            call()
    dist.all_reduce(x)
    assert x.eq(16).all()


def test_a_capture_is_rejected_on_all_ranks() -> None:
    run(4, refuses_capture, group=UNEVEN)


def shares_memory() -> str:
    tensor = symm_mem.empty(4, device=torch.device(DEVICE, torch.openreg.current_device()))
    return message(symm_mem.rendezvous, tensor, dist.group.WORLD)


def test_symmetric_memory_needs_one_machine() -> None:
    for text in run(4, shares_memory, group=UNEVEN):
        assert "it is on another machine" in text


def different_messages() -> str:
    dist.barrier()
    x = torch.ones(4 + dist.get_rank(), device=DEVICE)
    if dist.get_rank() == 0:
        return message(dist.recv, x, 2)
    return message(dist.send, x, 0) if dist.get_rank() == 2 else ""


def test_a_message_of_another_size_names_both_sides() -> None:
    first, *_ = run(4, different_messages, group=UNEVEN)
    assert "rank 2 sent float32[6], but the receiver expects float32[4]" in first


def aborts_beside_the_leader() -> float:
    """Aborts on rank 1 while rank 0, on the same machine, waits for the other machine."""
    x = torch.ones(3, device=DEVICE)
    dist.all_reduce(x)
    torch.openreg.synchronize()
    if dist.get_rank() == 2:
        time.sleep(5)
        return 0
    start = time.monotonic()
    if dist.get_rank() == 1:
        time.sleep(0.3)
        dist.group.WORLD.abort()  # type: ignore[union-attr]  # it is not None
    else:
        text = message(dist.all_reduce, x)
        assert "abort" in text, text
    return time.monotonic() - start


def test_an_abort_ends_the_wait_of_the_leader() -> None:
    seconds = run(4, aborts_beside_the_leader, group=UNEVEN)
    assert max(seconds) < 3


def two_of_a_machine() -> str:
    x = torch.ones(300_000, device=DEVICE)
    dist.all_reduce(x)
    dist.barrier()
    if dist.get_rank() == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return message(dist.all_reduce, x)


def test_all_machines_report_the_rank_that_was_killed() -> None:
    with Ranks(4, two_of_a_machine, group=UNEVEN) as ranks:
        outcomes = ranks.outcomes()
    assert outcomes[3].exit_code == -signal.SIGKILL
    for rank in range(3):
        assert outcomes[rank].error is None, outcomes[rank].error
        # The error names the rank within the group, which differs from the local rank on the other
        # machine.
        assert "the process of rank 3 has exited" in outcomes[rank].value, (rank, outcomes[rank])
