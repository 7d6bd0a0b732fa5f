// SPDX-License-Identifier: BSD-3-Clause
//
// The part of torch_openreg._C that is about graphs.
#ifndef PYTHON_CSRC_GRAPHS_H_
#define PYTHON_CSRC_GRAPHS_H_

#include <pybind11/pybind11.h>

namespace openreg {

void bind_graphs(pybind11::module_& module);

}  // namespace openreg

#endif  // PYTHON_CSRC_GRAPHS_H_
