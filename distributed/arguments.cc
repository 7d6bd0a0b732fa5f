// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/arguments.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/exception.h>

#include <string>

#include "runtime/c10/device.h"

namespace openreg {

using c10d::ReduceOp;

void check_occl(occlResult_t result) {
  TORCH_CHECK_WITH(DistBackendError, result == occlSuccess, occlGetLastError());
}

occlDataType_t type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kChar:
      return occlInt8;
    case at::kByte:
      return occlUint8;
    case at::kShort:
      return occlInt16;
    case at::kUInt16:
      return occlUint16;
    case at::kInt:
      return occlInt32;
    case at::kUInt32:
      return occlUint32;
    case at::kLong:
      return occlInt64;
    case at::kUInt64:
      return occlUint64;
    case at::kHalf:
      return occlFloat16;
    case at::kBFloat16:
      return occlBfloat16;
    case at::kFloat:
      return occlFloat32;
    case at::kDouble:
      return occlFloat64;
    case at::kFloat8_e4m3fn:
      return occlFloat8e4m3;
    case at::kFloat8_e5m2:
      return occlFloat8e5m2;
    case at::kComplexFloat:
      return occlComplex64;
    case at::kComplexDouble:
      return occlComplex128;
    case at::kBool:
      return occlBool;
    default:
      return occlByte;  // other types are moved as bytes
  }
}

size_t count_of(const at::Tensor& tensor) {
  return type_of(tensor) == occlByte ? tensor.nbytes() : static_cast<size_t>(tensor.numel());
}

const char* name_of(ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM:
      return "SUM";
    case ReduceOp::AVG:
      return "AVG";
    case ReduceOp::PRODUCT:
      return "PRODUCT";
    case ReduceOp::MIN:
      return "MIN";
    case ReduceOp::MAX:
      return "MAX";
    case ReduceOp::BAND:
      return "BAND";
    case ReduceOp::BOR:
      return "BOR";
    case ReduceOp::BXOR:
      return "BXOR";
    case ReduceOp::PREMUL_SUM:
      return "PREMUL_SUM";
    case ReduceOp::UNUSED:
      return "UNUSED";
  }
  return "(unknown)";  // of a later version of torch
}

Reduction::Reduction(const ReduceOp& op, const at::Tensor& tensor, occlComm_t comm) : comm_(comm) {
  switch (op) {
    case ReduceOp::SUM:
      op_ = occlSum;
      break;
    case ReduceOp::AVG:
      op_ = occlAvg;
      break;
    case ReduceOp::PRODUCT:
      op_ = occlProd;
      break;
    case ReduceOp::MIN:
      op_ = occlMin;
      break;
    case ReduceOp::MAX:
      op_ = occlMax;
      break;
    case ReduceOp::BAND:
      op_ = occlBitAnd;
      break;
    case ReduceOp::BOR:
      op_ = occlBitOr;
      break;
    case ReduceOp::BXOR:
      op_ = occlBitXor;
      break;
    case ReduceOp::PREMUL_SUM: {
      const auto* const factor =
          dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
      TORCH_CHECK(
          factor != nullptr,
          "occl: PREMUL_SUM needs a factor: create the reduction with _make_nccl_premul_sum");
      const at::Tensor scalar =
          factor->tensor_factor.defined()
              ? factor->tensor_factor.to(at::kCPU, tensor.scalar_type())
              : at::empty({}, tensor.options().device(at::kCPU)).fill_(factor->double_factor);
      check_occl(occlRedOpCreatePreMulSum(&op_, scalar.const_data_ptr(), type_of(tensor), comm));
      created_ = true;
      break;
    }
    default:
      TORCH_CHECK(false, "occl: reduction ", name_of(op),
                  " is not supported: use SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR or "
                  "PREMUL_SUM");
  }
}

Reduction::~Reduction() {
  if (created_) {
    (void)occlRedOpDestroy(op_, comm_);
  }
}

void check_tensor(const char* name, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.device().type() == kOpenRegType, "occl: ", name, " got a tensor on ",
                    tensor.device(), ": use tensors on ", kOpenRegType,
                    ", or create the group with backend=\"cpu:gloo,openreg:occl\"");
  TORCH_CHECK_VALUE(!tensor.is_conj() && !tensor.is_neg(), "occl: ", name,
                    " got a conjugated or negated view: call resolve_conj() or "
                    "resolve_neg()");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense(),
                    "occl: ", name, " got a tensor that is not dense: call contiguous()");
}

void check_contiguous(const char* name, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.is_contiguous(), "occl: ", name,
                    " got a tensor that is not contiguous: call contiguous()");
}

const at::Tensor& only_tensor(const char* name, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "occl: ", name, " takes one tensor for each device, got ",
                    tensors.size());
  check_tensor(name, tensors[0]);
  return tensors[0];
}

void check_compatible(const char* name, const at::Tensor& input, const at::Tensor& output) {
  check_tensor(name, output);
  check_tensor(name, input);
  TORCH_CHECK_TYPE(output.scalar_type() == input.scalar_type(), "occl: ", name, ": the input is ",
                   input.scalar_type(), ", but the output is ", output.scalar_type(),
                   ": both must have the same dtype");
  TORCH_CHECK_VALUE(output.device() == input.device(), "occl: ", name, ": the input is on ",
                    input.device(), ", but the output is on ", output.device(),
                    ": both must be on the same device");
}

void check_elements(const char* name, const char* role, const at::Tensor& tensor,
                    int64_t elements) {
  TORCH_CHECK_VALUE(tensor.numel() == elements, "occl: ", name, ": the ", role, " has ",
                    tensor.numel(), " elements but needs ", elements);
}

void check_same(const char* name, const at::Tensor& input, const at::Tensor& output) {
  check_compatible(name, input, output);
  check_elements(name, "output", output, input.numel());
}

void check_gathered(const char* name, const at::Tensor& input, const at::Tensor& output,
                    int ranks) {
  check_compatible(name, input, output);
  check_elements(name, "output", output, input.numel() * ranks);
  check_contiguous(name, input);
  check_contiguous(name, output);
}

void check_scattered(const char* name, const at::Tensor& input, const at::Tensor& output,
                     int ranks) {
  check_compatible(name, input, output);
  check_elements(name, "input", input, output.numel() * ranks);
  check_contiguous(name, input);
  check_contiguous(name, output);
}

}  // namespace openreg
