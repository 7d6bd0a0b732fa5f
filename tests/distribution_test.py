# SPDX-License-Identifier: BSD-3-Clause
"""Random numbers follow their distributions and are independent of each other.

Each test sorts a large sample into bins and compares the counts with the exact probabilities
(chi-square test). Seeds are fixed, so every run has the same result. With a correct sampler, only
one seed in a million exceeds the bound.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise, permutations, product
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, distributions

DEVICE = torch.device("openreg")
COUNT = 100_000
DOUBTFUL = 1e-6
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=range(torch.openreg.device_count()), device_type="openreg"):
        torch.openreg.manual_seed_all(20)
        yield


def check_counts(counts: Any, probabilities: Any) -> None:
    """Compares how often each outcome was drawn with the probabilities, which sum to 1."""
    counts, probabilities = np.asarray(counts).ravel(), np.asarray(probabilities).ravel()
    expected = probabilities * counts.sum()
    assert not counts[expected == 0].any(), "an impossible value was drawn"
    rare = expected < 10  # too few draws for a separate bin
    if expected[rare].sum() > 0:
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    else:
        counts, expected = counts[~rare], expected[~rare]
    if len(counts) > 1:
        assert stats.chisquare(counts, expected, sum_check=False).pvalue > DOUBTFUL


def check_continuous(sample: Tensor, distribution: Any) -> None:
    """Checks floating-point values in 100 bins of equal probability, and in parts of the tails.

    Draws are rounded to values of the dtype, so each bin ends halfway between two such values.
    """
    assert sample.device.type == DEVICE.type
    assert torch.isfinite(sample).all()
    tails = np.array([1e-4, 1e-3])
    levels = np.unique(np.concatenate([tails, np.arange(0.01, 0.995, 0.01), 1 - tails]))
    edges = torch.tensor(distribution.ppf(levels)).to(sample.dtype)
    above = torch.nextafter(edges, torch.full_like(edges, torch.inf))
    edges = ((edges.double() + above.double()) / 2).unique()
    cells = torch.bucketize(sample.flatten().cpu().double(), edges)
    counts = np.bincount(cells.numpy(), minlength=len(edges) + 1)
    probabilities = np.diff(distribution.cdf(edges.numpy()), prepend=0.0, append=1.0)
    for size in (1, 13):  # many bins reveal holes and peaks, a few large bins reveal shifts
        first = np.arange(0, len(counts), size)
        check_counts(np.add.reduceat(counts, first), np.add.reduceat(probabilities, first))


def check_discrete(sample: Tensor, distribution: Any) -> None:
    """Checks integers of any dtype."""
    assert sample.device.type == DEVICE.type
    values = sample.flatten().cpu().double().numpy()
    assert (values == np.floor(values)).all()
    low, high = int(values.min()), int(values.max())
    outcomes = np.arange(low, high + 1)
    check_counts(
        [(values < low).sum(), *np.bincount((values - low).astype(np.int64)), 0],
        [distribution.cdf(low - 1), *distribution.pmf(outcomes), distribution.sf(high)],
    )


def check_independent(*uniforms: Tensor) -> None:
    """Checks that the values of several tensors, uniform in [0, 1), are jointly independent."""
    cells = [(sample.flatten().cpu().double().numpy() * 8).astype(np.int64) for sample in uniforms]
    together = np.ravel_multi_index(cells, [8] * len(cells))
    size = 8 ** len(cells)
    check_counts(np.bincount(together, minlength=size), np.full(size, 1 / size))


def empty(dtype: torch.dtype = torch.float32, count: int = COUNT) -> Tensor:
    return torch.empty(count, dtype=dtype, device=DEVICE)


def full(value: float, dtype: torch.dtype = torch.float32, count: int = COUNT) -> Tensor:
    return torch.full((count,), value, dtype=dtype, device=DEVICE)


# ----------------------------------------------------------- floating-point samples, for each dtype

CONTINUOUS: dict[str, tuple[Callable[[torch.dtype], Tensor], Any]] = {
    "normal_": (lambda dtype: empty(dtype).normal_(), stats.norm()),
    "normal_(-3, 0.5)": (lambda dtype: empty(dtype).normal_(-3, 0.5), stats.norm(-3, 0.5)),
    "randn": (lambda dtype: torch.randn(COUNT, dtype=dtype, device=DEVICE), stats.norm()),
    "randn_like": (lambda dtype: torch.randn_like(empty(dtype)), stats.norm()),
    "exponential_": (lambda dtype: empty(dtype).exponential_(), stats.expon()),
    "exponential_(4)": (lambda dtype: empty(dtype).exponential_(4), stats.expon(scale=1 / 4)),
    "cauchy_": (lambda dtype: empty(dtype).cauchy_(2, 0.5), stats.cauchy(2, 0.5)),
    "log_normal_": (
        lambda dtype: empty(dtype).log_normal_(0.5, 0.25),
        stats.lognorm(0.25, scale=np.exp(0.5)),
    ),
    # A non-contiguous 2-dim tensor, for which the kernels use a different loop.
    "strided normal_": (
        lambda dtype: torch.empty(500, 400, dtype=dtype, device=DEVICE).t()[:, ::2].normal_(),
        stats.norm(),
    ),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name: str, dtype: torch.dtype) -> None:
    draw, distribution = CONTINUOUS[name]
    sample = draw(dtype)
    assert sample.dtype == dtype
    check_continuous(sample, distribution)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("high", [1, 8])
def test_uniform(high: int, dtype: torch.dtype) -> None:
    sample = torch.rand_like(empty(dtype)) if high == 1 else empty(dtype).uniform_(0, high)
    assert 0 <= sample.min() <= sample.max() < high
    # Draws that would round to `high` are returned as 0. In the distribution, they belong to
    # `high`.
    check_continuous(torch.where(sample == 0, high, sample), stats.uniform(0, high))


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float64, 53), (torch.float32, 24)])
def test_lowest_bits_of_uniform(dtype: torch.dtype, digits: int) -> None:
    bits = torch.rand(COUNT, dtype=dtype, device=DEVICE) * 2**digits
    check_discrete(bits.long() % 256, stats.randint(0, 256))


@pytest.mark.parametrize("p", [0.0, 0.001, 0.3, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("dtype", [torch.bool, *FLOATS, *INTEGERS], ids=str)
def test_bernoulli(dtype: torch.dtype, p: float) -> None:
    check_discrete(empty(dtype).bernoulli_(p), stats.bernoulli(p))
    check_discrete(empty(dtype).bernoulli_(full(p)), stats.bernoulli(p))


def test_bernoulli_of_probabilities() -> None:
    p = torch.tensor([0.0, 0.1, 0.5, 0.9, 1.0], device=DEVICE)
    drawn = torch.bernoulli(p.expand(COUNT, 5))
    for column, probability in zip(drawn.unbind(1), p.tolist(), strict=True):
        check_discrete(column, stats.bernoulli(probability))


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32], ids=str)
def test_geometric(dtype: torch.dtype, p: float) -> None:
    check_discrete(empty(dtype).geometric_(p), stats.geom(p))


@pytest.mark.parametrize("rate", [0.0, 0.5, 3.0, 15.0, 200.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_poisson(dtype: torch.dtype, rate: float) -> None:
    check_discrete(torch.poisson(full(rate, dtype)), stats.poisson(rate))


@pytest.mark.parametrize(("count", "p"), [(1, 0.3), (10, 0.0), (10, 0.7), (10, 1.0), (1000, 0.4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_binomial(dtype: torch.dtype, count: int, p: float) -> None:
    check_discrete(torch.binomial(full(count, dtype), full(p, dtype)), stats.binom(count, p))


@pytest.mark.parametrize("concentration", [0.1, 1.0, 7.5])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_standard_gamma(dtype: torch.dtype, concentration: float) -> None:
    check_continuous(torch._standard_gamma(full(concentration, dtype)), stats.gamma(concentration))


def test_dirichlet() -> None:
    concentrations = torch.tensor([0.5, 1.0, 3.0], device=DEVICE)
    drawn = torch._sample_dirichlet(concentrations.expand(COUNT, 3))
    assert ((drawn.sum(1) - 1).abs() < 1e-5).all()
    for i, (mine, others) in enumerate([(0.5, 4.0), (1.0, 3.5), (3.0, 1.5)]):
        check_continuous(drawn[:, i], stats.beta(mine, others))


def test_normal_of_tensors() -> None:
    mean = torch.tensor([-2.0, 0.0, 3.0], device=DEVICE)
    deviation = torch.tensor([0.5, 1.0, 4.0], device=DEVICE)
    both = torch.normal(mean.expand(COUNT, 3), deviation.expand(COUNT, 3))
    only_mean = torch.normal(mean.expand(COUNT, 3), 2.0)
    only_deviation = torch.normal(1.0, deviation.expand(COUNT, 3))
    for i, (m, s) in enumerate(zip(mean.tolist(), deviation.tolist(), strict=True)):
        check_continuous(both[:, i], stats.norm(m, s))
        check_continuous(only_mean[:, i], stats.norm(m, 2))
        check_continuous(only_deviation[:, i], stats.norm(1, s))
    check_continuous(torch.normal(2.0, 3.0, (COUNT,), device=DEVICE), stats.norm(2, 3))


def test_complex_normal() -> None:
    """The variance of a complex value is the sum of the variances of its two parts."""
    drawn = torch.view_as_real(torch.randn(COUNT, dtype=torch.complex64, device=DEVICE))
    parts = (drawn * np.sqrt(2)).unbind(-1)
    for part in parts:
        check_continuous(part, stats.norm())
    check_independent(*(torch.special.ndtr(part) for part in parts))


# ---------------------------------------------------------------------------------- integer samples


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=str)
def test_random_of_a_small_range(dtype: torch.dtype) -> None:
    check_discrete(empty(dtype).random_(100), stats.randint(0, 100))
    check_discrete(torch.randint(7, 19, (COUNT,), dtype=dtype, device=DEVICE), stats.randint(7, 19))
    check_discrete(torch.randint_like(empty(dtype), 3), stats.randint(0, 3))
    if dtype.is_signed:
        check_discrete(empty(dtype).random_(-50, 50), stats.randint(-50, 50))


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        (torch.uint8, 8),
        (torch.int8, 7),
        (torch.int16, 15),
        (torch.int32, 31),
        (torch.int64, 63),
        (torch.bool, 1),
    ],
    ids=str,
)
def test_random_without_a_range(dtype: torch.dtype, bits: int) -> None:
    """Checks each bit of non-negative values, both alone and together with its neighbor."""
    drawn = empty(dtype).random_().long().cpu()
    assert drawn.min() >= 0
    shown = [drawn >> bit & 1 for bit in range(bits)]
    for bit in shown:
        check_counts(torch.bincount(bit, minlength=2), [0.5, 0.5])
    for low, high in pairwise(shown):
        check_counts(torch.bincount(2 * high + low, minlength=4), [0.25] * 4)
    assert int(drawn.max()).bit_length() == bits


@pytest.mark.parametrize(
    ("dtype", "digits"),
    [(torch.float64, 53), (torch.float32, 24), (torch.float16, 11), (torch.bfloat16, 8)],
)
def test_random_floats_without_a_range(dtype: torch.dtype, digits: int) -> None:
    """Results are integers up to 2**digits. The dtype can represent all of these."""
    drawn = empty(dtype).random_().cpu().double()
    assert torch.equal(drawn, drawn.floor())
    assert 0 <= drawn.min() <= drawn.max() <= 2**digits
    last = 2**digits
    outcomes = np.arange(65) * ((last + 1) / 64)
    counts, _ = np.histogram(drawn, np.ceil(outcomes))
    check_counts(counts, np.diff(np.ceil(outcomes)) / (last + 1))


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0, 2**32),
        (0, 3 * 2**30),  # the size is not a power of two
        (0, 3 * 2**31),
        (-(2**40), 2**40),
        (-(2**61), 2**61),
        # On every device, torch computes a 64-bit number modulo the size of the range. If a larger
        # size does not divide 2**64, numbers in the lower part of the range are noticeably more
        # frequent.
        (7, 7 + 5 * 2**48),
    ],
)
def test_random_of_a_large_range(low: int, high: int) -> None:
    """Checks 96 parts of the range for the upper bits, and a remainder for the lower bits."""
    drawn = torch.empty(COUNT, dtype=torch.int64, device=DEVICE).random_(low, high).tolist()
    assert low <= min(drawn) <= max(drawn) < high
    parts = [(value - low) * 96 // (high - low) for value in drawn]
    check_counts(np.bincount(parts, minlength=96), np.full(96, 1 / 96))
    remainders = [(value - low) % 61 for value in drawn]
    check_counts(np.bincount(remainders, minlength=61), np.full(61, 1 / 61))
    also = torch.randint(low, high, (COUNT,), device=DEVICE)
    assert low <= int(also.min()) <= int(also.max()) < high


def test_random_of_every_64_bit_number() -> None:
    drawn = torch.empty(COUNT, dtype=torch.int64, device=DEVICE).random_(-(2**63), None).cpu()
    for bit in range(64):
        check_counts(torch.bincount(drawn >> bit & 1, minlength=2), [0.5, 0.5])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.float32], ids=str)
def test_randperm(dtype: torch.dtype) -> None:
    drawn = torch.stack([torch.randperm(4, dtype=dtype, device=DEVICE) for _ in range(12_000)])
    orders = {order: i for i, order in enumerate(permutations(range(4)))}
    which = [orders[tuple(int(place) for place in order)] for order in drawn.tolist()]
    check_counts(np.bincount(which, minlength=24), np.full(24, 1 / 24))


def test_randperm_of_many() -> None:
    """Results are permutations, and their first, middle and last values are uniform."""
    size = 1000
    drawn = torch.stack([torch.randperm(size, device=DEVICE) for _ in range(2000)])
    assert (drawn.sort(1).values == torch.arange(size, device=DEVICE)).all()
    for place in (0, 500, 999):
        check_discrete(drawn[:, place] // 50, stats.randint(0, 20))
    check_independent(*(drawn[:, place] / size for place in (0, 1)))
    check_independent(*(drawn[:, place] / size for place in (998, 999)))


# --------------------------------------------------------------------- samples of torch.multinomial

WEIGHTS = [1.0, 0.0, 5.0, 2.0, 0.5]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_multinomial_with_replacement(dtype: torch.dtype) -> None:
    p = np.array(WEIGHTS) / sum(WEIGHTS)
    weights = torch.tensor([WEIGHTS, WEIGHTS[::-1]], dtype=dtype, device=DEVICE)
    drawn = torch.multinomial(weights, COUNT, replacement=True)
    for row, probabilities in zip(drawn.cpu(), (p, p[::-1]), strict=True):
        check_counts(torch.bincount(row, minlength=5), probabilities)
    pairs = drawn[0, ::2] * 5 + drawn[0, 1::2]
    check_counts(torch.bincount(pairs.cpu(), minlength=25), np.outer(p, p))
    rows = drawn[0] * 5 + drawn[1]
    check_counts(torch.bincount(rows.cpu(), minlength=25), np.outer(p, p[::-1]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_multinomial_without_replacement(dtype: torch.dtype) -> None:
    p = np.array(WEIGHTS) / sum(WEIGHTS)
    weights = torch.tensor(WEIGHTS, dtype=dtype, device=DEVICE).expand(COUNT, 5)
    first = torch.multinomial(weights, 1)
    check_counts(torch.bincount(first.flatten().cpu(), minlength=5), p)
    drawn = torch.multinomial(weights, 3)
    assert (drawn.sort(1).values.diff() > 0).all()
    triples = drawn[:, 0] * 25 + drawn[:, 1] * 5 + drawn[:, 2]
    expected = np.zeros((5, 5, 5))
    for i, j, k in product(range(5), repeat=3):
        if len({i, j, k}) == 3 and p[i] and p[j]:
            expected[i, j, k] = p[i] * p[j] / (1 - p[i]) * p[k] / (1 - p[i] - p[j])
    check_counts(torch.bincount(triples.cpu(), minlength=125), expected)


# --------------------------------------------------------------------- random functions in torch.nn


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_dropout(dtype: torch.dtype, p: float) -> None:
    """Kept elements are scaled. Drops are independent, both within a call and between calls."""
    drawn = torch.stack([F.dropout(full(3, dtype), p) for _ in range(3)])
    kept = drawn != 0
    scaled = full(3, dtype, 1) * (1 / (1 - p) if p < 1 else 0)
    torch.testing.assert_close(drawn[kept], scaled.expand(int(kept.sum())))
    check_discrete(kept, stats.bernoulli(1 - p))
    probabilities = np.array([p, 1 - p])
    for groups in (kept.t(), kept[0, : COUNT // 4 * 4].view(-1, 4)):
        size = groups.shape[1]
        powers = 2 ** torch.arange(size - 1, -1, -1, device=DEVICE)
        expected = probabilities
        for _ in range(size - 1):
            expected = np.outer(expected, probabilities).ravel()
        check_counts(torch.bincount((groups * powers).sum(1).cpu(), minlength=2**size), expected)


def test_dropout_of_channels() -> None:
    drawn = F.dropout2d(torch.ones(COUNT // 10, 4, 2, 3, device=DEVICE), 0.25)
    channels = drawn.flatten(2)
    assert (channels == channels[..., :1]).all()
    check_discrete(channels[..., 0] != 0, stats.bernoulli(0.75))


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    drawn = F.alpha_dropout(torch.randn(COUNT, device=DEVICE), 0.3, training=True)
    error = 6 / np.sqrt(COUNT)
    assert abs(drawn.mean().item()) < error
    assert abs(drawn.var().item() - 1) < 3 * error
    lowest = drawn.cpu().mode().values
    check_discrete(drawn.cpu().ne(lowest).to(DEVICE), stats.bernoulli(0.7))


def test_attention_dropout() -> None:
    """The values are unit vectors, so results are weights. Dropout turns 1/4 into 0 or 1/2."""
    tokens = torch.zeros(COUNT // 16, 1, 4, 4, device=DEVICE)
    values = torch.eye(4, device=DEVICE).expand_as(tokens)
    weights = F.scaled_dot_product_attention(tokens, tokens, values, dropout_p=0.5).flatten(0, 2)
    kept = weights != 0
    torch.testing.assert_close(weights, kept * 0.5)
    patterns = (kept * torch.tensor([8, 4, 2, 1], device=DEVICE)).sum(1)
    check_discrete(patterns, stats.randint(0, 16))


def test_leaky_noise() -> None:
    """rrelu multiplies negative values by slopes that are uniform between two bounds."""
    slopes = -F.rrelu(full(-1), 0.125, 0.375, training=True)
    check_continuous(slopes.double(), stats.uniform(0.125, 0.25))
    ones = F.rrelu(full(1), 0.125, 0.375, training=True)
    assert (ones == 1).all()


def test_initial_weights() -> None:
    weights = torch.empty(500, 200, device=DEVICE)
    check_continuous(
        torch.nn.init.trunc_normal_(weights, std=2, a=-3, b=1), stats.truncnorm(-1.5, 0.5, 0, 2)
    )
    bound = np.sqrt(6 / 700)
    check_continuous(torch.nn.init.xavier_uniform_(weights), stats.uniform(-bound, 2 * bound))
    check_continuous(torch.nn.init.xavier_normal_(weights), stats.norm(0, np.sqrt(2 / 700)))


# ------------------------------------------------------------------ samplers in torch.distributions


@pytest.mark.parametrize(
    ("kind", "parameters", "expected"),
    [
        (distributions.Uniform, (-1, 3), stats.uniform(-1, 4)),
        (distributions.Normal, (-1, 3), stats.norm(-1, 3)),
        (distributions.Laplace, (-1, 3), stats.laplace(-1, 3)),
        (distributions.Gumbel, (-1, 3), stats.gumbel_r(-1, 3)),
        (distributions.Cauchy, (-1, 3), stats.cauchy(-1, 3)),
        (distributions.HalfCauchy, (3,), stats.halfcauchy(0, 3)),
        (distributions.HalfNormal, (3,), stats.halfnorm(0, 3)),
        (distributions.LogNormal, (1, 0.5), stats.lognorm(0.5, scale=np.e)),
        (distributions.Exponential, (2,), stats.expon(scale=0.5)),
        (distributions.Gamma, (2.5, 4), stats.gamma(2.5, scale=0.25)),
        (distributions.InverseGamma, (2.5, 4), stats.invgamma(2.5, scale=4)),
        (distributions.Chi2, (3,), stats.chi2(3)),
        (distributions.Beta, (0.5, 2), stats.beta(0.5, 2)),
        (distributions.StudentT, (3,), stats.t(3)),
        (distributions.FisherSnedecor, (3, 7), stats.f(3, 7)),
        (distributions.Pareto, (2, 3), stats.pareto(3, scale=2)),
        (distributions.Weibull, (2, 3), stats.weibull_min(3, scale=2)),
        (distributions.VonMises, (0, 2), stats.vonmises(2)),
        (distributions.Bernoulli, (0.3,), stats.bernoulli(0.3)),
        (distributions.Binomial, (12, 0.3), stats.binom(12, 0.3)),
        (distributions.Poisson, (4,), stats.poisson(4)),
        (distributions.Geometric, (0.3,), stats.geom(0.3, loc=-1)),
        (distributions.NegativeBinomial, (5, 0.3), stats.nbinom(5, 0.7)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_torch_distributions(
    kind: Callable[..., distributions.Distribution], parameters: tuple[float, ...], expected: Any
) -> None:
    tensors = [torch.tensor(value, dtype=torch.float64, device=DEVICE) for value in parameters]
    sample = kind(*tensors).sample(torch.Size([COUNT]))
    (check_discrete if hasattr(expected, "pmf") else check_continuous)(sample, expected)


def test_categorical() -> None:
    weights = torch.tensor(WEIGHTS, device=DEVICE)
    drawn = distributions.Categorical(weights).sample(torch.Size([COUNT]))
    p = np.array(WEIGHTS) / sum(WEIGHTS)
    check_counts(torch.bincount(drawn.cpu(), minlength=5), p)
    hot = distributions.Multinomial(1, weights).sample(torch.Size([COUNT]))
    check_counts(hot.sum(0).cpu(), p)


def test_multivariate_normal() -> None:
    covariance = torch.tensor([[4.0, 1.2], [1.2, 1.0]], device=DEVICE)
    drawn = distributions.MultivariateNormal(torch.zeros(2, device=DEVICE), covariance).sample(
        (COUNT,)
    )
    check_continuous(drawn[:, 0], stats.norm(0, 2))
    check_continuous(drawn[:, 1], stats.norm(0, 1))
    rest = (drawn[:, 0] - 1.2 * drawn[:, 1]) / np.sqrt(4 - 1.2**2)
    check_independent(torch.special.ndtr(rest), torch.special.ndtr(drawn[:, 1]))


# ------------------------------------------------------------------- independence of random numbers


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("distance", [1, 2, 4, 8, 16, 624])
def test_numbers_of_a_call(dtype: torch.dtype, distance: int) -> None:
    """Values are independent of near values, and of those one twister state (624) away."""
    uniform = torch.rand(COUNT, dtype=dtype, device=DEVICE)
    normal = torch.special.ndtr(torch.randn(COUNT, dtype=dtype, device=DEVICE).double())
    for sample in (uniform, normal):
        check_independent(sample[:-distance], sample[distance:])


def test_three_neighbours() -> None:
    check_independent(*torch.rand(COUNT, 3, device=DEVICE).unbind(1))
    check_independent(*torch.special.ndtr(torch.randn(COUNT, 3, device=DEVICE)).unbind(1))


def test_calls() -> None:
    check_independent(*(torch.rand(COUNT, device=DEVICE) for _ in range(3)))
    # Draw only a few values per call, as training steps do when they draw a scalar.
    firsts = torch.stack([torch.rand(2, device=DEVICE) for _ in range(20_000)])
    check_discrete((firsts * 50).floor(), stats.randint(0, 50))
    check_independent(*firsts.unbind(1))
    check_independent(firsts[:-1, 0], firsts[1:, 0])


def test_seeds() -> None:
    """Seeds that differ by one, or only in their upper half, yield independent numbers."""
    samples = []
    for seed in (0, 1, 2**32):
        torch.openreg.manual_seed(seed)
        samples.append(torch.rand(COUNT, device=DEVICE))
    check_independent(*samples)
    firsts = []
    for seed in range(20_000):
        torch.openreg.manual_seed(seed)
        firsts.append(torch.rand(1, device=DEVICE))
    check_independent(torch.cat(firsts)[:-1], torch.cat(firsts)[1:])


def test_devices_with_other_seeds() -> None:
    torch.openreg.default_generators[0].manual_seed(1)
    torch.openreg.default_generators[1].manual_seed(2)
    drawn = [torch.rand(COUNT, device=f"openreg:{i}").to(DEVICE) for i in range(2)]
    check_independent(*drawn)


def test_the_device_and_the_cpu_with_one_seed() -> None:
    torch.manual_seed(5)
    check_independent(torch.rand(COUNT), torch.rand(COUNT, device=DEVICE))
