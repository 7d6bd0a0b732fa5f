// SPDX-License-Identifier: BSD-3-Clause
//
// Bindings of runtime/diagnostics/memory_history.h: takes torch's settings and returns snapshots in
// the format of torch's memory tools. Functions must be called with the GIL held.
#ifndef PYTHON_CSRC_MEMORY_HISTORY_H_
#define PYTHON_CSRC_MEMORY_HISTORY_H_

#include <pybind11/pybind11.h>

namespace openreg {

void bind_memory_history(pybind11::module& module);

}  // namespace openreg

#endif  // PYTHON_CSRC_MEMORY_HISTORY_H_
