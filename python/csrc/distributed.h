// SPDX-License-Identifier: BSD-3-Clause
//
// Python bindings of the c10d backend. The module calls bind_distributed() once. The function first
// imports the base classes from torch.
#ifndef PYTHON_CSRC_DISTRIBUTED_H_
#define PYTHON_CSRC_DISTRIBUTED_H_

#include <pybind11/pybind11.h>

namespace openreg {

void bind_distributed(pybind11::module_& module);

}  // namespace openreg

#endif  // PYTHON_CSRC_DISTRIBUTED_H_
