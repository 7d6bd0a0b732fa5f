# SPDX-License-Identifier: BSD-3-Clause
"""Implements ``torch.compile(backend="openreg")``: checks a captured graph and compiles it.

torch finds this backend, and ``openreg_debug``, through the entry points in group
``torch_dynamo_backends``. ``openreg_debug`` also prints a report on each graph.
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

#: The modes of torch.compile, expressed as options.
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
    """Compile a graph that torch._dynamo captured, for one set of guards.

    The graph is validated (``validation``), dead code is removed (``dead_code``), and checkpointed
    regions are changed to run without AOTAutograd (``checkpointing``). The graph's source is logged
    under artifact ``openreg_graph``.

    Args:
        gm: the graph; it is changed in place.
        example_inputs: the values of the graph's placeholders, in the same order.
        mode: "reduce-overhead" is equivalent to options ``{"passes": [], "then": "graph"}``.
        options: the fields of ``torch_openreg_compile.options.Options``. Without options the graph
            runs as captured; with options it goes through passes and AOTAutograd (``pipeline``).

    Returns:
        A callable that runs the graph. Without options it is the graph's forward, which uses the
        caller's autograd, autocast and streams; with options, the options determine what runs.

    Raises:
        GraphError: if the graph or an input is rejected; torch wraps this error in a
            BackendCompilerFailed.
        ValueError: for an unknown mode or option.
    """
    if mode not in _MODES:
        raise ValueError(
            f"openreg: backend openreg does not support torch.compile(mode={mode!r}): omit mode, "
            "or use 'reduce-overhead'"
        )
    given = {**_MODES[mode], **(options or {})}
    chosen = parse(given) if given else None
    validate(gm, example_inputs)
    removed = dead_code.eliminate(gm)
    if removed:
        log.debug("dead code: %s", ", ".join(removed))
    if chosen is not None:
        # Imported only here, because the module imports Inductor's pattern matcher, which takes
        # seconds.
        run = importlib.import_module(".pipeline", __package__).run
        return cast(Callable[..., Any], run(gm, example_inputs, chosen))
    checkpointing.lower(gm)
    gm.recompile()
    log_source("captured", gm)
    return gm.forward


@functools.cache
def _dump_folder() -> str:
    """Return the folder for the graphs of this process."""
    return tempfile.mkdtemp(prefix="openreg_debug_")


def openreg_debug(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile as ``openreg`` does with options (default: all passes), and report on each graph.

    The report is printed to standard error. The graphs are written as DOT files to the folder in
    option ``dump``, which defaults to a new temporary folder. Arguments, result and errors are the
    same as those of ``openreg``.
    """
    given = {"debug": True, **(options or {})}
    given.setdefault("dump", _dump_folder())
    return openreg(gm, example_inputs, mode=mode, options=given)
