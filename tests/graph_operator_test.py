# SPDX-License-Identifier: BSD-3-Clause
"""Captures torch's operator samples in graphs, and compares replays with eager calls on the CPU."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
import torch_openreg as torch_openreg
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils import _pytree

from tests.graph_capture import quiet_devices as quiet_devices


def _to(value: Any, device: str) -> Any:
    return _pytree.tree_map_only(torch.Tensor, lambda t: t.detach().to(device), value)


# Texts of the errors that a capture may raise. An operator cannot be captured if its results, their
# sizes or an error depend on data. A capture also rejects operators that create a tensor from host
# values, and samples that set the seed.
REFUSALS = ("makes the host wait", "cannot read or change the seed")
REFUSED = {
    "__getitem__",
    "allclose",
    "argwhere",
    "combinations",
    "corrcoef",
    "cov",
    "equal",
    "histogramdd",
    "linalg.cholesky",
    "linalg.inv",
    "linalg.ldl_factor",
    "linalg.lstsq",
    "linalg.lstsq.grad_oriented",
    "linalg.lu_factor",
    "linalg.solve",
    "linalg.tensorinv",
    "linalg.tensorsolve",
    "linspace.tensor_overload",
    "logspace.tensor_overload",
    "masked.amax",
    "masked.amin",
    "masked.argmax",
    "masked.argmin",
    "masked.cumprod",
    "masked.cumsum",
    "masked.log_softmax",
    "masked.logaddexp",
    "masked.logsumexp",
    "masked.mean",
    "masked.median",
    "masked.norm",
    "masked.prod",
    "masked.softmax",
    "masked.softmin",
    "masked.std",
    "masked.sum",
    "masked.var",
    "masked_select",
    "narrow",
    "nn.functional.ctc_loss",
    "nn.functional.gaussian_nll_loss",
    "nonzero",
    "to_sparse",
    "unique",
    "unique_consecutive",
    "item",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.multi_head_attention_forward",
    "nn.functional.rrelu",
    "nn.functional.scaled_dot_product_attention",
    "pca_lowrank",
    "svd_lowrank",
}


# Ways to call an operator: without out=, with out= of the same dtype or a wider one, or in place.
PLAIN, OUT, WIDER, IN_PLACE = "plain", "out=", "out= of another dtype", "in place"


# These operators resize their first argument in place, to a size that is known only after the run.
RESIZED_IN_PLACE = {"addbmm"}


def _widened(result: torch.Tensor) -> torch.Tensor:
    dtype = torch.complex128 if result.is_complex() else torch.float64
    return torch.zeros_like(result, dtype=dtype)


def _caller(op: Any, way: str, like: Any) -> Callable[[Any], Any]:
    """Returns a function that calls `op`. Tensors for out= resemble `like`, an earlier result."""
    function = op.get_inplace() if way == IN_PLACE else op
    more = {}
    if way in (OUT, WIDER):
        make = torch.zeros_like if way == OUT else _widened
        more["out"] = _pytree.tree_map_only(torch.Tensor, make, like)
    return lambda values: function(values[0], *values[1], **values[2], **more)


def _outcome(op: Any, sample: SampleInput, tolerance: float, way: str = PLAIN) -> str:
    """Captures a call, replays it with other inputs, and compares the results with the CPU's."""
    arguments = (sample.input, sample.args, sample.kwargs)
    theirs = _to(arguments, "cpu")
    ours = _to(arguments, "openreg")
    pristine = _to(arguments, "openreg")
    tensors = [t for t in _pytree.tree_leaves(ours) if isinstance(t, torch.Tensor)]
    kept = [t for t in _pytree.tree_leaves(pristine) if isinstance(t, torch.Tensor)]
    try:
        like = _caller(op, PLAIN, None)(copy.deepcopy(theirs))
        expected = _caller(op, way, like)(copy.deepcopy(theirs))
        call = _caller(op, way, _to(like, "openreg"))
        for _ in range(3):  # the first calls cache output metadata
            call(_pytree.tree_map_only(torch.Tensor, torch.clone, ours))
        for tensor in tensors:
            tensor.zero_()  # the values of the capture must differ from those of the replay
        torch.openreg.synchronize()
    except Exception:
        return "not supported eagerly, or out= cannot be written to"
    graph = torch.openreg.OpenRegGraph()
    try:
        with torch.openreg.graph(graph):
            result = call(ours)
    except RuntimeError as error:
        texts = f"{error} {error.__context__}"
        refused = any(reason in texts for reason in REFUSALS)
        return "refused" if refused else f"failed: {texts[:300]}"
    if any(ours.shape != origin.shape for ours, origin in zip(tensors, kept, strict=True)):
        return "changes sizes in place"
    for _ in range(2):
        # Clear the results before setting the arguments, because an in-place result is an argument.
        for leaf in _pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and way != PLAIN:
                leaf.zero_()
        for tensor, origin in zip(tensors, kept, strict=True):
            tensor.copy_(origin)
        try:
            graph.replay()
            torch.openreg.synchronize()
        except RuntimeError as error:
            return f"failed in the replay: {str(error)[:300]}"
        try:
            torch.testing.assert_close(
                _to(result, "cpu"),
                _to(expected, "cpu"),
                equal_nan=True,
                rtol=tolerance,
                atol=tolerance / 10,
            )
        except AssertionError as error:
            return f"differs: {str(error)[:200]}"
    return "same"


