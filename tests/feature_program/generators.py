# SPDX-License-Identifier: BSD-3-Clause
"""Rules for generators: drawing, seeding, and saving and copying the state."""

import copy
import dataclasses
import pickle

import hypothesis.strategies as st
import torch

from tests.feature_program.model import DEVICES, Generator, Numbers, expect
from tests.feature_program.operators import DRAWS
from tests.feature_program.program import Missing, Program
from tests.feature_program.rules import rule, some


@rule(g=some, operator=st.sampled_from(sorted(DRAWS)), size=st.integers(0, 9))
def draw(program: Program, g: int, operator: str, size: int) -> None:
    generator = program.generators[g % len(program.generators)]
    program.settle(program.place(generator.device))
    ours = torch.empty(size, device=f"openreg:{generator.device}")
    DRAWS[operator](ours, generator.real)
    program.keep_result((expect(generator.numbers, operator, size, generator.device), ours))


@rule(g=some, seed=st.integers(0, 3), way=st.sampled_from(["generator", "torch", "all"]))
def seed(program: Program, g: int, seed: int, way: str) -> None:
    chosen = [program.generators[g % len(program.generators)]]
    if way == "generator":
        chosen[0].real.manual_seed(seed)
    else:
        chosen = program.generators[:DEVICES]
        (torch.manual_seed if way == "torch" else torch.openreg.manual_seed_all)(seed)
    for generator in chosen:
        generator.numbers.seed, generator.numbers.offset = seed, 0


@rule(g=some)
def save_state(program: Program, g: int) -> None:
    generator = program.generators[g % len(program.generators)]
    program.states.append((generator.real.get_state(), dataclasses.replace(generator.numbers)))


@rule(g=some, n=some)
def load_state(program: Program, g: int, n: int) -> None:
    if not program.states:
        raise Missing
    generator = program.generators[g % len(program.generators)]
    state, numbers = program.states[n % len(program.states)]
    generator.real.set_state(state)
    generator.numbers.seed, generator.numbers.offset = numbers.seed, numbers.offset


@rule(seed=st.integers(0, 3))
def fork_generators(program: Program, seed: int) -> None:
    """Draws inside fork_rng() must not advance the state outside."""
    with torch.random.fork_rng(range(DEVICES), device_type="openreg"):
        torch.manual_seed(seed)
        for device in range(DEVICES):
            program.settle(program.place(device))
            ours = torch.empty(4, device=f"openreg:{device}").random_(0, 97)
            theirs = expect(Numbers(seed), "random_", 4, device)
            program.keep_result((theirs, ours))


@rule(g=some, way=st.sampled_from(["share", "clone", "copy", "pickle"]))
def copy_generator(program: Program, g: int, way: str) -> None:
    """Replaces the device's generator with a copy. If both share a state, they share a sequence."""
    generator = program.generators[g % len(program.generators)]
    numbers = dataclasses.replace(generator.numbers)
    if way == "share":
        numbers = generator.numbers
        real = torch.Generator(f"openreg:{generator.device}")
        real.graphsafe_set_state(generator.real.graphsafe_get_state())
    elif way == "clone":
        real = generator.real.clone_state()
    elif way == "copy":
        real = copy.deepcopy(generator.real)
    else:
        real = pickle.loads(pickle.dumps(generator.real))
    program.generators[DEVICES + generator.device] = Generator(real, generator.device, numbers)
