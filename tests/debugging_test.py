# SPDX-License-Identifier: BSD-3-Clause
"""Tests debugging aids: implicit waits are reported, and kernel errors name the launch."""

import re
import threading
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from tests import child

LARGE = 1 << 18  # elements; a host copy of this size is not staged


@pytest.fixture(autouse=True)
def _usual_settings() -> Iterator[None]:
    # Run the kernel once now. The first call with new dtypes is synchronous, so it would raise the
    # kernel's error itself.
    fails_in_the_kernel(torch.tensor([0], device="openreg"))
    torch.openreg.synchronize()
    yield
    torch.openreg.set_sync_debug_mode("default")
    torch.openreg.set_launch_sites(False)
    torch.openreg.set_launch_blocking(False)


def bad_index() -> Tensor:
    """Returns an index that is out of range, which only the kernel can detect."""
    return torch.tensor([0, 7], device="openreg")


# ------------------------------------------------------------------------ reports of implicit waits

WAITS: dict[str, tuple[str, Callable[[Tensor], object]]] = {
    "item": ("aten::_local_scalar_dense", lambda x: x[0].item()),
    "bool": ("aten::_local_scalar_dense", lambda x: bool(x[0] > 1)),
    "tolist": ("aten::_copy_from", Tensor.tolist),
    "cpu": ("aten::_copy_from", Tensor.cpu),
    "non_blocking to pageable": (
        "aten::_copy_from",
        lambda x: torch.empty(4).copy_(x, non_blocking=True),
    ),
    "copy to pinned": ("aten::_copy_from", lambda x: torch.empty(4).pin_memory().copy_(x)),
    "large from pageable": (
        "aten::_copy_from",
        lambda x: torch.ones(LARGE).to("openreg"),
    ),
    "nonzero": ("aten::nonzero", torch.nonzero),
    "boolean index": ("aten::nonzero", lambda x: x[x > 1]),
    "masked_select": ("aten::masked_select", lambda x: x.masked_select(x > 1)),
}

NO_WAITS: dict[str, Callable[[Tensor], object]] = {
    "add": lambda x: x + 1,
    "matmul": lambda x: x[:, None] @ x[None],
    "in place": lambda x: x.add_(1),
    "index": lambda x: x[torch.zeros(2, dtype=torch.int64, device="openreg")],
    "synchronize": lambda x: torch.openreg.synchronize(),
    "stream": lambda x: torch.openreg.current_stream().synchronize(),
    "event": lambda x: torch.openreg.current_stream().record_event().synchronize(),
    "accelerator": lambda x: torch.accelerator.synchronize(),
    "small from pageable": lambda x: torch.tensor([1.0, 2.0], device="openreg"),
    "from pinned": lambda x: torch.empty(LARGE).pin_memory().to("openreg", non_blocking=True),
    "to pinned": lambda x: torch.empty(4).pin_memory().copy_(x, non_blocking=True),
    "to cpu, non_blocking": lambda x: x.to("cpu", non_blocking=True),  # torch pins the result
    "peer copy": lambda x: x.to("openreg:1"),
    "allocation": lambda x: torch.empty(1000, device="openreg"),
    "random": lambda x: torch.rand(100, device="openreg"),
}


@pytest.mark.parametrize("name", WAITS)
def test_implicit_waits_are_errors_that_name_the_operator(name: str) -> None:
    operator, wait = WAITS[name]
    x = torch.arange(4.0, device="openreg")
    torch.openreg.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match=f"{operator} makes the host wait for openreg:0: "):
        wait(x)
    torch.openreg.set_sync_debug_mode("default")
    wait(x)
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("name", WAITS)
def test_implicit_waits_are_warned_of_and_done(name: str) -> None:
    operator, wait = WAITS[name]
    x = torch.arange(4.0, device="openreg")
    expected = wait(x)
    torch.openreg.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = wait(x)
    assert any(f"{operator} makes the host wait" in str(w.message) for w in caught)
    torch.openreg.set_sync_debug_mode("default")
    if isinstance(expected, Tensor):
        assert isinstance(found, Tensor)
        torch.testing.assert_close(found, expected)
    else:
        assert found == expected


