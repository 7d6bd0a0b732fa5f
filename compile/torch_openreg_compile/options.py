# SPDX-License-Identifier: BSD-3-Clause
"""What ``torch.compile(backend="openreg", options=...)`` may say."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

#: Passes before autograd, which replace several operators by one.
REWRITES = ("silu", "gelu", "layer_norm", "rms_norm", "softmax", "attention")

#: Passes over the graphs of forward and backward.
SIMPLIFICATIONS = ("fold", "cse", "dead_code")

#: What runs a graph when the passes are through.
COMPILERS = ("eager", "inductor", "graph")


@dataclass(frozen=True)
class Options:
    """How a graph is compiled.

    Attributes:
        passes: names of passes; those of a kind run in this order.
        inexact: whether passes may change results by a rounding that no fused operator explains.
        then: what runs the graph afterwards: its operators one by one, generated kernels, or the
            replay of captured operators.
        debug: whether to report on each graph, on standard error.
        dump: folder for the graphs as DOT files of Graphviz, None for none.
    """

    passes: tuple[str, ...] = (*REWRITES, *SIMPLIFICATIONS)
    inexact: bool = False
    then: str = "eager"
    debug: bool = False
    dump: Path | None = None


def _refuse(what: str, known: Sequence[str]) -> ValueError:
    return ValueError(f"openreg: torch.compile(options=...) has {what}; known: {', '.join(known)}")


def _passes(value: object) -> tuple[str, ...]:
    names = (*REWRITES, *SIMPLIFICATIONS)
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise TypeError(
            f"openreg: options['passes'] is {value!r}: give a list of names, of {', '.join(names)}"
        )
    for name in value:
        if name not in names:
            raise _refuse(f"the pass {name!r}, which does not exist", names)
    return tuple(value)


def _compiler(value: object) -> str:
    if not isinstance(value, str) or value not in COMPILERS:
        raise _refuse(f"then={value!r}", COMPILERS)
    return value


def _switch(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"openreg: options[{name!r}] is {value!r}: give True or False")
    return value


def _folder(value: object) -> Path:
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"openreg: options['dump'] is {value!r}: give the path of a folder")
    return Path(value)


def parse(options: Mapping[str, Any]) -> Options:
    """Check options and fill in what they leave out: all passes, then eager.

    Raises:
        ValueError: where a name is not known; the message lists those that are.
        TypeError: where a value is of another type than its option.
    """
    names = [field.name for field in fields(Options)]
    unknown = [name for name in options if name not in names]
    if unknown:
        raise _refuse(f"unknown options {', '.join(map(repr, unknown))}", names)
    checked: dict[str, Any] = {}
    for name, value in options.items():
        if name == "passes":
            checked[name] = _passes(value)
        elif name == "then":
            checked[name] = _compiler(value)
        elif name == "dump":
            checked[name] = _folder(value)
        else:
            checked[name] = _switch(name, value)
    return Options(**checked)
