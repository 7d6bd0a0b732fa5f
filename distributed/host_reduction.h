// SPDX-License-Identifier: BSD-3-Clause
//
// host_reduction.h - reduces the contributions of several machines on the host. Stateless.
// Threads: any.
#ifndef DISTRIBUTED_HOST_REDUCTION_H_
#define DISTRIBUTED_HOST_REDUCTION_H_

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace openreg {

// Returns the reduction to run among the ranks of one machine: a sum for an average, which
// reduce_on_host() divides at the end, and `op` otherwise. Throws for an average of bool.
c10d::ReduceOp within_machine(const c10d::ReduceOp& op, at::ScalarType type);

// Returns whether a partial sum may exceed the range of `type` although the final result fits:
// true for an average of floats of 8 or 16 bits.
bool sum_is_wider(const c10d::ReduceOp& op, at::ScalarType type);

// Reduces the rows of `parts`, which is on the CPU, in order and returns the result. An average
// divides by `ranks`.
at::Tensor reduce_on_host(const at::Tensor& parts, const c10d::ReduceOp& op, int ranks);

}  // namespace openreg

#endif  // DISTRIBUTED_HOST_REDUCTION_H_
