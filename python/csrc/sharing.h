// SPDX-License-Identifier: BSD-3-Clause
//
// Python bindings of storages and events that processes share. The module calls bind_sharing()
// once.
#ifndef PYTHON_CSRC_SHARING_H_
#define PYTHON_CSRC_SHARING_H_

#include <pybind11/pybind11.h>

namespace openreg {

void bind_sharing(pybind11::module_& module);

}  // namespace openreg

#endif  // PYTHON_CSRC_SHARING_H_
