// SPDX-License-Identifier: BSD-3-Clause
//
// What the collectives of torch.distributed are asked for, as occl takes it: types, counts,
// reductions, and the checks of tensors. Stateless, but for the scale of a reduction. Threads: as
// the communicator.
#ifndef DISTRIBUTED_ARGUMENTS_H_
#define DISTRIBUTED_ARGUMENTS_H_

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "distributed/occl/occl.h"

namespace openreg {

// Throws DistBackendError with the words of the function that failed.
void check_occl(occlResult_t result);

// Types that occl does not know are moved as bytes.
occlDataType_t type_of(const at::Tensor& tensor);
// How many elements of type_of().
size_t count_of(const at::Tensor& tensor);

// The reduction, for as long as the call that it is for.
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

// Each throws a ValueError or TypeError that begins with `name`, the collective.
void check_tensor(const char* name, const at::Tensor& tensor);
const at::Tensor& only_tensor(const char* name, const std::vector<at::Tensor>& tensors);
// Where the order of elements counts, and not only that in memory.
void check_contiguous(const char* name, const at::Tensor& tensor);
// Of one type and on one device.
void check_alike(const char* name, const at::Tensor& input, const at::Tensor& output);
// `role`: what the tensor is for the collective, in words.
void check_elements(const char* name, const char* role, const at::Tensor& tensor, int64_t elements);
// Of one type, on one device, and of as many elements.
void check_same(const char* name, const at::Tensor& input, const at::Tensor& output);
// `output` has an `input` of each of `ranks` ranks, one after the other, in order of elements.
void check_gathered(const char* name, const at::Tensor& input, const at::Tensor& output, int ranks);
// `input` has an `output` for each of `ranks` ranks.
void check_scattered(const char* name, const at::Tensor& input, const at::Tensor& output,
                     int ranks);

}  // namespace openreg

#endif  // DISTRIBUTED_ARGUMENTS_H_
