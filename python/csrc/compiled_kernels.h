// SPDX-License-Identifier: BSD-3-Clause
//
// The part of torch_openreg._C that generated code uses (docs/compile.md): launches of its kernels,
// and tensors for their results.
#ifndef PYTHON_CSRC_COMPILED_KERNELS_H_
#define PYTHON_CSRC_COMPILED_KERNELS_H_

#include <pybind11/pybind11.h>

namespace openreg {

void bind_compiled_kernels(pybind11::module_& module);

}  // namespace openreg

#endif  // PYTHON_CSRC_COMPILED_KERNELS_H_
