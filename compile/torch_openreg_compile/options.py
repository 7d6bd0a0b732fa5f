# SPDX-License-Identifier: BSD-3-Clause
"""Parses the options of ``torch.compile(backend="openreg", options=...)``."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch_openreg_compile.passes.order import REWRITES, SIMPLIFICATIONS

#: The ways to run a graph after the passes.
COMPILERS = ("eager", "inductor", "graph")


@dataclass(frozen=True)
class Options:
    """The checked options of a compilation.

    Attributes:
        passes: the names of passes; passes of the same kind run in this order.
        inexact: whether passes may change rounding more than fused operators do.
        then: what runs the graph after the passes: its operators one by one ("eager"), generated
            kernels ("inductor"), or a replay of captured operators ("graph").
        debug: whether to print a report on each graph to standard error.
        dump: the folder for Graphviz DOT files of the graphs; None means no files.
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
            f"openreg: options['passes'] is {value!r}: pass a list of names from {', '.join(names)}"
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
        raise TypeError(f"openreg: options[{name!r}] is {value!r}: pass True or False")
    return value


def _folder(value: object) -> Path:
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"openreg: options['dump'] is {value!r}: pass the path of a folder")
    return Path(value)


def parse(options: Mapping[str, Any]) -> Options:
    """Check options and fill in the defaults: all passes, then "eager".

    Raises:
        ValueError: for an unknown name; the message lists the known names.
        TypeError: for a value whose type does not match its option.
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