@pytest.mark.parametrize("name", NO_WAITS)
def test_explicit_waits_are_not_implicit_waits(name: str) -> None:
    x = torch.arange(4.0, device="openreg")
    torch.openreg.set_sync_debug_mode("error")
    NO_WAITS[name](x)


def test_a_training_step_waits_for_nothing() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    model.to("openreg")
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(4, 8, device="openreg")
    y = torch.zeros(4, dtype=torch.int64, device="openreg")

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    first = step().item()
    torch.openreg.set_sync_debug_mode("error")
    for _ in range(5):
        loss = step()
    with pytest.raises(RuntimeError, match="_local_scalar_dense"):
        loss.item()
    torch.openreg.set_sync_debug_mode("default")
    assert loss.item() < first


def test_the_mode_is_one_for_all_threads() -> None:
    x = torch.ones(1, device="openreg")
    caught: list[BaseException] = []

    def read() -> None:
        try:
            x.item()
        except RuntimeError as error:
            caught.append(error)

    torch.openreg.set_sync_debug_mode("error")
    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert len(caught) == 1
    assert "makes the host wait" in str(caught[0])


def test_modes_are_names_or_numbers() -> None:
    assert torch.openreg.get_sync_debug_mode() == 0
    for number, word in enumerate(("default", "warn", "error")):
        torch.openreg.set_sync_debug_mode(word)
        assert torch.openreg.get_sync_debug_mode() == number
        torch.openreg.set_sync_debug_mode(0)
        torch.openreg.set_sync_debug_mode(number)
        assert torch.openreg.get_sync_debug_mode() == number
    for wrong in ("loud", 3, -1, None, True, 1.0):
        with pytest.raises(ValueError, match=r"debug_mode.*'default' \(0\), 'warn' \(1\)"):
            torch.openreg.set_sync_debug_mode(wrong)
    assert torch.openreg.get_sync_debug_mode() == 2


# ------------------------------------------------------------------------- errors raised by kernels


def fails_in_the_kernel(index: Tensor) -> Tensor:
    return torch.ones(3, device="openreg").index_select(0, index)


def test_an_error_names_operator_stream_and_what_to_do() -> None:
    index = bad_index()
    torch.openreg.synchronize()
    with torch.openreg.stream(torch.openreg.Stream()):
        torch.openreg._sleep(1_000_000)
        fails_in_the_kernel(index)
        with pytest.raises(IndexError) as caught:
            torch.openreg.synchronize()
    message = str(caught.value)
    assert "out of range" in message.splitlines()[0]
    place = r"on stream \d+ of device 0, after \d+ queued commands, failed"
    assert re.search(f"kernel aten::index_select {place}", message), message
    assert "OPENREG_LAUNCH_SITES=1" in message
    assert "OPENREG_LAUNCH_BLOCKING=1" in message
    assert message.count("out of range") == 1
    torch.openreg.synchronize()  # the error is reported once, and the device continues to work
    assert torch.ones(2, device="openreg").sum().item() == 2


def test_an_error_shows_the_launch_site() -> None:
    index = bad_index()
    torch.openreg.set_launch_sites(True)
    assert torch.openreg.get_launch_sites()
    torch.openreg._sleep(1_000_000)
    fails_in_the_kernel(index)
    later = torch.ones(3, device="openreg") * 2
    with pytest.raises(IndexError) as caught:
        torch.openreg.synchronize()
    message = str(caught.value)
    assert "aten::index_select" in message
    lines = [line for line in message.splitlines() if line.strip().startswith('File "')]
    assert lines[-1].endswith("in fails_in_the_kernel"), message
    assert lines[-2].endswith("in test_an_error_shows_the_launch_site"), message
    assert f'"{__file__}"' in lines[-1]
    line = fails_in_the_kernel.__code__.co_firstlineno + 1
    assert f"line {line}," in lines[-1]
    assert later.tolist() == [2.0] * 3


