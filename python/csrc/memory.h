// SPDX-License-Identifier: BSD-3-Clause
//
// Python bindings of memory pools, limits, raw blocks and pinned memory. The module calls
// bind_memory() once.
#ifndef PYTHON_CSRC_MEMORY_H_
#define PYTHON_CSRC_MEMORY_H_

#include <pybind11/pybind11.h>

namespace openreg {

void bind_memory(pybind11::module_& module);

}  // namespace openreg

#endif  // PYTHON_CSRC_MEMORY_H_
