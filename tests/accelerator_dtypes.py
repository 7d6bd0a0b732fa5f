# SPDX-License-Identifier: BSD-3-Clause
"""Lists the dtypes that accelerators support but the CPU does not, from torch's OpInfo database.

    ./bazelw run //tests:accelerator_dtypes

prints the rows of the table in docs/operators.md.
"""

from collections import defaultdict

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

ORDER = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32"]


def name_of(op: OpInfo) -> str:
    """Returns the operator's name and variant in the notation of the sweep (tests/sweep)."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def short(dtype: torch.dtype) -> str:
    """Returns the dtype's name without `torch.`."""
    return str(dtype).removeprefix("torch.")


def differences() -> dict[str, frozenset[str]]:
    """Maps each operator that supports more dtypes on CUDA than on the CPU to these dtypes."""
    found = {
        name_of(op): frozenset(map(short, op.supported_dtypes("cuda") - op.supported_dtypes("cpu")))
        for op in op_db
    }
    return {name: dtypes for name, dtypes in found.items() if dtypes}


def main() -> None:
    """Prints one table row for each set of dtypes."""
    rows = defaultdict(list)
    for name, dtypes in differences().items():
        ranked = sorted(dtypes, key=lambda d: (ORDER.index(d) if d in ORDER else len(ORDER), d))
        rows[", ".join(ranked)].append(name)
    for dtypes_, names in sorted(rows.items()):
        print(f"| {dtypes_} | {', '.join(f'`{name}`' for name in sorted(names))} | |")


if __name__ == "__main__":
    main()
