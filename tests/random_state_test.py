# SPDX-License-Identifier: BSD-3-Clause
"""Generators are reproducible and independent, and their state can be restored."""

import copy
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, distributed
from torch.distributed import tensor as distributed_tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Placement, Replicate, Shard
from torch.distributed.tensor import _random as distributed_random
from torch.distributed.tensor._random import OffsetBasedRNGTracker
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from tests.devices import LAST, LAST_INDEX, needs_two_devices


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


def tensor(value: float = 0.5, *shape: int) -> Tensor:
    return torch.full(shape or (64,), value, dtype=torch.float32, device="openreg")


def attend(operator: Callable[..., Any]) -> Any:
    tokens = tensor(0.5, 1, 2, 4, 8)
    return operator(tokens, tokens, torch.eye(4, 8, device="openreg").expand(1, 2, 4, 8))


def layers(kind: Callable[..., torch.nn.Module]) -> Any:
    """Runs two recurrent layers with fixed weights and dropout between them."""
    with torch.random.fork_rng(devices=range(torch.openreg.device_count())):
        torch.manual_seed(0)
        network = kind(4, 4, num_layers=2, dropout=0.5).to("openreg")
    return network(tensor(0.5, 3, 4))


aten = torch.ops.aten

# One call to each random operator that has a device kernel. Overloads are not listed, because they
# use the same code.
DRAWS: dict[str, Callable[[], Any]] = {
    "_fused_dropout": lambda: torch._fused_dropout(tensor(), 0.5),
    "_sample_dirichlet": lambda: torch._sample_dirichlet(tensor(2)),
    "_scaled_dot_product_attention_math": lambda: attend(
        partial(aten._scaled_dot_product_attention_math, dropout_p=0.5)
    ),
    "_standard_gamma": lambda: torch._standard_gamma(tensor(2)),
    "alpha_dropout": lambda: torch.alpha_dropout(tensor(), 0.5, True),
    "bernoulli": lambda: torch.bernoulli(tensor()),
    "binomial": lambda: torch.binomial(tensor(9), tensor()),
    "cauchy": lambda: aten.cauchy(tensor()),
    "dropout": lambda: torch.dropout(tensor(), 0.5, True),
    "exponential": lambda: aten.exponential(tensor()),
    "feature_alpha_dropout": lambda: torch.feature_alpha_dropout(tensor(1, 8, 8), 0.5, True),
    "feature_dropout": lambda: torch.feature_dropout(tensor(1, 8, 8), 0.5, True),
    "geometric": lambda: aten.geometric(tensor(), 0.1),
    "gru": lambda: layers(torch.nn.GRU),
    "log_normal": lambda: aten.log_normal(tensor()),
    "lstm": lambda: layers(torch.nn.LSTM),
    "multinomial": lambda: torch.multinomial(tensor(), 32),
    "native_dropout": lambda: torch.native_dropout(tensor(), 0.5, True),
    "normal": lambda: torch.normal(tensor(), tensor()),
    "normal_functional": lambda: aten.normal_functional(tensor()),
    "poisson": lambda: torch.poisson(tensor(9)),
    "rand": lambda: torch.rand(64, device="openreg"),
    "rand_like": lambda: torch.rand_like(tensor()),
    "randint": lambda: torch.randint(0, 1000, (64,), device="openreg"),
    "randint_like": lambda: torch.randint_like(tensor(), 1000),
    "randn": lambda: torch.randn(64, device="openreg"),
    "randn_like": lambda: torch.randn_like(tensor()),
    "random": lambda: aten.random(tensor()),
    "randperm": lambda: torch.randperm(64, device="openreg"),
    "rnn_relu": lambda: layers(partial(torch.nn.RNN, nonlinearity="relu")),
    "rnn_tanh": lambda: layers(torch.nn.RNN),
    "rrelu": lambda: torch.rrelu(tensor(-1), 0.1, 0.9, True),
    "rrelu_with_noise": lambda: aten.rrelu_with_noise(tensor(-1), tensor(), 0.1, 0.9, True),
    "rrelu_with_noise_functional": lambda: aten.rrelu_with_noise_functional(
        tensor(-1), tensor(), 0.1, 0.9, True
    ),
    "scaled_dot_product_attention": lambda: attend(
        partial(torch.nn.functional.scaled_dot_product_attention, dropout_p=0.5)
    ),
    "uniform": lambda: aten.uniform(tensor()),
    # Random operators that work in place.
    "alpha_dropout_": lambda: torch.alpha_dropout_(tensor(), 0.5, True),
    "bernoulli_": lambda: tensor().bernoulli_(),
    "cauchy_": lambda: tensor().cauchy_(),
    "dropout_": lambda: torch.dropout_(tensor(), 0.5, True),
    "exponential_": lambda: tensor().exponential_(),
    "feature_alpha_dropout_": lambda: torch.feature_alpha_dropout_(tensor(1, 8, 8), 0.5, True),
    "feature_dropout_": lambda: torch.feature_dropout_(tensor(1, 8, 8), 0.5, True),
    "geometric_": lambda: tensor().geometric_(0.1),
    "log_normal_": lambda: tensor().log_normal_(),
    "normal_": lambda: tensor().normal_(),
    "random_": lambda: tensor().random_(),
    "rrelu_": lambda: torch.rrelu_(tensor(-1), 0.1, 0.9, True),
    "rrelu_with_noise_": lambda: aten.rrelu_with_noise_(tensor(-1), tensor(), 0.1, 0.9, True),
    "uniform_": lambda: tensor().uniform_(),
}