def test_launch_sites_of_many_launches_are_distinguished() -> None:
    index = bad_index()
    torch.openreg.set_launch_sites(True)
    x = torch.ones(3, device="openreg")
    for _ in range(600):  # more launches than fit into a stream's queue
        x = x + 1
    fails_in_the_kernel(index)
    for _ in range(600):
        x = x + 1
    with pytest.raises(IndexError, match="in fails_in_the_kernel"):
        torch.openreg.synchronize()
    torch.openreg.set_launch_sites(False)
    fails_in_the_kernel(index)
    with pytest.raises(IndexError) as caught:
        torch.openreg.synchronize()
    assert "fails_in_the_kernel" not in str(caught.value)
    assert x.tolist() == [1201.0] * 3


def test_the_site_of_a_backward_pass_is_where_it_runs() -> None:
    torch.openreg.set_launch_sites(True)
    index = bad_index()

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:
            fails_in_the_kernel(index)
            return gradient

    x = torch.ones(2, device="openreg", requires_grad=True)
    y = Fails.apply(x).sum()  # type: ignore[no-untyped-call]
    y.backward()
    with pytest.raises(IndexError, match="in backward"):
        torch.openreg.synchronize()


def test_launch_blocking_raises_at_the_launch() -> None:
    index = bad_index()
    torch.openreg.synchronize()
    torch.openreg.set_launch_blocking(True)
    assert torch.openreg.get_launch_blocking()
    with pytest.raises(IndexError) as caught:
        fails_in_the_kernel(index)
    assert "aten::index_select" in str(caught.value)
    assert "OPENREG_LAUNCH_BLOCKING" not in str(caught.value)
    torch.openreg.set_launch_sites(True)
    with pytest.raises(IndexError, match="in fails_in_the_kernel"):
        fails_in_the_kernel(index)
    torch.openreg.synchronize()
    torch.openreg.set_launch_blocking(False)
    fails_in_the_kernel(index)
    with pytest.raises(IndexError):
        torch.openreg.synchronize()


@pytest.mark.parametrize("blocking", ["0", "1"])
def test_launch_blocking_of_the_environment(blocking: str) -> None:
    where = child.output(
        """
        import torch
        index = torch.tensor([7], device="openreg")
        where = "nowhere"
        torch.ones(3, device="openreg").index_select(0, index - 7)  # first use of these dtypes
        torch.openreg.synchronize()
        try:
            torch.openreg._sleep(50_000_000)
            busy = not torch.openreg.current_stream().query()
            torch.ones(3, device="openreg").index_select(0, index)
        except IndexError:
            where = "launch"
        try:
            torch.openreg.synchronize()
        except IndexError:
            where = "synchronize"
        print(where, busy, torch.openreg.get_launch_blocking())
        """,
        OPENREG_LAUNCH_BLOCKING=blocking,
    )
    assert where == ("launch False True" if blocking == "1" else "synchronize True False")


def test_launch_sites_of_the_environment() -> None:
    message = child.output(
        """
        import torch
        def select(index):
            return torch.ones(3, device="openreg").index_select(0, index)
        select(torch.tensor([0], device="openreg"))  # first use of these dtypes
        select(torch.tensor([7], device="openreg"))
        try:
            torch.openreg.synchronize()
        except IndexError as error:
            print(error)
        """,
        OPENREG_LAUNCH_SITES="1",
    )
    assert 'File "<string>", line 4, in select' in message
    assert 'File "<string>", line 6, in <module>' in message


@pytest.mark.parametrize("name", ["OPENREG_LAUNCH_SITES", "OPENREG_STREAM_SANITIZER"])
def test_a_wrong_value_in_the_environment_is_an_error_of_the_first_use(name: str) -> None:
    done = child.run("import torch; torch.ones(1, device='openreg')", **{name: "maybe"})
    assert done.returncode == 1
    assert f'{name} is "maybe": expected 0' in done.stderr
