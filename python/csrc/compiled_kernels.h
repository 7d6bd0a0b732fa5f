// SPDX-License-Identifier: BSD-3-Clause
//
// The bindings with which generated code (docs/compile.md) launches its kernels and allocates their
// results. The module calls bind_compiled_kernels() once.
#ifndef PYTHON_CSRC_COMPILED_KERNELS_H_
#define PYTHON_CSRC_COMPILED_KERNELS_H_

#include <pybind11/pybind11.h>

namespace openreg {

void bind_compiled_kernels(pybind11::module_& module);

}  // namespace openreg

#endif  // PYTHON_CSRC_COMPILED_KERNELS_H_