# Operators whose results are undefined.
WITHOUT_DEFINED_RESULT = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty"}
WITHOUT_DEFINED_RESULT |= {"new_empty_strided"}
# The samples of as_strided read outside their tensors, and a copy to the device lacks that memory.
WITHOUT_DEFINED_RESULT |= {"as_strided"}

# If out= has a different dtype, the CPU kernels of tril and triu write out of bounds.
WITHOUT_OUT = {(WIDER, "tril"), (WIDER, "triu")}


def _is_random(op: Any) -> bool:
    return (
        any(word in op.full_name for word in ("rand", "dropout", "bernoulli", "multinomial"))
        or op.name.startswith(("normal", "nn.functional.dropout"))
        or op.name in ("uniform", "cauchy", "exponential", "geometric", "log_normal", "poisson")
    )


@pytest.mark.parametrize(
    ("way", "dtype", "tolerance", "least"),
    [
        (PLAIN, torch.float32, 1e-4, 1000),
        (PLAIN, torch.bfloat16, 2e-2, 800),
        (OUT, torch.float32, 1e-4, 500),
        (WIDER, torch.float32, 1e-4, 200),
        (WIDER, torch.int64, 1e-4, 100),
        (IN_PLACE, torch.float32, 1e-4, 200),
    ],
)
def test_operators_replay_as_the_cpu_runs_them(
    way: str, dtype: torch.dtype, tolerance: float, least: int
) -> None:
    outcomes: dict[str, list[str]] = {}
    for op in op_db:
        if (
            dtype not in op.dtypes
            or op.name in WITHOUT_DEFINED_RESULT
            or _is_random(op)
            or (way in (OUT, WIDER) and not op.supports_out)
            or (way == IN_PLACE and op.get_inplace() is None)
            or (way, op.name) in WITHOUT_OUT
        ):
            continue
        for sample in list(op.sample_inputs("cpu", dtype))[:2]:
            outcomes.setdefault(_outcome(op, sample, tolerance, way), []).append(op.full_name)
    counts = {outcome: len(names) for outcome, names in outcomes.items()}
    wrong = {
        outcome: names
        for outcome, names in outcomes.items()
        if outcome.startswith(("failed", "differs"))
    }
    assert not wrong, wrong
    refused = set(outcomes.get("refused", ())) - REFUSED
    if way == IN_PLACE:
        refused -= RESIZED_IN_PLACE
    assert not refused
    assert counts["same"] > least, counts


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_random_operators_replay_as_eager_runs_them(dtype: torch.dtype) -> None:
    """With equal seeds, replays draw the numbers of eager mode. Each replay draws new numbers."""
    wrong, same = [], 0
    for op in filter(_is_random, op_db):
        if dtype not in op.dtypes:
            continue
        for sample in list(op.sample_inputs("cpu", dtype))[:2]:
            ours = _to((sample.input, sample.args, sample.kwargs), "openreg")
            if op.name in ("rand", "randn", "randint", "randperm", "normal"):
                ours[2]["device"] = "openreg"
            call = _caller(op, PLAIN, None)
            kept = _pytree.tree_map_only(torch.Tensor, torch.clone, ours)
            targets = _pytree.tree_leaves(ours), _pytree.tree_leaves(kept)

            def restore(targets: Any = targets) -> None:
                for tensor, origin in zip(*targets, strict=True):
                    if isinstance(tensor, torch.Tensor):
                        tensor.copy_(origin)

            def eager(seed: int, call: Any = call, ours: Any = ours) -> list[Any]:
                torch.openreg.manual_seed(seed)
                with unseeded():
                    return [_to(call(ours), "cpu") for _ in range(2)]

            try:
                expected = eager(3)
                restore()
            except Exception:
                continue
            graph = torch.openreg.OpenRegGraph()
            try:
                with torch.openreg.graph(graph), unseeded():
                    result = call(ours)
            except RuntimeError as error:
                texts = f"{error} {error.__context__}"
                if not any(reason in texts for reason in REFUSALS):
                    wrong.append(f"{op.full_name}: {texts[:200]}")
                continue
            torch.openreg.manual_seed(3)
            for want in expected:
                graph.replay()
                try:
                    torch.testing.assert_close(_to(result, "cpu"), want, equal_nan=True)
                except AssertionError as error:
                    wrong.append(f"{op.full_name}: {str(error)[:200]}")
                else:
                    same += 1
    assert not wrong, wrong
    assert same > 50


