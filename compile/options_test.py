# SPDX-License-Identifier: BSD-3-Clause
"""Options are checked before a graph is compiled."""

from pathlib import Path

import pytest
from torch_openreg_compile.options import Options, parse
from torch_openreg_compile.passes.order import REWRITES, SIMPLIFICATIONS


def test_defaults() -> None:
    assert parse({}) == Options()
    assert Options().passes == (*REWRITES, *SIMPLIFICATIONS)
    assert Options().then == "eager"


def test_all_options(tmp_path: Path) -> None:
    given = {
        "passes": ["fold", "silu"],
        "inexact": True,
        "then": "inductor",
        "debug": True,
        "dump": str(tmp_path),
    }
    assert parse(given) == Options(("fold", "silu"), True, "inductor", True, tmp_path)


def test_no_passes() -> None:
    assert parse({"passes": ()}).passes == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pases": ["silu"]}, r"'pases'; known: passes, inexact, then, debug, dump"),
        ({"a": 1, "b": 2}, r"'a', 'b'; known"),
        ({"passes": ["silu", "relu"]}, r"'relu'.*known: silu, gelu, .*dead_code"),
        ({"then": "Eager"}, r"'Eager'; known: eager, inductor"),
        ({"then": None}, r"then=None; known"),
    ],
)
def test_unknown_names(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"openreg: .*{message}"):
        parse(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"passes": "silu"}, "'passes'] is 'silu': pass a list of names"),
        ({"passes": [1]}, "'passes'] is \\[1\\]"),
        ({"passes": None}, "'passes'] is None"),
        ({"debug": 1}, "'debug'] is 1: pass True or False"),
        ({"inexact": "yes"}, "'inexact'] is 'yes'"),
        ({"dump": True}, "'dump'] is True: pass the path"),
    ],
)
def test_wrong_types(options: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        parse(options)
