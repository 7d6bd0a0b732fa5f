# SPDX-License-Identifier: BSD-3-Clause
"""The cases of each tier. They depend only on torch's version, and not on the subject.

The denominator is therefore fixed. A feature that a subject lacks counts as missing.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch_device_conformance.comparison.comparison import Depth
from torch_device_conformance.contract.rows import rows
from torch_device_conformance.mode.modes import DTYPES, SUITES, entries, load
from torch_device_conformance.verdict.verdict import Case

# The dtypes in order of preference. Parts that test one dtype per entry use the first one
# supported.
FIRST = ("float32", "complex64", "int64", "bool", "float64")


@dataclass(frozen=True)
class Part:
    """A part of a tier: some modes of a suite, in some dtypes.

    Attributes:
        suite: the suite.
        modes: the modes, which belong to the suite.
        dtypes: dtypes of the samples. If empty, one dtype is tested per entry.
    """

    suite: str
    modes: tuple[str, ...]
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tier:
    """A selection of cases, and settings for how thoroughly each case is run.

    Attributes:
        purpose: when to run the tier, and how long it takes.
        parts: the cases in addition to the contract, which every tier contains; None for all modes.
        samples: maximum number of samples per entry, or None for all.
        distributions: whether to compare the distributions of random operators.
    """

    purpose: str
    parts: tuple[Part, ...] | None
    samples: int | None
    distributions: bool

    def depth(self, seed: int) -> Depth:
        """Returns how thoroughly entries of the tier are compared."""
        return Depth(self.samples, seed, self.distributions)


FLOATS = ("float32", "float64", "float16", "bfloat16")

TIERS: Mapping[str, Tier] = {
    "quick": Tier(
        "for every change; takes at most 3 minutes on 2 cores",
        (
            Part("op", ("eager", "backward", "out", "inplace")),
            Part("module", ("train",)),
            Part("optim", ("steps",)),
        ),
        samples=2,
        distributions=False,
    ),
    "standard": Tier(
        "for every night; takes at most 30 minutes on 2 cores",
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
        "for every release; takes about an hour on 2 cores",
        None,
        samples=None,
        distributions=True,
    ),
}


@functools.cache
def cases(tier: str, modes: tuple[str, ...] = ()) -> Sequence[Case]:
    """Returns the cases of a tier in a fixed order that starts with the contract.

    Args:
        tier: name of the tier.
        modes: modules whose modes are added to the tier `full`.

    Raises:
        BadModes: a module cannot be used.
    """
    load(modes)
    found = dict.fromkeys(rows())
    every = (Part(suite, tuple(names), DTYPES) for suite, names in SUITES.items())
    for part in TIERS[tier].parts or every:
        for mode in part.modes:
            for name, entry in entries(part.suite, mode).items():
                known = [d for d in part.dtypes or FIRST if entry.supports(getattr(torch, d))]
                for dtype in known if part.dtypes else known[:1]:
                    found[Case(part.suite, mode, dtype, name)] = None
    return tuple(found)