# torch tags these operators as random, but they draw nothing on this device. The first one selects
# an implementation, and the others do not support dropout.
NOT_RANDOM = {
    "_fused_sdp_choice",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_fused_attention_overrideable",
}


def drawn(draw: Callable[[], Any]) -> Tensor:
    """Makes a call. Returns all values of its results as one CPU tensor."""
    return torch.cat([result.flatten().double().cpu() for result in tree_leaves(draw())])


def overload(name: str) -> torch._ops.OpOverload:
    packet, _, variant = name.removeprefix("aten::").partition(".")
    found: torch._ops.OpOverload = getattr(getattr(aten, packet), variant or "default")
    return found


def test_every_random_operator_is_here() -> None:
    reachable = {
        name.removeprefix("aten::").split(".")[0]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
        and not name.partition(".")[2].endswith("out")
        and any(
            torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
            for key in (
                "CompositeExplicitAutograd",
                "CompositeImplicitAutograd",
                "CPU",
                "PrivateUse1",
            )
        )
        and torch.Tag.nondeterministic_seeded in overload(name).tags
    }
    assert reachable == DRAWS.keys() | NOT_RANDOM


@pytest.mark.parametrize("name", DRAWS)
def test_every_random_operator_repeats(name: str) -> None:
    draw = DRAWS[name]
    torch.openreg.manual_seed_all(5)
    of_cpu, (_, *of_others) = torch.get_rng_state(), torch.openreg.get_rng_state_all()
    first = drawn(draw)
    following = drawn(draw)
    state = torch.openreg.get_rng_state()
    third = drawn(draw)
    torch.openreg.manual_seed(5)
    assert torch.equal(drawn(draw), first)
    assert torch.equal(drawn(draw), following)
    assert torch.equal(torch.openreg.get_rng_state(), state)
    assert torch.equal(drawn(draw), third)
    assert not torch.equal(first, following)
    assert not torch.equal(following, third)
    # The call must use neither the CPU's generator nor that of another device.
    assert torch.equal(torch.get_rng_state(), of_cpu)
    for state, after in zip(of_others, torch.openreg.get_rng_state_all()[1:], strict=True):
        assert torch.equal(state, after)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_dropout_of_nested_tensors_repeats(layout: torch.layout) -> None:
    nested = torch.nested.nested_tensor([torch.ones(3, 8), torch.ones(5, 8)], layout=layout)

    def draw() -> list[Tensor]:
        kept = torch.nn.functional.dropout(nested.to("openreg"), 0.5)
        return [row.clone() for row in kept.unbind()]

    before = torch.get_rng_state()
    torch.openreg.manual_seed(5)
    first = drawn(draw)
    assert set(first.tolist()) == {0.0, 2.0}
    assert not torch.equal(drawn(draw), first)
    torch.openreg.manual_seed(5)
    assert torch.equal(drawn(draw), first)
    assert torch.equal(torch.get_rng_state(), before)


LARGE: list[Callable[[], Tensor]] = [
    lambda: torch.rand(100_000, device="openreg"),
    lambda: torch.randn(100_000, device="openreg"),
    lambda: torch.randint(0, 1000, (100_000,), device="openreg"),
    lambda: torch.randperm(100_000, device="openreg"),
    lambda: tensor(0.3, 100_000).bernoulli(),
    lambda: tensor(0.3, 100_000).exponential_(),
    lambda: torch.poisson(tensor(7, 100_000)),
    lambda: torch._standard_gamma(tensor(7, 100_000)),
    lambda: torch.multinomial(tensor(1, 1000), 100_000, replacement=True),
    lambda: torch.nn.functional.dropout(tensor(1, 100_000)),
]


