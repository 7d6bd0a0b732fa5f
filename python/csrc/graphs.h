// SPDX-License-Identifier: BSD-3-Clause
//
// Python bindings of class Graph (runtime/c10/graph.h). The module calls bind_graphs() once.
#ifndef PYTHON_CSRC_GRAPHS_H_
#define PYTHON_CSRC_GRAPHS_H_

#include <pybind11/pybind11.h>

namespace openreg {

void bind_graphs(pybind11::module_& module);

}  // namespace openreg

#endif  // PYTHON_CSRC_GRAPHS_H_
