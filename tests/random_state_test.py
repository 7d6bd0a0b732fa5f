# SPDX-License-Identifier: BSD-3-Clause
"""Generators: seeds repeat, states come back, devices and the CPU stay apart."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _states_as_before() -> Iterator[None]:
    torch.openreg.set_device(0)
    with torch.random.fork_rng(devices=range(torch.openreg.device_count())):
        yield


def numbers(device: str = "openreg") -> list[float]:
    return torch.rand(8, device=device).tolist()


def test_the_seed_of_torch_governs_the_device() -> None:
    torch.manual_seed(11)
    first = numbers()
    second = numbers()
    torch.manual_seed(11)
    assert numbers() == first
    assert numbers() == second
    assert first != second
    torch.manual_seed(12)
    assert numbers() != first


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.randn(100, device="openreg"),
        lambda: torch.rand(100, device="openreg"),
        lambda: torch.randint(0, 1000, (100,), device="openreg"),
        lambda: torch.randperm(100, device="openreg"),
        lambda: torch.full((100,), 0.5, device="openreg").bernoulli(),
        lambda: torch.empty(100, device="openreg").exponential_(),
        lambda: torch.multinomial(torch.ones(100, device="openreg"), 50),
        lambda: torch.nn.functional.dropout(torch.ones(100, device="openreg")),
        lambda: torch.normal(torch.zeros(100, device="openreg"), 1.0),
    ],
    ids=[
        "randn",
        "rand",
        "randint",
        "randperm",
        "bernoulli",
        "exponential_",
        "multinomial",
        "dropout",
        "normal",
    ],
)
def test_every_random_operator_repeats(draw) -> None:  # type: ignore[no-untyped-def]
    cpu = torch.get_rng_state()
    torch.openreg.manual_seed(5)
    first = draw().cpu()
    following = draw().cpu()
    torch.openreg.manual_seed(5)
    assert torch.equal(draw().cpu(), first)
    assert torch.equal(draw().cpu(), following)
    assert not torch.equal(first, following)
    assert torch.equal(torch.get_rng_state(), cpu)  # the CPU's generator was not used


def test_state_comes_back() -> None:
    numbers()
    state = torch.openreg.get_rng_state()
    assert state.dtype == torch.uint8
    assert state.shape == (16,)
    assert state.device.type == "cpu"
    first = numbers()
    torch.openreg.set_rng_state(state)
    assert numbers() == first


def test_states_of_all_devices() -> None:
    states = torch.openreg.get_rng_state_all()
    assert len(states) == torch.openreg.device_count()
    first = numbers("openreg:0"), numbers("openreg:1")
    torch.openreg.set_rng_state_all(states)
    assert (numbers("openreg:0"), numbers("openreg:1")) == first


@pytest.mark.parametrize("state", [torch.zeros(4, dtype=torch.uint8), torch.zeros(16)], ids=str)
def test_a_bad_state_is_refused(state: torch.Tensor) -> None:
    before = torch.openreg.get_rng_state()
    with pytest.raises((RuntimeError, TypeError)):
        torch.openreg.set_rng_state(state)
    assert torch.equal(torch.openreg.get_rng_state(), before)


def test_devices_are_independent() -> None:
    torch.openreg.manual_seed_all(3)
    alone = numbers("openreg:1")
    torch.openreg.manual_seed_all(3)
    numbers("openreg:0")
    assert numbers("openreg:1") == alone
    torch.openreg.manual_seed(9)  # the current device only
    assert torch.openreg.default_generators[0].initial_seed() == 9
    assert torch.openreg.default_generators[1].initial_seed() == 3


def test_fork_rng() -> None:
    torch.openreg.manual_seed_all(1)
    with torch.random.fork_rng(devices=[0]):
        inside = numbers()
        torch.openreg.manual_seed(99)
    assert numbers() == inside
    with torch.random.fork_rng(devices=[1], device_type="openreg"):
        torch.openreg.manual_seed_all(2)
    assert torch.openreg.default_generators[0].initial_seed() == 2
    assert torch.openreg.default_generators[1].initial_seed() == 1


def test_seed_and_initial_seed() -> None:
    torch.openreg.manual_seed(-1)
    assert torch.openreg.initial_seed() == 2**64 - 1
    torch.openreg.seed()
    one = torch.openreg.initial_seed()
    torch.openreg.seed()
    assert torch.openreg.initial_seed() != one
    torch.openreg.seed_all()
    assert len({generator.initial_seed() for generator in torch.openreg.default_generators}) == 1


def test_own_generator() -> None:
    generator = torch.Generator(device="openreg")
    generator.manual_seed(4)
    before = torch.openreg.get_rng_state()
    first = torch.rand(8, device="openreg", generator=generator).tolist()
    assert torch.equal(torch.openreg.get_rng_state(), before)
    copy = generator.clone_state()
    following = torch.rand(8, device="openreg", generator=generator).tolist()
    assert torch.rand(8, device="openreg", generator=copy).tolist() == following
    generator.manual_seed(4)
    assert torch.rand(8, device="openreg", generator=generator).tolist() == first


def test_a_generator_of_another_device_is_refused() -> None:
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(2, device="openreg", generator=torch.Generator())
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(2, device="openreg:0", generator=torch.openreg.default_generators[1])


def test_default_generator_is_one_object() -> None:
    generators = torch.openreg.default_generators
    assert len(generators) == torch.openreg.device_count()
    assert generators[0].device == torch.device("openreg:0")
    assert torch.openreg.default_generator(0) is generators[0]


@pytest.mark.parametrize(("name", "size"), [("uniform_", 0), ("uniform_", 3), ("normal_", 3)])
def test_dtypes_without_such_numbers_are_refused(name: str, size: int) -> None:
    integers = torch.zeros(size, dtype=torch.int64, device="openreg")

    def fill() -> None:
        getattr(integers, name)()
        torch.openreg.synchronize()

    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        fill()