@contextmanager
def unseeded() -> Iterator[None]:
    """Removes calls to manual_seed from the samples, because a capture rejects such calls."""
    with mock.patch.object(
        common_methods_invocations, "wrapper_set_seed", lambda f, *a, **k: f(*a, **k)
    ):
        yield


def test_errors_during_a_capture_leave_the_stream_usable() -> None:
    """Captures torch's invalid calls, which raise errors. A later capture must still work."""
    seen, wrong = 0, []
    x = torch.zeros(3, device="openreg")
    for op in op_db:
        if op.error_inputs_func is None:
            continue
        for mistake in list(op.error_inputs("cpu"))[:3]:
            sample = mistake.sample_input
            try:
                ours = _to((sample.input, sample.args, sample.kwargs), "openreg")
            except Exception:
                continue
            graph = torch.openreg.OpenRegGraph()
            raised = False
            try:
                with torch.openreg.graph(graph):
                    try:
                        _caller(op, PLAIN, None)(ours)
                    except Exception:
                        raised = True
                    x.add_(1)
                graph.replay()
                torch.openreg.synchronize()
            except Exception:
                raised = True
            seen += raised
            try:
                assert not torch.openreg.is_current_stream_capturing()
                torch.openreg.synchronize()
                assert x.fill_(1).add_(1).tolist() == [2.0] * 3
                again = torch.openreg.OpenRegGraph()
                with torch.openreg.graph(again):
                    x.add_(1)
                again.replay()
                assert x.tolist() == [3.0] * 3
            except Exception as error:
                wrong.append(f"{op.full_name}: {type(error).__name__}: {str(error)[:200]}")
    assert not wrong, wrong
    assert seen > 300


@pytest.mark.parametrize("host", [torch.float32, torch.float64, torch.int32, torch.bool])
@pytest.mark.parametrize(
    ("way", "layout"),
    [
        (way, layout)
        for way in ("read", "written")
        for layout in ("contiguous", "transposed", "with gaps", "expanded", "empty")
        if (way, layout) != ("written", "expanded")  # rejected, because elements share memory
    ],
)
def test_copies_of_pinned_memory_are_replayed(way: str, host: torch.dtype, layout: str) -> None:
    """A capture records direct copies of pinned memory, and rejects copies that wait."""
    pinned = {
        "contiguous": lambda: torch.zeros(6, 8, dtype=host).pin_memory(),
        "transposed": lambda: torch.zeros(8, 6, dtype=host).pin_memory().t(),
        "with gaps": lambda: torch.zeros(6, 16, dtype=host).pin_memory()[:, ::2],
        "expanded": lambda: torch.zeros(6, 1, dtype=host).pin_memory().expand(6, 8),
        "empty": lambda: torch.zeros(0, 8, dtype=host).pin_memory(),
    }[layout]()
    ours = torch.zeros(pinned.shape, device="openreg")
    source, target = (pinned, ours) if way == "read" else (ours, pinned)
    graph = torch.openreg.OpenRegGraph()
    try:
        with torch.openreg.graph(graph):
            target.copy_(source, non_blocking=True)
    except RuntimeError as error:
        texts = f"{error} {error.__context__}"
        assert any(reason in texts for reason in REFUSALS), texts
        assert layout != "contiguous" or host != torch.float32
        assert ours.add(1).sum().item() == ours.numel()
        return
    for value in (1, 0, 1):
        base = pinned[:, :1] if layout == "expanded" else pinned
        base.fill_(value if way == "read" else 1 - value)
        ours.fill_(value if way == "written" else 1 - value)
        graph.replay()
        torch.openreg.synchronize()
        assert target.float().cpu().tolist() == torch.full(pinned.shape, float(value)).tolist()