def test_numbers_do_not_depend_on_threads() -> None:
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            torch.openreg.manual_seed(5)
            results.append([drawn(draw) for draw in LARGE])
    finally:
        torch.set_num_threads(before)
    for single, *others in zip(*results, strict=True):
        assert all(torch.equal(other, single) for other in others)


def test_numbers_do_not_depend_on_time() -> None:
    """Random numbers depend on the order of launches, not on the order of execution."""
    streams = [torch.openreg.Stream() for _ in range(2)]
    results = []
    for delayed in (0, 1):
        torch.openreg.manual_seed(5)
        sample = []
        with torch.openreg.stream(streams[delayed]):
            torch.openreg._sleep(20_000_000)  # nanoseconds, long enough for all later launches
        for i in range(10):
            with torch.openreg.stream(streams[i % 2]):
                sample.append(torch.rand(100, device="openreg"))
        torch.openreg.synchronize()
        results.append(torch.stack(sample))
    assert torch.equal(*results)


def test_state_is_restored() -> None:
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
    first = numbers("openreg:0"), numbers(LAST)
    torch.openreg.set_rng_state_all(states)
    assert (numbers("openreg:0"), numbers(LAST)) == first


@pytest.mark.parametrize("state", [torch.zeros(4, dtype=torch.uint8), torch.zeros(16)], ids=str)
def test_a_bad_state_is_refused(state: torch.Tensor) -> None:
    before = torch.openreg.get_rng_state()
    with pytest.raises((RuntimeError, TypeError)):
        torch.openreg.set_rng_state(state)
    assert torch.equal(torch.openreg.get_rng_state(), before)


@needs_two_devices
def test_devices_are_independent() -> None:
    torch.openreg.manual_seed_all(3)
    alone = numbers(LAST)
    torch.openreg.manual_seed_all(3)
    numbers("openreg:0")
    assert numbers(LAST) == alone
    torch.openreg.manual_seed(9)  # seeds only the current device
    assert torch.openreg.default_generators[0].initial_seed() == 9
    assert torch.openreg.default_generators[1].initial_seed() == 3


def test_fork_rng() -> None:
    torch.openreg.manual_seed_all(1)
    with torch.random.fork_rng(devices=[0]):
        inside = numbers()
        torch.openreg.manual_seed(99)
    assert numbers() == inside


@needs_two_devices
def test_fork_rng_of_one_device() -> None:
    torch.openreg.manual_seed_all(1)
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


def test_a_generator_of_the_cpu_is_refused() -> None:
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(2, device="openreg", generator=torch.Generator())


@needs_two_devices
def test_a_generator_of_another_device_is_refused() -> None:
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(2, device="openreg:0", generator=torch.openreg.default_generators[1])


def test_default_generator_is_one_object() -> None:
    generators = torch.openreg.default_generators
    assert len(generators) == torch.openreg.device_count()
    assert generators[0].device == torch.device("openreg:0")
    assert torch.openreg.default_generator(0) is generators[0]


def test_the_seed_of_torch_governs_every_device() -> None:
    torch.manual_seed(11)
    for i, generator in enumerate(torch.openreg.default_generators):
        assert generator.initial_seed() == 11
        numbers(f"openreg:{i}")
    states = torch.openreg.get_rng_state_all()
    torch.manual_seed(11)
    for i in range(torch.openreg.device_count()):
        numbers(f"openreg:{i}")
    for state, again in zip(states, torch.openreg.get_rng_state_all(), strict=True):
        assert torch.equal(state, again)


def test_fork_rng_of_all_devices() -> None:
    states = torch.openreg.get_rng_state_all()
    with torch.random.fork_rng(devices=range(len(states)), device_type="openreg"):
        torch.openreg.manual_seed_all(99)
        for i in range(len(states)):
            numbers(f"openreg:{i}")
    for state, after in zip(states, torch.openreg.get_rng_state_all(), strict=True):
        assert torch.equal(state, after)
    with torch.random.fork_rng(enabled=False, device_type="openreg"):
        numbers()
    assert not torch.equal(torch.openreg.get_rng_state(), states[0])


