# SPDX-License-Identifier: BSD-3-Clause
"""Which cases a tier has. They follow from the version of torch alone, not from the subject.

So the denominator is fixed: what a subject does not have is missing, not left out.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch_device_conformance.comparison.comparison import Depth
from torch_device_conformance.contract.rows import rows
from torch_device_conformance.mode.modes import DTYPES, SUITES, entries
from torch_device_conformance.verdict.verdict import Case

# The one dtype of an entry where a tier takes one: the first of these that it supports.
FIRST = ("float32", "complex64", "int64", "bool", "float64")


@dataclass(frozen=True)
class Part:
    """Some modes of a suite with some dtypes.

    Attributes:
        suite: of the cases.
        modes: of the suite.
        dtypes: of the samples; empty for one dtype an entry.
    """

    suite: str
    modes: tuple[str, ...]
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tier:
    """A choice of cases, and how much of each is run.

    Attributes:
        purpose: for whom.
        parts: without the contract, which is in every tier.
        samples: of an entry, at most; None for all.
        distributions: whether the distributions of random operators are compared.
    """

    purpose: str
    parts: tuple[Part, ...]
    samples: int | None
    distributions: bool

    def depth(self, seed: int) -> Depth:
        """How much of an entry is compared."""
        return Depth(self.samples, seed, self.distributions)


FLOATS = ("float32", "float64", "float16", "bfloat16")

TIERS: Mapping[str, Tier] = {
    "quick": Tier(
        "each change: at most 3 minutes on 2 cores",
        (
            Part("op", ("eager", "backward", "out", "inplace")),
            Part("module", ("train",)),
            Part("optim", ("steps",)),
        ),
        samples=2,
        distributions=False,
    ),
    "standard": Tier(
        "each night: at most 30 minutes on 2 cores",
        (
            Part("op", ("eager",), DTYPES),
            Part("op", ("backward",), ("float32", "bfloat16", "complex64")),
            Part(
                "op",
                (
                    "out",
                    "inplace",
                    "noncontiguous",
                    "forward_ad",
                    "autocast_bfloat16",
                    "autocast_float16",
                    "other_stream",
                    "errors",
                    "mixed_devices",
                ),
            ),
            Part("op", ("accelerator_dtypes",), DTYPES),
            Part("module", ("train",), FLOATS),
            Part("optim", ("steps",), FLOATS),
        ),
        samples=4,
        distributions=False,
    ),
    "full": Tier(
        "each release: hours, in shards",
        tuple(Part(suite, tuple(modes), DTYPES) for suite, modes in SUITES.items()),
        samples=None,
        distributions=True,
    ),
}


@functools.cache
def cases(tier: str) -> Sequence[Case]:
    """The cases of a tier, always in the same order: the contract first."""
    found = dict.fromkeys(rows())
    for part in TIERS[tier].parts:
        for mode in part.modes:
            for name, entry in entries(part.suite, mode).items():
                known = [d for d in part.dtypes or FIRST if entry.supports(getattr(torch, d))]
                for dtype in known if part.dtypes else known[:1]:
                    found[Case(part.suite, mode, dtype, name)] = None
    return tuple(found)
