// SPDX-License-Identifier: BSD-3-Clause
//
// host_reduction.h - reduces the contributions of several machines on the host. Stateless.
// Threads: any.
#ifndef DISTRIBUTED_HOST_REDUCTION_H_
#define DISTRIBUTED_HOST_REDUCTION_H_

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace openreg {

// The reduction among the ranks of one machine; an average is a sum that is divided at the end.
// Throws if the type does not support the reduction.
c10d::ReduceOp within_machine(const c10d::ReduceOp& op, at::ScalarType type);

// Whether a partial sum may exceed the range of its type although the final result fits.
bool sum_is_wider(const c10d::ReduceOp& op, at::ScalarType type);

// Reduces the rows of `parts` (on the CPU) in order. An average divides by `ranks`.
at::Tensor reduce_on_host(const at::Tensor& parts, const c10d::ReduceOp& op, int ranks);

}  // namespace openreg

#endif  // DISTRIBUTED_HOST_REDUCTION_H_
