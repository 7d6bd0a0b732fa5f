// SPDX-License-Identifier: BSD-3-Clause
//
// Converts the arguments of torch.distributed's collectives (types, counts and reductions) for
// occl, and checks tensors. The functions keep no state. A Reduction owns at most one occl
// operator. As for a communicator, only one thread at a time may call these functions.
#ifndef DISTRIBUTED_ARGUMENTS_H_
#define DISTRIBUTED_ARGUMENTS_H_

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "distributed/occl/occl.h"

namespace openreg {

// Throws DistBackendError with the message of the failed occl function unless `result` is
// occlSuccess.
void check_occl(occlResult_t result);

// Returns the occl type of the tensor's elements. If occl does not support their dtype, returns
// occlByte.
occlDataType_t type_of(const at::Tensor& tensor);
// Returns the size of the tensor in units of type_of(tensor).
size_t count_of(const at::Tensor& tensor);

// Returns the name of a reduction in torch.distributed.ReduceOp, for example "SUM".
const char* name_of(c10d::ReduceOp::RedOpType op);

// The occl operator for the reduction of one call. Owns the operator if occl had to create it
// (PREMUL_SUM). The Reduction must outlive the call.
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

// The following functions check arguments. Each throws a ValueError or TypeError whose message
// begins with `name`, the name of the collective. check_tensor checks that occl can access the
// tensor: it must be dense, on this device, and not a conjugated or negated view.
void check_tensor(const char* name, const at::Tensor& tensor);
const at::Tensor& only_tensor(const char* name, const std::vector<at::Tensor>& tensors);
// Checks that the tensor is contiguous. Needed for collectives that depend on the logical order of
// elements, not only on their order in memory.
void check_contiguous(const char* name, const at::Tensor& tensor);
// Checks that both tensors have the same type and device.
void check_compatible(const char* name, const at::Tensor& input, const at::Tensor& output);
// Checks the number of elements. `role` describes the tensor in the error, for example "input".
void check_elements(const char* name, const char* role, const at::Tensor& tensor, int64_t elements);
// Checks that both tensors have the same type, device and number of elements.
void check_same(const char* name, const at::Tensor& input, const at::Tensor& output);
// Checks that `output` has room for the inputs of `ranks` ranks, one after the other in the logical
// order of its elements.
void check_gathered(const char* name, const at::Tensor& input, const at::Tensor& output, int ranks);
// Checks that `input` contains one `output` for each of `ranks` ranks.
void check_scattered(const char* name, const at::Tensor& input, const at::Tensor& output,
                     int ranks);

}  // namespace openreg

#endif  // DISTRIBUTED_ARGUMENTS_H_
