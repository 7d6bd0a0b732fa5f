// SPDX-License-Identifier: BSD-3-Clause
//
// Binding of the c10d backend. Called once, by the module; torch.distributed is imported by then,
// which registers the base classes.
#ifndef PYTHON_CSRC_DISTRIBUTED_H_
#define PYTHON_CSRC_DISTRIBUTED_H_

#include <pybind11/pybind11.h>

namespace openreg {

void bind_distributed(pybind11::module_& module);

}  // namespace openreg

#endif  // PYTHON_CSRC_DISTRIBUTED_H_
