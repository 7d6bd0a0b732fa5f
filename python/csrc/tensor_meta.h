// SPDX-License-Identifier: BSD-3-Clause
//
// Python bindings of the metadata that a backend stores with a tensor (runtime/c10/tensor_meta.h).
// Callers must hold the GIL.
#ifndef PYTHON_CSRC_TENSOR_META_H_
#define PYTHON_CSRC_TENSOR_META_H_

#include <pybind11/pybind11.h>

namespace openreg {

void bind_storage(pybind11::module_& module);

}  // namespace openreg

#endif  // PYTHON_CSRC_TENSOR_META_H_
