# SPDX-License-Identifier: BSD-3-Clause
"""Errors that only a kernel can detect, because they depend on the values of tensors.

Such an error may be raised by the next synchronization. All other errors must be raised by the call
itself.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class DataError:
    """A kind of error that depends on data.

    Attributes:
        entries: regular expression that matches the whole name of an entry.
        message: regular expression to search for in the error text.
        reason: the data that the error depends on.
    """

    entries: str
    message: str
    reason: str


DATA_ERRORS: tuple[DataError, ...] = (
    DataError(
        r"__getitem__|gather|index_(add|copy|fill|put|reduce|select)(\.\w+)?|put|take(_along_dim)?|"
        r"scatter(_add|_reduce\.\w+)?|nn\.functional\.(embedding(_bag)?|max_unpool\dd(\.grad)?)",
        r"out of (range|bounds)|Found an invalid max index",
        "values of an index",
    ),
    DataError(
        r"nn\.functional\.(cross_entropy|multi_?label_margin_loss|multi_margin_loss|nll_loss|"
        r"one_hot)",
        r"out of (range|bounds)|Class values must be",
        "index of a class",
    ),
    DataError(
        r"cholesky(_inverse|_solve)?|logdet|linalg\.\w+(\.\w+)?|lu(_solve|_unpack)?|ormqr",
        r"singular|not positive-definite|did(n't| not) converge|failed to converge|[Pp]ivots",
        "values of a matrix or of its factorization",
    ),
    DataError(r"bernoulli|multinomial|normal(\.\w+)?", r"probability|elements of std", "values"),
)


def depends_on_data(name: str, error: Exception) -> bool:
    """Returns whether an error of the entry `name` depends on data and may be raised late."""
    return any(
        re.fullmatch(known.entries, name) and re.search(known.message, str(error))
        for known in DATA_ERRORS
    )
