// SPDX-License-Identifier: BSD-3-Clause
//
// host_reduction.h - reduces the contributions of several machines on the host. The functions are
// stateless, and any thread may call them.
#ifndef DISTRIBUTED_HOST_REDUCTION_H_
#define DISTRIBUTED_HOST_REDUCTION_H_

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace openreg {

// Returns the reduction to run among the ranks of one machine. This is a sum if `op` is an average,
// because reduce_on_host() divides at the end; otherwise it is `op`. Throws for an average of bool.
c10d::ReduceOp within_machine(const c10d::ReduceOp& op, at::ScalarType type);

// Returns whether a partial sum may exceed the range of `type` although the final result does not,
// as in an average of 8-bit or 16-bit floats.
bool sum_is_wider(const c10d::ReduceOp& op, at::ScalarType type);

// Reduces the rows of `parts`, a CPU tensor, in order, and returns the result. If `op` is an
// average, divides by `ranks`.
at::Tensor reduce_on_host(const at::Tensor& parts, const c10d::ReduceOp& op, int ranks);

}  // namespace openreg

#endif  // DISTRIBUTED_HOST_REDUCTION_H_
