# SPDX-License-Identifier: BSD-3-Clause
"""``torch.compile(backend="openreg")``: checks what torch captured, and runs it.

Torch finds it, and ``openreg_debug`` which also reports, by entry points of group
``torch_dynamo_backends``.
"""

import functools
import importlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from openreg_graph import log, log_source
from torch import fx

from torch_openreg_compile import checkpointing, dead_code
from torch_openreg_compile.options import parse
from torch_openreg_compile.validation import validate

#: Modes of torch.compile, as options.
_MODES: dict[str | None, dict[str, Any]] = {
    None: {},
    "default": {},
    "reduce-overhead": {"passes": [], "then": "graph"},
}


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
        mode: "reduce-overhead" stands for options ``{"passes": [], "then": "graph"}``.
        options: what ``torch_openreg_compile.options.Options`` has. Without any the graph runs
            as it was captured; with some it goes through passes and AOTAutograd (``pipeline``).

    Returns:
        What runs the graph: its forward, where autograd, autocast and streams are those of the
        caller, or, with options, what they say.

    Raises:
        GraphError: where the graph or an input is refused; torch puts it into a
        BackendCompilerFailed. ValueError: for a mode or an option that is not known.
    """
    if mode not in _MODES:
        raise ValueError(
            f"openreg: torch.compile(mode={mode!r}) is not known to backend openreg: leave it out, "
            "or give 'reduce-overhead'"
        )
    given = {**_MODES[mode], **(options or {})}
    chosen = parse(given) if given else None
    validate(gm, example_inputs)
    removed = dead_code.eliminate(gm)
    if removed:
        log.debug("dead code: %s", ", ".join(removed))
    if chosen is not None:
        # It imports Inductor's pattern matcher, which takes seconds.
        run = importlib.import_module("torch_openreg_compile.pipeline").run
        return cast(Callable[..., Any], run(gm, example_inputs, chosen))
    checkpointing.lower(gm)
    gm.recompile()
    log_source("captured", gm)
    return gm.forward


@functools.cache
def _dump_folder() -> str:
    """Return a folder for the graphs of this process."""
    return tempfile.mkdtemp(prefix="openreg_debug_")


def openreg_debug(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Do what ``openreg`` does with options, all passes by default, and report on each graph.

    The report goes to standard error. The graphs are written as DOT files to the folder of option
    ``dump``, by default a new temporary one. Arguments, result and errors are those of ``openreg``.
    """
    given = {"debug": True, **(options or {})}
    given.setdefault("dump", _dump_folder())
    return openreg(gm, example_inputs, mode=mode, options=given)
