// SPDX-License-Identifier: BSD-3-Clause
//
// host_reduction.h - reductions of what several machines give, on the host. Stateless.
// Threads: any.
#ifndef DISTRIBUTED_HOST_REDUCTION_H_
#define DISTRIBUTED_HOST_REDUCTION_H_

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace openreg {

// What the ranks of one machine do of it: averages are divided at the end. Throws if the type has
// no such reduction.
c10d::ReduceOp within_machine(const c10d::ReduceOp& op, at::ScalarType type);

// Whether numbers may add up to more than their type has, where the result of the reduction fits.
bool sum_is_wider(const c10d::ReduceOp& op, at::ScalarType type);

// Reduces the rows of `parts` (on the CPU) in their order; an average is that of `ranks` numbers.
at::Tensor reduce_on_host(const at::Tensor& parts, const c10d::ReduceOp& op, int ranks);

}  // namespace openreg

#endif  // DISTRIBUTED_HOST_REDUCTION_H_