@pytest.mark.parametrize("index", sorted({0, LAST_INDEX}))
def test_own_generator_of_each_device(index: int) -> None:
    device = torch.device("openreg", index)
    generator = torch.Generator(device=device).manual_seed(4)
    assert generator.device == device
    assert generator.initial_seed() == 4
    states = torch.openreg.get_rng_state_all()
    draws: list[Callable[[], Tensor]] = [
        lambda: torch.randn(64, device=device, generator=generator),
        lambda: torch.randint(9999, (64,), device=device, generator=generator),
        lambda: torch.randperm(64, device=device, generator=generator),
        lambda: torch.ones(64, device=device).exponential_(generator=generator),
        lambda: torch.bernoulli(torch.full((64,), 0.5, device=device), generator=generator),
        lambda: torch.multinomial(torch.ones(64, device=device), 32, generator=generator),
        lambda: torch.poisson(torch.full((64,), 99.0, device=device), generator=generator),
        lambda: torch.normal(0.0, torch.ones(64, device=device), generator=generator),
    ]
    for draw in draws:
        state = generator.get_state()
        offset = generator.get_offset()
        first = draw()
        assert generator.get_offset() > offset
        assert not torch.equal(draw(), first)
        generator.set_state(state)
        assert torch.equal(draw(), first)
        generator.set_offset(offset)
        assert torch.equal(draw(), first)
    for state, after in zip(states, torch.openreg.get_rng_state_all(), strict=True):
        assert torch.equal(state, after)


def test_offsets_of_the_default_generators() -> None:
    torch.openreg.manual_seed_all(3)
    offset = torch.openreg._get_rng_state_offset(LAST)
    first = torch.rand(64, device=LAST)
    assert torch.openreg._get_rng_state_offset(LAST) > offset
    assert torch.openreg._get_rng_state_offset() == torch.openreg._get_rng_state_offset(0)
    torch.openreg._set_rng_state_offset(offset, LAST)
    assert torch.equal(torch.rand(64, device=LAST), first)


@pytest.mark.parametrize("index", sorted({0, LAST_INDEX}))
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_dropout(reentrant: bool, index: int) -> None:
    """The recomputation in the backward pass must drop the same elements as the forward pass."""
    device = torch.device("openreg", index)
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.Linear(64, 32)
    ).to(device)
    noise = torch.nn.Dropout(0.3)
    x = torch.randn(16, 32, device=device)

    def train(remembers: bool, checkpointed: bool) -> tuple[Tensor, list[Tensor], Tensor]:
        torch.manual_seed(3)
        start = x.clone().requires_grad_()
        hidden = noise(start)
        for _ in range(2):
            hidden = (
                checkpoint(network, hidden, use_reentrant=reentrant, preserve_rng_state=remembers)
                if checkpointed
                else network(hidden)
            )
        result = noise(hidden)
        result.square().sum().backward()
        gradients = [start.grad, *(parameter.grad for parameter in network.parameters())]
        network.zero_grad()
        assert all(gradient is not None for gradient in gradients)
        # The final draw differs if the backward pass advanced the generator. It must not do so.
        return result, gradients, torch.rand(8, device=device)  # type: ignore[return-value]

    plain = train(remembers=True, checkpointed=False)
    torch.testing.assert_close(train(remembers=True, checkpointed=True), plain, rtol=0, atol=0)
    # Check that the comparison above can fail: without the saved state, recomputation drops other
    # elements.
    result, gradients, _ = train(remembers=False, checkpointed=True)
    assert torch.equal(result, plain[0])
    assert not torch.allclose(gradients[0], plain[1][0])


@pytest.mark.parametrize(("name", "size"), [("uniform_", 0), ("uniform_", 3), ("normal_", 3)])
def test_dtypes_without_such_numbers_are_refused(name: str, size: int) -> None:
    integers = torch.zeros(size, dtype=torch.int64, device="openreg")

    def fill() -> None:
        getattr(integers, name)()
        torch.openreg.synchronize()

    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        fill()


def shard_numbers(rank: int, placement: Placement) -> tuple[list[float], Tensor]:
    """Draws one rank's part of a tensor on four ranks. Returns the numbers and the final state."""
    distributed.init_process_group("openreg:fake", rank=rank, world_size=4, store=FakeStore())
    try:
        # init_device_mesh() accepts no device type with an underscore.
        mesh = DeviceMesh("openreg", list(range(4)))
        assert distributed_random.is_rng_supported_mesh(mesh)
        torch.manual_seed(7)
        drawn = distributed_tensor.rand(8, 4, device_mesh=mesh, placements=[placement])
        assert drawn.device.type == "openreg"
        assert isinstance(distributed_random._rng_tracker, OffsetBasedRNGTracker)
        return drawn.to_local().flatten().tolist(), torch.openreg.get_rng_state()
    finally:
        distributed_random._rng_tracker = None
        distributed.destroy_process_group()


