# SPDX-License-Identifier: BSD-3-Clause
"""Known exceptions of the sweep, each with a reason.

A case has the form database/check/dtype/name. The lists contain regular expressions for whole
cases.
"""

import re
from dataclasses import dataclass

from tests.sweep.outcome import AGREES, Case, Outcome


@dataclass(frozen=True)
class Known:
    """Cases that are exceptions, and the reason."""

    cases: str
    reason: str


# Not run: there is no reference.
UNSUPPORTED = (
    Known(
        r"op/out/\w+/tril|op/out/\w+/triu",
        "the CPU writes out of bounds for an out= of a smaller dtype",
    ),
    Known(
        r"op/out/\w+/(narrow_copy|nn\.functional\.avg_pool3d)",
        "the CPU writes out of bounds for an expanded out=",
    ),
    Known(
        r"op/out/\w+/(linalg\.lu|lu_unpack)", "the CPU writes out of bounds for a transposed out="
    ),
    Known(
        r"optim/results/b?float16/SGD\.fused",
        "torch's kernel, which the device also uses, does not change 16-bit parameters with 16 "
        "or more elements, and reads uninitialized momentum",
    ),
    Known(r"op/sizes/\w+/_chunk_cat", "the CPU crashes on tensors without elements"),
    Known(r"op/sizes/\w+/nn\.functional\.pdist", "the CPU crashes on tensors without elements"),
)

# Run, and expected to fail. Remove a case that passes.
FAILING = (
    Known(
        r"op/aliases/(b?float\d+)/nn\.functional\.max_pool1d",
        "the CPU has a separate path without gradients; other devices return a view of max_pool2d",
    ),
    Known(
        r"op/(aot_eager|compiled)/\w+/(allclose|equal|corrcoef|cov)",
        "torch breaks the graph, on the CPU too: they return a Python bool that depends on data",
    ),
    Known(
        r"op/(aot_eager|compiled)/\w+/(sparse\.mm\.reduce|sparse\.sampled_addmm|to_sparse)",
        "torch breaks the graph, on the CPU too: it does not trace sparse tensors",
    ),
    Known(
        r"op/(aot_eager|compiled)/\w+/(linalg\.lstsq(\.grad_oriented)?|resize_(as_)?|"
        r"nn\.functional\.(ctc_loss|gaussian_nll_loss|one_hot))",
        "torch breaks the graph, on the CPU too: it does not trace them",
    ),
    Known(
        r"op/aot_eager/\w+/nn\.functional\.linear_cross_entropy\.chunked(_none)?",
        "torch breaks the graph, on the CPU too: some samples raise a warning",
    ),
    Known(
        r"op/aot_eager/\w+/(combinations|masked_select|tensor_split)",
        "torch's trace of data-dependent sizes fails, on the CPU too",
    ),
    Known(
        r"op/aot_eager/\w+/narrow",
        "torch can trace a start that is a tensor only if it is on the CPU",
    ),
    Known(
        r"op/(aliases|meta)/complex\d+/linalg\.lu_solve",
        "the CPU conjugates its result lazily, the device immediately",
    ),
    Known(
        r"op/dtypes/int64/nn\.functional\.max_pool1d",
        "the device composes it of max_pool2d, which supports integers",
    ),
    Known(
        r"op/dtypes/(int\d+|uint8)/histc",
        "the device takes integers as CUDA does; the CPU's kernel refuses them",
    ),
    Known(
        r"op/dtypes/(b?float16/(_upsample_bilinear2d_aa|"
        r"nn\.functional\.(avg_pool3d|multi_margin_loss|multilabel_margin_loss))|"
        r"float16/nn\.functional\.rrelu|"
        r"bool/(abs|linalg\.eigh|trace|nn\.functional\.softsign))",
        "the device supports the dtypes of CUDA; docs/operators.md has the table",
    ),
    Known(
        r"refusal/errors/float32/histc (int64 (1j|2\.5|300)|u?int8 (-300|1j|2\.5))",
        "the device takes integers as CUDA does; the CPU's kernel refuses them",
    ),
    Known(
        r"refusal/errors/float32/arange (bool|complex64) 1j",
        "both the dtype and the scalar are wrong: the device checks the scalar first",
    ),
    Known(
        r"op/dtypes/\w+/nn\.functional\.dropout|refusal/errors/float32/dropout (integers|native)",
        "on devices, torch has a single operator for it, with another error text",
    ),
    Known(
        r"op/(dtypes|inplace)/(u?int\d+|bool)/(igammac?|polygamma\.\w+)",
        "torch's Python meta kernels have another error text",
    ),
    Known(r"op/errors/float32/narrow_copy", "torch itself expects this error text only on the CPU"),
    Known(
        r"op/autocast_\w+/float32/matrix_exp",
        "the CPU's kernel calls listed operators, whose arguments are cast; the device's does not",
    ),
    Known(
        r"op/conjugates/\w+/nn\.functional\.ctc_loss",
        "the CPU ignores the negative bit of lengths",
    ),
    Known(
        r"op/layouts/\w+/native_group_norm",
        "the CPU treats an expanded weight as contiguous",
    ),
    Known(
        r"op/layouts/\w+/nn\.functional\.nll_loss",
        "the CPU rejects a gradient that it has computed itself",
    ),
    Known(
        r"op/meta/\w+/nonzero_static|op/meta/\w+/_?native_batch_norm(_legit)?",
        "fake tensors of the CPU behave differently from those of all other devices",
    ),
    Known(
        r"op/mixed_devices/\w+/(linalg\.pinv|nn\.functional\.(batch_norm|bilinear))",
        "for empty inputs, torch returns a result before it checks the other arguments",
    ),
    Known(r"op/mixed_devices/\w+/lu", "torch's Python function copies its results to any out="),
    Known(
        r"op/(results/b?float16|autocast_\w+/float32)/"
        r"nn\.functional\.linear_cross_entropy\.chunked(_none)?",
        "torch sums in float32 if the device is named cpu",
    ),
    Known(r"op/sizes/\w+/addmv", "the CPU's result has the shape of its initial scalar"),
    Known(
        r"op/sizes/\w+/(_?native_batch_norm(_legit)?|_batch_norm_with_update)",
        "the CPU rejects a 0-dim input by accident",
    ),
    Known(
        r"op/sizes/\w+/nn\.functional\.pixel_(un)?shuffle",
        "the CPU gives empty results another shape in backward",
    ),
    Known(
        r"op/vmap/\w+/nn\.functional\.scaled_dot_product_attention",
        "torch has no batching rule for the fused operator of devices",
    ),
)


def reason(known: tuple[Known, ...], case: Case) -> str | None:
    """The reason why a case is on a list, or None."""
    return next((k.reason for k in known if re.fullmatch(k.cases, str(case))), None)


def surprising(outcome: Outcome) -> bool:
    """Whether an outcome is an unlisted failure or a listed success."""
    if not outcome.counts:
        return False
    return (outcome.status == AGREES) == (reason(FAILING, outcome.case) is not None)
