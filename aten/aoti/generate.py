# SPDX-License-Identifier: BSD-3-Clause
"""Writes the C functions by which code that was compiled ahead of time calls operators.

torch's compiler names an operator ``aoti_torch_<device>_<operator>`` in C++ that it generates for a
device, and torch has those functions for its own devices. Theirs call kernels of the device; these
call the dispatcher, so that an operator is the one of any program. Which operators have one, and
with which arguments, is torchgen's list.

  generate.py --header c_shim.h --source c_shim.cc
"""

import argparse
import pathlib
import re
import sys
from collections.abc import Sequence

import torchgen
from torchgen import gen_aoti_c_shim
from torchgen.aoti.fallback_ops import inductor_fallback_ops
from torchgen.context import native_function_manager
from torchgen.gen import parse_native_yaml
from torchgen.model import Variant

_DEVICE = "openreg"

_HEADER = """// SPDX-License-Identifier: BSD-3-Clause
//
// Written by aten/aoti/generate.py: operators for code that torch's compiler generates. As all of
// torch's C shim: AOTITorchError is 0 where the operator succeeded.
#ifndef OPENREG_ATEN_AOTI_C_SHIM_H_
#define OPENREG_ATEN_AOTI_C_SHIM_H_

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

extern "C" {
%s
}

#endif  // OPENREG_ATEN_AOTI_C_SHIM_H_
"""

_SOURCE = """// SPDX-License-Identifier: BSD-3-Clause
//
// Written by aten/aoti/generate.py.
#include "aten/aoti/c_shim.h"

#include <torch/csrc/inductor/aoti_torch/utils.h>

%s

// Lengths of arrays whose length is fixed.
#pragma GCC diagnostic ignored "-Wunused-parameter"

using namespace torch::aot_inductor;

%s
"""


def functions() -> list[tuple[str, str, str]]:
    """Return declaration, definition and the header of the operator, of each function."""
    folder = pathlib.Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
    parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
    result = []
    for function in sorted(parsed.native_functions, key=lambda function: str(function.func.name)):
        versions = inductor_fallback_ops.get(gen_aoti_c_shim.get_fallback_op_name(function))
        if versions is None:
            continue
        with native_function_manager(function):
            call = (
                gen_aoti_c_shim.gen_static_dispatch_backend_call(function)
                if Variant.function in function.variants
                else f"at::_ops::{function.func.name.unambiguous_name()}::call"
            )
            try:
                declaration, definition = gen_aoti_c_shim.gen_declaration_and_definition(
                    function.func, _DEVICE, call, versions
                )
            except NotImplementedError:
                continue  # an argument that C has no type for: torch has no function either
        result.append((declaration, definition, f"#include <ATen/ops/{function.root_name}.h>"))
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--header", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    flags = parser.parse_args(argv)
    found = functions()
    declarations = "\n".join(declaration for declaration, _, _ in found)
    # torchgen guards what a release added, for code that is compiled for an older one.
    declarations = re.sub(r"^#.*\n?", "", declarations, flags=re.MULTILINE)
    definitions = "\n".join(definition for _, definition, _ in found)
    headers = "\n".join(sorted({header for _, _, header in found}))
    flags.header.write_text(_HEADER % declarations, encoding="utf-8")
    flags.source.write_text(_SOURCE % (headers, definitions), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
