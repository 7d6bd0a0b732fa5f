# SPDX-License-Identifier: BSD-3-Clause
"""Tests that the host can run ahead of the device without changing work that is already queued.

Each test first makes the stream busy, and checks that it is still busy when the host continues.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

DEVICE = torch.device("openreg:0")
LATE = 100_000_000  # nanoseconds


@contextmanager
def behind() -> Iterator[None]:
    """Makes the stream busy, and checks that it is still busy when the `with` block ends."""
    torch.openreg.synchronize()
    torch.openreg._sleep(LATE)
    yield
    assert not torch.openreg.current_stream().query(), "something in the block waited"


def ones(*shape: int) -> Tensor:
    return torch.ones(shape, device=DEVICE)


LAUNCHES: dict[str, Callable[[Tensor], Tensor]] = {
    "add": lambda x: x + 1,
    "mixed dtypes": lambda x: x + torch.ones(4, dtype=torch.int64, device=DEVICE),
    "matmul": lambda x: x @ x,
    "linear": lambda x: nn.functional.linear(x, x, x[0]),
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: nn.functional.layer_norm(x, (4,)),
    "batch_norm": lambda x: nn.functional.batch_norm(x, None, None, training=True),
    "conv2d": lambda x: nn.functional.conv2d(x[None, None], ones(1, 1, 2, 2)),
    "embedding": lambda x: nn.functional.embedding(x.long(), x),
    "attention": lambda x: nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
    "dropout": lambda x: nn.functional.dropout(x, 0.5),
    "cross_entropy": lambda x: nn.functional.cross_entropy(x, ones(4).long()),
    "sum": lambda x: x.sum(),
    "cat": lambda x: torch.cat([x, x]),
    "stack": lambda x: torch.stack([x, x]),
    "index_select": lambda x: x.index_select(0, ones(2).long()),
    "index": lambda x: x[ones(2).long()],
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "sort": lambda x: x.sort().values,
    "cumsum": lambda x: x.cumsum(0),
    "clone": torch.clone,
    "to double": torch.Tensor.double,
    "normal_": lambda x: x.clone().normal_(),
    "cdist": lambda x: torch.cdist(x, x),
    "max_pool2d": lambda x: nn.functional.max_pool2d(x[None], 2),
    "gelu": nn.functional.gelu,
    "asynchronous fallback": lambda x: torch.special.i0(x),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_launches_do_not_wait(name: str) -> None:
    x = ones(4, 4)
    LAUNCHES[name](x)  # the first call waits, to check whether the kernel supports the dtypes
    with behind():
        LAUNCHES[name](x)
    torch.openreg.synchronize()


def test_an_lstm_and_its_backward_do_not_wait() -> None:
    lstm = nn.LSTM(4, 3).to(DEVICE)
    x = ones(5, 2, 4)
    lstm(x)[0].sum().backward()
    with behind():
        lstm(x)[0].sum().backward()
    torch.openreg.synchronize()


def test_a_training_step_does_not_wait() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    x, y = ones(3, 4), torch.zeros(3, dtype=torch.int64, device=DEVICE)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step()
    with behind():
        loss = step()
    assert loss.item() > 0


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "Adagrad"])
@pytest.mark.parametrize("rate", [0.1, torch.tensor(0.1)])
def test_fused_optimizers_do_not_wait(name: str, rate: float | Tensor) -> None:
    steps = []
    for device in ("cpu", DEVICE):
        parameter = torch.linspace(0, 1, 4).to(device).requires_grad_()
        parameter.grad = torch.linspace(1, 2, 4).to(device)
        optimizer = getattr(torch.optim, name)([parameter], lr=rate, fused=True)
        optimizer.step()  # creates the optimizer's state
        if device is DEVICE:
            torch.openreg.fallback.reset()
            with behind():
                optimizer.step()
            assert torch.openreg.fallback.stats() == {}
        else:
            optimizer.step()
        steps.append(parameter.detach().cpu())
    torch.testing.assert_close(*steps)


def test_an_input_may_change_after_the_call() -> None:
    x = ones(1000)
    with behind():
        y = x * 2
        x.zero_()
    assert torch.equal(y.cpu(), torch.full((1000,), 2.0))
    assert not x.any()


def test_a_freed_input_is_not_overwritten() -> None:
    with behind():
        x = ones(1000)
        y = x * 2
        del x
        for _ in range(20):  # reuses the memory of x; these fills run after the product
            ones(1000).fill_(-1)
    assert torch.equal(y.cpu(), torch.full((1000,), 2.0))


def test_temporaries_of_a_long_expression() -> None:
    with behind():
        x = ones(500)
        for _ in range(30):
            x = (x + 1) * 2 - x
    expected = 1.0
    for _ in range(30):
        expected = (expected + 1) * 2 - expected
    assert x.cpu().unique().tolist() == [expected]


def test_resize_between_launch_and_run() -> None:
    x = ones(4)
    with behind():
        y = x + 1
        x.resize_(1000)
        x.fill_(7)
    assert y.tolist() == [2.0] * 4
    assert x.cpu().unique().tolist() == [7.0]


def test_set_between_launch_and_run() -> None:
    x, other = ones(4), ones(4).mul_(5)
    torch.openreg.synchronize()
    with behind():
        y = x + 1
        x.set_(other)  # type: ignore[call-overload]
        z = x + 1
    assert y.tolist() == [2.0] * 4
    assert z.tolist() == [6.0] * 4


def test_data_is_swapped_between_launch_and_run() -> None:
    x = ones(4)
    with behind():
        y = x + 1
        x.data = ones(2) * 9
        z = x + 1
    assert y.tolist() == [2.0] * 4
    assert z.tolist() == [10.0] * 2


def test_an_out_tensor_is_resized_between_launch_and_run() -> None:
    out = torch.empty(0, device=DEVICE)
    with behind():
        torch.add(ones(4), 1, out=out)
        kept = out * 3
        out.resize_(0)
        torch.add(ones(2), 6, out=out)
    assert kept.tolist() == [6.0] * 4
    assert out.tolist() == [7.0] * 2


@pytest.mark.filterwarnings("error")
def test_overlapping_arguments_are_refused_at_the_call() -> None:
    x = torch.arange(6.0, device=DEVICE)
    with behind():
        with pytest.raises(RuntimeError, match="single memory location"):
            torch.neg(x[:4], out=x[2:])
        with pytest.raises(RuntimeError, match="single memory location"):
            x[:4].copy_(x.as_strided((4,), (1,), 1))
        with pytest.raises(RuntimeError, match="more than one element"):
            x[:1].expand(3).add_(1)


def test_views_see_what_their_base_gets_later() -> None:
    base = torch.zeros(4, 4, device=DEVICE)
    with behind():
        row = base[1]
        base.add_(1)
        row.mul_(3)
        base.t()[1].add_(10)
    expected = torch.ones(4, 4)
    expected[1] *= 3
    expected[:, 1] += 10
    assert torch.equal(base.cpu(), expected)


def test_numbers_on_the_cpu_are_read_at_the_call() -> None:
    number = torch.tensor(2.0)
    x = ones(4)
    with behind():
        y = x * number
        number.fill_(100)
    assert y.tolist() == [2.0] * 4


def test_lists_and_scalars_are_read_at_the_call() -> None:
    x = ones(2, 3)
    dims = [0]
    with behind():
        y = x.sum(dims)
        dims[0] = 1
    assert y.tolist() == [2.0] * 3


def test_host_memory_of_numpy_may_change_after_the_call() -> None:
    array = torch.ones(1000).numpy()
    with behind():
        x = torch.from_numpy(array).to(DEVICE)
        array[:] = 5
    assert x.cpu().unique().tolist() == [1.0]


def test_backward_on_another_stream() -> None:
    """Gradients run on the streams of the forward pass, and the caller's stream waits for them."""
    side = torch.Stream(DEVICE)
    x = ones(1000).requires_grad_()
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        torch.openreg._sleep(LATE)
        y = (x * 3).sum()
    torch.accelerator.current_stream().wait_stream(side)
    (y * 2).backward()
    assert x.grad is not None
    assert x.grad.cpu().unique().tolist() == [6.0]


