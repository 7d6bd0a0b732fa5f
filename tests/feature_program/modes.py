# SPDX-License-Identifier: BSD-3-Clause
"""Rules for thread-local modes: gradients, inference, autocast and memory pools."""

import contextlib

import hypothesis.strategies as st
import torch

from tests.feature_program.program import Program
from tests.feature_program.rules import rule


@rule(mode=st.sampled_from(["no_grad", "enable_grad", "inference", "autocast", "pool 0", "pool 1"]))
def enter(program: Program, mode: str) -> None:
    """Enters a region of a mode. It lasts until the same thread calls ``leave``."""
    context = contextlib.ExitStack()
    if mode == "autocast":
        for kind in ("cpu", "openreg"):
            context.enter_context(torch.autocast(kind, torch.bfloat16))
    elif mode.startswith("pool"):
        device = int(mode[-1])
        if device not in program.pools:
            program.pools[device] = torch.openreg.MemPool(device=device)
        context.enter_context(torch.openreg.use_mem_pool(program.pools[device]))
    else:
        context.enter_context(
            {
                "no_grad": torch.no_grad,
                "enable_grad": torch.enable_grad,
                "inference": torch.inference_mode,
            }[mode]()
        )
    program.modes[program.worker].append(context)


@rule()
def leave(program: Program) -> None:
    if program.modes[program.worker]:
        program.modes[program.worker].pop().__exit__(None, None, None)
