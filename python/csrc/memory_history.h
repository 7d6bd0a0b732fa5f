// SPDX-License-Identifier: BSD-3-Clause
//
// Python bindings of runtime/diagnostics/memory_history.h. They accept torch's settings and return
// snapshots in the format of torch's memory tools. Callers must hold the GIL.
#ifndef PYTHON_CSRC_MEMORY_HISTORY_H_
#define PYTHON_CSRC_MEMORY_HISTORY_H_

#include <pybind11/pybind11.h>

namespace openreg {

void bind_memory_history(pybind11::module& module);

}  // namespace openreg

#endif  // PYTHON_CSRC_MEMORY_HISTORY_H_
