// SPDX-License-Identifier: BSD-3-Clause
//
// The part of torch_openreg._C that is about memory: pools, limits, raw blocks, pinned memory.
#ifndef PYTHON_CSRC_MEMORY_H_
#define PYTHON_CSRC_MEMORY_H_

#include <pybind11/pybind11.h>

namespace openreg {

void bind_memory(pybind11::module_& module);

}  // namespace openreg

#endif  // PYTHON_CSRC_MEMORY_H_
