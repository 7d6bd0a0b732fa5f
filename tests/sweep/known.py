# SPDX-License-Identifier: BSD-3-Clause
"""What the sweep knows of, a reason for each: two short lists.

A case is written database/check/dtype/name; the lists have regular expressions of whole cases.
"""

import re
from dataclasses import dataclass

from tests.sweep.outcome import AGREES, Case, Outcome


@dataclass(frozen=True)
class Known:
    """Cases and the reason why they are special."""

    cases: str
    reason: str


# Not run: there is nothing to compare with.
UNSUPPORTED = (
    Known(
        r"op/out/\w+/tril|op/out/\w+/triu", "the CPU writes past the end of an out= of fewer bytes"
    ),
    Known(
        r"op/out/\w+/(narrow_copy|nn\.functional\.avg_pool3d)",
        "the CPU writes past the end of an expanded out=",
    ),
    Known(r"op/out/\w+/(linalg\.lu|lu_unpack)", "the CPU writes past the end of a transposed out="),
    Known(
        r"optim/results/b?float16/SGD\.fused",
        "torch's kernel, which the device runs too, changes no 16-bit parameters of 16 elements "
        "or more, and computes with momentum that nobody wrote",
    ),
    Known(r"op/sizes/\w+/_chunk_cat", "the CPU crashes on tensors without elements"),
    Known(r"op/sizes/\w+/nn\.functional\.pdist", "the CPU crashes on tensors without elements"),
)

# Run, and must fail: one that passes has to be taken from the list.
FAILING = (
    Known(
        r"op/aliases/(b?float\d+)/nn\.functional\.max_pool1d",
        "the CPU has a way of its own without gradients; elsewhere it is a view of max_pool2d's",
    ),
    Known(
        r"op/(aot_eager|compiled)/\w+/(allclose|equal|corrcoef|cov)",
        "torch leaves the graph, on the CPU too: what they ask of data is a bool of Python",
    ),
    Known(
        r"op/(aot_eager|compiled)/\w+/(sparse\.mm\.reduce|sparse\.sampled_addmm|to_sparse)",
        "torch leaves the graph, on the CPU too: it traces no sparse tensors",
    ),
    Known(
        r"op/(aot_eager|compiled)/\w+/(linalg\.lstsq(\.grad_oriented)?|resize_(as_)?|"
        r"nn\.functional\.(ctc_loss|gaussian_nll_loss|one_hot))",
        "torch leaves the graph, on the CPU too: it does not trace them",
    ),
    Known(
        r"op/aot_eager/\w+/nn\.functional\.linear_cross_entropy\.chunked(_none)?",
        "torch leaves the graph, on the CPU too: some samples give a warning",
    ),
    Known(
        r"op/aot_eager/\w+/(combinations|masked_select|tensor_split)",
        "torch's trace of sizes that depend on data ends with an error, on the CPU too",
    ),
    Known(
        r"op/aot_eager/\w+/narrow",
        "torch cannot trace a start that is not a number, except one on the CPU",
    ),
    Known(
        r"op/(aliases|meta)/complex\d+/linalg\.lu_solve",
        "the CPU conjugates its result lazily, the device at once",
    ),
    Known(
        r"op/dtypes/int64/nn\.functional\.max_pool1d",
        "max_pool2d, which it is made of here, takes integers",
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
        "the device takes what CUDA takes: docs/operators.md has the table",
    ),
    Known(
        r"refusal/errors/float32/histc (int64 (1j|2\.5|300)|u?int8 (-300|1j|2\.5))",
        "the device takes integers as CUDA does; the CPU's kernel refuses them",
    ),
    Known(
        r"refusal/errors/float32/arange (bool|complex64) 1j",
        "the dtype and the scalar are wrong: the device looks at the scalar first",
    ),
    Known(
        r"op/dtypes/\w+/nn\.functional\.dropout|refusal/errors/float32/dropout (integers|native)",
        "torch has one operator for it on devices, which words the refusal in its own way",
    ),
    Known(
        r"op/(dtypes|inplace)/(u?int\d+|bool)/(igammac?|polygamma\.\w+)",
        "torch's Meta kernels in Python word the refusal in another way",
    ),
    Known(r"op/errors/float32/narrow_copy", "torch itself expects the CPU alone to word it so"),
    Known(
        r"op/autocast_\w+/float32/matrix_exp",
        "the CPU's kernel calls listed operators, which are cast in it; the device's does not",
    ),
    Known(
        r"op/conjugates/\w+/nn\.functional\.ctc_loss",
        "the CPU reads lengths without looking at their negative bit",
    ),
    Known(
        r"op/layouts/\w+/native_group_norm",
        "the CPU reads the elements of an expanded weight side by side",
    ),
    Known(
        r"op/layouts/\w+/nn\.functional\.nll_loss",
        "the CPU refuses a gradient that it has made itself",
    ),
    Known(
        r"op/meta/\w+/nonzero_static|op/meta/\w+/_?native_batch_norm(_legit)?",
        "fake tensors of the CPU become what no other device's do",
    ),
    Known(
        r"op/mixed_devices/\w+/(linalg\.pinv|nn\.functional\.(batch_norm|bilinear))",
        "without elements, torch returns a tensor like the input before it looks at the others",
    ),
    Known(r"op/mixed_devices/\w+/lu", "torch's function in Python copies its results to any out="),
    Known(
        r"op/(results/b?float16|autocast_\w+/float32)/"
        r"nn\.functional\.linear_cross_entropy\.chunked(_none)?",
        "torch sums in float32 where the device is called cpu",
    ),
    Known(r"op/sizes/\w+/addmv", "the CPU's result has the shape of the scalar it begins with"),
    Known(
        r"op/sizes/\w+/(_?native_batch_norm(_legit)?|_batch_norm_with_update)",
        "the refusal of an input without dimensions is an accident of the CPU's",
    ),
    Known(
        r"op/sizes/\w+/nn\.functional\.pixel_(un)?shuffle",
        "the CPU gives results without elements another shape in backward",
    ),
    Known(
        r"op/vmap/\w+/nn\.functional\.scaled_dot_product_attention",
        "torch has no batching rule for the fused operator of devices",
    ),
)


def reason(known: tuple[Known, ...], case: Case) -> str | None:
    """Why a case is on a list, or None."""
    return next((k.reason for k in known if re.fullmatch(k.cases, str(case))), None)


def surprising(outcome: Outcome) -> bool:
    """Whether an outcome is a failure that is not on the list, or a success that is."""
    if not outcome.counts:
        return False
    return (outcome.status == AGREES) == (reason(FAILING, outcome.case) is not None)
