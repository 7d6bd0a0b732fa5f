# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile finds and calls the backend, which also accepts graphs with CPU tensors."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch_openreg_compile.backend import openreg
from torch_openreg_compile.validation import GraphError


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch._dynamo.reset()


def poly(x: torch.Tensor) -> torch.Tensor:
    x.sin()
    return x * x + 1


def test_is_listed() -> None:
    assert {"openreg", "openreg_debug"} <= set(torch._dynamo.list_backends())


def test_compiles() -> None:
    x = torch.randn(3, requires_grad=True)
    result = torch.compile(poly, backend="openreg", fullgraph=True)(x)
    torch.autograd.backward(result.sum())
    torch.testing.assert_close(result, poly(x))
    torch.testing.assert_close(x.grad, 2 * x)


class Ran(TorchDispatchMode):
    """Records the operators that run inside the context manager."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators.append(str(func))
        return func(*args, **(kwargs or {}))


def test_returns_a_forward_without_dead_code() -> None:
    gm = torch.fx.symbolic_trace(poly)
    x = torch.ones(2)
    compiled = openreg(gm, [x])
    assert compiled == gm.forward
    with Ran() as ran:
        compiled(x)
    assert ran.operators == ["aten.mul.Tensor", "aten.add.Tensor"]


def test_refuses_a_malformed_graph() -> None:
    gm = torch.fx.symbolic_trace(poly)
    x, sine, *_ = gm.graph.nodes
    sine.append(x)
    with pytest.raises(GraphError, match=r"malformed: .*'x' of Node 'sin'"):
        openreg(gm, [torch.ones(2)])


def test_mutated_inputs() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return torch.ones(1)

    x = torch.zeros(3)
    torch.compile(function, backend="openreg", fullgraph=True)(x)
    assert x.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"options": {"pass": ["gelu"]}}, "'pass'; known: passes, .*then"),
        ({"options": {"passes": ["glu"]}}, "'glu'.*; known: silu, .*fold"),
        ({"options": {"passes": "gelu"}}, "'gelu': pass a list of names"),
        ({"options": {"then": "triton"}}, "'triton'; known: eager, inductor, graph"),
        ({"options": {"debug": 1}}, "'debug'. is 1: pass True or False"),
        ({"mode": "max-autotune"}, "'max-autotune'.*'reduce-overhead'"),
    ],
)
@pytest.mark.parametrize("backend", ["openreg", "openreg_debug"])
def test_refuses_unknown_options(backend: str, arguments: dict[str, object], named: str) -> None:
    compiled = torch.compile(poly, backend=backend, **arguments)  # type: ignore[call-overload]
    with pytest.raises(BackendCompilerFailed, match=f"openreg: .*{named}"):
        compiled(torch.ones(2))


def test_empty_options_are_no_options() -> None:
    """Empty options must not import Inductor, because that import takes seconds."""
    program = """
import sys, torch
torch.compile(torch.sin, backend="openreg", options={})(torch.ones(2))
print({"torch._inductor.pattern_matcher", "torch_openreg_compile.pipeline"} & set(sys.modules))
"""
    assert _run(program).stdout == "set()\n"


def test_refuses_other_devices() -> None:
    gm = torch.fx.symbolic_trace(poly)
    with FakeTensorMode():
        x = torch.empty(2, device="cuda")
    with pytest.raises(GraphError, match=r"'x'.*cuda:0"):
        openreg(gm, [x])


LOGGED = """
import torch
{before}
def function(x):
    x.sin()
    return x.cos()
torch.compile(function, backend="openreg")(torch.ones(2))
"""
BY_CALL = 'torch._logging.set_logs(modules={"openreg_graph": True})'


@pytest.mark.parametrize(
    ("before", "environment"),
    [
        ("", {"TORCH_LOGS": "recompiles,openreg_graph"}),
        (BY_CALL, {}),
        ("import openreg_graph\n" + BY_CALL, {}),
    ],
    ids=["environment", "call", "call_after_import"],
)
def test_log_shows_the_source(before: str, environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "log"
    logged = _stderr(LOGGED.format(before=before), TORCH_LOGS_OUT=str(path), **environment)
    assert "[__openreg_graph]" in logged
    assert "dead code: sin" in logged
    assert "placeholder 'l_x_' (L['x']) is on the CPU" in logged
    assert "def forward(self, L_x_" in logged
    assert logged.count("l_x_.cos()") == 1
    assert "l_x_.sin()" not in logged
    assert logged == path.read_text()


def test_log_is_silent_unless_it_is_named() -> None:
    everything_else = "import logging; logging.basicConfig(level=0)"
    logged = _stderr(LOGGED.format(before=everything_else), TORCH_LOGS="+all")
    assert "_dynamo" in logged
    assert "openreg_graph" not in logged


def _run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def _stderr(program: str, **environment: str) -> str:
    return _run(program, **environment).stderr