def test_memory_used_on_two_streams_waits_for_both() -> None:
    side = torch.Stream(DEVICE)
    x = ones(1000)
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        torch.openreg._sleep(LATE)
        y = x + 1
    x.record_stream(side)
    del x
    for _ in range(20):
        ones(1000).fill_(-1)  # must not reuse the memory of x before `side` has read x
    side.synchronize()
    assert y.cpu().unique().tolist() == [2.0]


def test_an_error_of_a_kernel_is_thrown_once_at_the_next_synchronization() -> None:
    indices = torch.tensor([5], device=DEVICE)
    with behind():
        ones(3).index_select(0, indices)
        after = ones(3) * 4  # kernels queued after the failed one still run
    with pytest.raises(IndexError, match="index_select"):
        torch.openreg.synchronize()
    torch.openreg.synchronize()
    assert after.tolist() == [4.0] * 3


# For tensors of this size, these reductions use a team of threads. The last bits of a sum depend on
# the number of threads. This number must therefore not depend on what the host does.
SUMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda x, y: (x * y).sum(),
    "dot": torch.dot,
    "l1_loss": nn.functional.l1_loss,
    "mse_loss": nn.functional.mse_loss,
    "smooth_l1_loss": nn.functional.smooth_l1_loss,
    "huber_loss": nn.functional.huber_loss,
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_do_not_depend_on_whether_the_host_waits(name: str) -> None:
    torch.manual_seed(0)
    pairs = [torch.randn(2, 120_003, device=DEVICE) for _ in range(16)]
    awake = []
    for x, y in pairs:
        awake.append(SUMS[name](x, y))
        while not torch.openreg.current_stream().query():
            pass
    torch.openreg._sleep(LATE)  # all launches must be queued when the host starts to wait
    asleep = [SUMS[name](x, y) for x, y in pairs]
    torch.openreg.synchronize()
    assert torch.equal(torch.stack(asleep), torch.stack(awake))


def test_deterministic_mode_fills_fresh_memory() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(100, device=DEVICE).isnan().all()
        most = torch.iinfo(torch.int64).max
        assert (torch.empty(10, dtype=torch.int64, device=DEVICE) == most).all()
        assert ones(2).resize_(50)[2:].isnan().all()
        assert torch.empty_like(ones(3)).isnan().all()
        assert torch.empty_strided((2,), (3,), device=DEVICE).isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)
