# SPDX-License-Identifier: BSD-3-Clause
"""``torch.compile(backend="openreg")``: checks what torch captured, and runs it unfused.

Torch finds it by the entry point ``openreg`` of group ``torch_dynamo_backends``.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from openreg_graph import log
from torch import fx

from torch_openreg_compile import checkpointing, dead_code
from torch_openreg_compile.validation import validate


def openreg(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Take a graph that torch._dynamo captured, for one set of guards.

    The graph is checked (``validation``), dead code goes (``dead_code``), checkpointed regions
    become calls that run without AOTAutograd (``checkpointing``). The source is logged under
    artifact ``openreg_graph``.

    Args:
        gm: the graph; it is changed in place.
        example_inputs: the values of its placeholders, in their order.
        mode: none is known besides torch's default.
        options: none are known.

    Returns:
        The graph's forward. Autograd, autocast and streams are those of the caller.

    Raises:
        GraphError: where the graph or an input is refused; torch puts it into a
        BackendCompilerFailed. ValueError: for a mode or an option that is not known.
    """
    if mode not in (None, "default"):
        raise ValueError(
            f"openreg: torch.compile(mode={mode!r}) is not known to backend openreg: leave it out"
        )
    if options:
        unknown = ", ".join(repr(name) for name in options)
        raise ValueError(
            f"openreg: torch.compile(options=...) has {unknown}, but backend openreg has no "
            "options: leave them out"
        )
    validate(gm, example_inputs)
    removed = dead_code.eliminate(gm)
    checkpointing.lower(gm)
    gm.recompile()
    if log.isEnabledFor(logging.DEBUG):
        if removed:
            log.debug("dead code: %s", ", ".join(removed))
        source = gm.print_readable(print_output=False, include_stride=True, include_device=True)
        log.debug("%s", source)
    return gm.forward