def test_the_tracker_of_distributed_tensors() -> None:
    """Runs torch's tracker, which reads and writes the 16-byte state, for each rank in turn."""
    sharded = [shard_numbers(rank, Shard(0)) for rank in range(4)]
    replicated = [shard_numbers(rank, Replicate()) for rank in range(4)]
    # Different shards must contain different numbers, and replicas must contain equal numbers. All
    # ranks must have the same state.
    assert len({number for numbers, _ in sharded for number in numbers}) == 8 * 4
    assert all(numbers == replicated[0][0] for numbers, _ in replicated)
    for ranks in (sharded, replicated):
        for _, state in ranks:
            seed, offset = state.view(torch.int64).tolist()
            assert seed == 7
            assert offset > 0
            assert torch.equal(state, ranks[0][1])


def test_shared_state() -> None:
    """Generators share a state after graphsafe_set_state(). get_state() returns a copy."""
    first = torch.Generator(device=LAST).manual_seed(3)
    second = torch.Generator(device=LAST).manual_seed(4)
    second.graphsafe_set_state(first.graphsafe_get_state())
    copied = first.clone_state()
    torch.rand(8, device=LAST, generator=first)
    assert second.get_offset() == first.get_offset() > 0
    assert second.initial_seed() == 3
    assert copied.get_offset() == 0
    second.manual_seed(5)
    assert first.initial_seed() == 5
    with pytest.raises(RuntimeError, match="expected the state of an openreg generator"):
        first.graphsafe_set_state(torch.Generator())


def test_operators_without_elements_draw_nothing() -> None:
    generator = torch.Generator(device=LAST).manual_seed(3)
    for shape in ((0,), (2, 0)):
        torch.rand(shape, device=LAST, generator=generator)
        torch.randn(shape, device=LAST, generator=generator)
        torch.randint(3, shape, device=LAST, generator=generator)
        torch.empty(shape, device=LAST).bernoulli_(generator=generator)
    assert generator.get_offset() == 0


def test_offsets() -> None:
    generator = torch.Generator(device=LAST).manual_seed(3)
    numbers = torch.rand(64, device=LAST, generator=generator)
    after = generator.get_offset()
    generator.set_offset(0)
    assert torch.equal(torch.rand(64, device=LAST, generator=generator), numbers)
    generator.set_offset(after + 4)
    assert generator.get_state().view(torch.int64).tolist() == [3, after + 4]
    with pytest.raises(RuntimeError, match="must be a multiple of 4, but got 3"):
        generator.set_offset(3)
    assert generator.get_offset() == after + 4


BAD_STATES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "device": (lambda: tensor(0, 16).byte(), TypeError, "must be a torch.ByteTensor on the CPU"),
    "dtype": (lambda: torch.zeros(2, dtype=torch.int64), TypeError, "must be a torch.ByteTensor"),
    "text": (lambda: "state", TypeError, "expected a torch.ByteTensor, but got str"),
    "size": (lambda: torch.zeros(15, dtype=torch.uint8), RuntimeError, "have 16 .* but got 15"),
    "gaps": (lambda: torch.zeros(32, dtype=torch.uint8)[::2], RuntimeError, "16 contiguous bytes"),
    "CPU's": (lambda: torch.Generator().get_state(), RuntimeError, "have 16 .* but got 5056"),
    "offset": (
        lambda: torch.tensor([1, 3]).view(torch.uint8),
        RuntimeError,
        "must be a multiple of 4, but got 3",
    ),
}


@pytest.mark.parametrize(("make", "error", "message"), BAD_STATES.values(), ids=BAD_STATES)
def test_errors_of_invalid_states(
    make: Callable[[], Any], error: type[Exception], message: str
) -> None:
    generator = torch.Generator(device="openreg").manual_seed(3)
    with pytest.raises(error, match=message):
        generator.set_state(make())
    assert generator.get_state().view(torch.int64).tolist() == [3, 0]


@pytest.mark.parametrize("again", [copy.deepcopy, lambda given: pickle.loads(pickle.dumps(given))])
def test_generators_are_copied_with_their_state(again: Callable[[Any], Any]) -> None:
    generator = torch.Generator(device=LAST).manual_seed(3)
    torch.rand(8, device=LAST, generator=generator)
    other = again(generator)
    assert other.device == torch.device(LAST)
    assert torch.equal(other.get_state(), generator.get_state())
    numbers = torch.rand(8, device=LAST, generator=generator)
    assert torch.equal(torch.rand(8, device=LAST, generator=other), numbers)
    state = generator.get_state()
    assert torch.equal(again(state), state)
