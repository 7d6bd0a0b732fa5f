// SPDX-License-Identifier: BSD-3-Clause
//
// Converts arguments of torch.distributed's collectives for occl: types, counts and reductions, and
// checks tensors. Stateless, except for the scale of a reduction. Threads: as for the communicator.
#ifndef DISTRIBUTED_ARGUMENTS_H_
#define DISTRIBUTED_ARGUMENTS_H_

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "distributed/occl/occl.h"

namespace openreg {

// Throws DistBackendError with the message of the function that failed.
void check_occl(occlResult_t result);

// Returns the type in which occl moves the tensor: bytes for types that occl does not support.
occlDataType_t type_of(const at::Tensor& tensor);
// Returns the size of the tensor in units of type_of().
size_t count_of(const at::Tensor& tensor);

// The reduction of one call. Must outlive that call.
class Reduction {
 public:
  Reduction(const c10d::ReduceOp& op, const at::Tensor& tensor, occlComm_t comm);
  ~Reduction();
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;
  operator occlRedOp_t() const { return op_; }

 private:
  const occlComm_t comm_;
  occlRedOp_t op_ = occlSum;
  bool created_ = false;
};

// Each function throws a ValueError or TypeError whose message begins with `name`, the collective.
void check_tensor(const char* name, const at::Tensor& tensor);
const at::Tensor& only_tensor(const char* name, const std::vector<at::Tensor>& tensors);
// Checks that the tensor is contiguous, for collectives that depend on the order of elements, not
// only on their order in memory.
void check_contiguous(const char* name, const at::Tensor& tensor);
// Checks that both tensors have the same type and device.
void check_compatible(const char* name, const at::Tensor& input, const at::Tensor& output);
// `role` describes the tensor in the error, for instance "input".
void check_elements(const char* name, const char* role, const at::Tensor& tensor, int64_t elements);
// Checks that both tensors have the same type, device and number of elements.
void check_same(const char* name, const at::Tensor& input, const at::Tensor& output);
// Checks that `output` holds the inputs of `ranks` ranks, one after the other, in order of
// elements.
void check_gathered(const char* name, const at::Tensor& input, const at::Tensor& output, int ranks);
// Checks that `input` holds one `output` for each of `ranks` ranks.
void check_scattered(const char* name, const at::Tensor& input, const at::Tensor& output,
                     int ranks);

}  // namespace openreg

#endif  // DISTRIBUTED_ARGUMENTS_H_
