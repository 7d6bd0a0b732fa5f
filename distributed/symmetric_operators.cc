// SPDX-License-Identifier: BSD-3-Clause
//
// symmetric_operators.cc - the operators of torch.ops.symm_mem on this device, which torch
// implements only for CUDA. Their tensors are symmetric memory at the same offset on all ranks.
// They run on the current stream and use channel 0 of the signal pads. Any thread may call them.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "distributed/arguments.h"
#include "distributed/occl/window.h"
#include "distributed/symmetric_memory.h"

namespace openreg {
namespace {

using Memory = c10::intrusive_ptr<c10d::symmetric_memory::SymmetricMemory>;

// An operand of a symmetric memory operator: the window of its tensor, and the tensor's offset in
// the window's buffer.
class Operand {
 public:
  Operand(const char* name, const at::Tensor& tensor, const std::string& group)
      : memory_(c10d::symmetric_memory::rendezvous(tensor, group)),
        own_(dynamic_cast<SymmetricMemoryOCCL*>(memory_.get())) {
    TORCH_CHECK_VALUE(own_ != nullptr, name,
                      ": the tensor is not symmetric memory: allocate it with "
                      "torch.distributed._symmetric_memory.empty() or empty_strided_p2p()");
    TORCH_CHECK_VALUE(tensor.is_contiguous(), name,
                      ": the symmetric tensor must be contiguous, got sizes ", tensor.sizes(),
                      " and strides ", tensor.strides());
    offset_ = own_->offset_of(tensor);
  }

  occlWindow_t window() const { return own_->window(); }
  orStream_t stream() const { return own_->stream(); }
  size_t offset() const { return offset_; }
  int64_t ranks() const { return own_->get_world_size(); }
  // Returns a tensor in the memory of rank `peer`, with the sizes and dtype of `mine` and at the
  // same offset.
  at::Tensor tensor(int peer, const at::Tensor& mine) const {
    return own_->get_buffer(peer, mine.sizes(), mine.scalar_type(),
                            static_cast<int64_t>(offset_ / mine.element_size()));
  }

 private:
  const Memory memory_;
  SymmetricMemoryOCCL* const own_;
  size_t offset_ = 0;
};

occlRedOp_t reduction(const char* name, const std::string& op) {
  static constexpr std::pair<std::string_view, occlRedOp_t> kReductions[] = {{"sum", occlSum},
                                                                             {"avg", occlAvg},
                                                                             {"product", occlProd},
                                                                             {"min", occlMin},
                                                                             {"max", occlMax}};
  for (const auto& [known, value] : kReductions) {
    if (known == op) {
      return value;
    }
  }
  TORCH_CHECK_VALUE(false, name, ": unsupported reduction \"", op,
                    "\": use sum, avg, product, min or max");
}

void check_output(const char* name, const at::Tensor& output, const at::Tensor& input,
                  int64_t elements) {
  check_contiguous(name, output);
  check_compatible(name, input, output);
  check_elements(name, "output", output, elements);
}

// --------------------------------------------------------------------------------- all-reduces

at::Tensor one_shot(const char* name, const at::Tensor& buffer, const at::Tensor* local,
                    const std::string& op, const std::string& group, const at::Tensor& out) {
  const Operand operand(name, buffer, group);
  const at::Tensor& given = local != nullptr ? *local : buffer;
  check_output(name, out, buffer, given.numel());
  if (local != nullptr) {
    check_contiguous(name, *local);
    check_compatible(name, *local, buffer);
    TORCH_CHECK_VALUE(local->numel() <= buffer.numel(), name, ": the input has ", local->numel(),
                      " elements and does not fit in the symmetric tensor, which has ",
                      buffer.numel());
  }
  check_occl(occlWindowAllReduceOneShot(
      operand.window(), operand.offset(), static_cast<size_t>(given.numel()), type_of(given),
      reduction(name, op), local != nullptr ? local->const_data_ptr() : nullptr,
      out.mutable_data_ptr(), operand.stream()));
  return out;
}

at::Tensor one_shot_all_reduce_out(const at::Tensor& input, std::string op, std::string group,
                                   at::Tensor out) {
  return one_shot("one_shot_all_reduce_out", input, nullptr, op, group, out);
}

at::Tensor one_shot_all_reduce(const at::Tensor& input, std::string op, std::string group) {
  return one_shot("one_shot_all_reduce", input, nullptr, op, group, at::empty_like(input));
}

at::Tensor one_shot_all_reduce_copy_out(const at::Tensor& buffer, const at::Tensor& local,
                                        std::string op, std::string group, at::Tensor out) {
  return one_shot("one_shot_all_reduce_copy_out", buffer, &local, op, group, out);
}

at::Tensor one_shot_all_reduce_copy(const at::Tensor& buffer, const at::Tensor& local,
                                    std::string op, std::string group) {
  return one_shot("one_shot_all_reduce_copy", buffer, &local, op, group, at::empty_like(local));
}

at::Tensor two_shot_all_reduce_(at::Tensor input, std::string op, std::string group) {
  constexpr const char* kName = "two_shot_all_reduce_";
  const Operand operand(kName, input, group);
  check_occl(occlWindowAllReduceTwoShot(operand.window(), operand.offset(),
                                        static_cast<size_t>(input.numel()), type_of(input),
                                        reduction(kName, op), nullptr, operand.stream()));
  return input;
}

at::Tensor two_shot_all_reduce_out(at::Tensor input, std::string op, std::string group,
                                   at::Tensor output) {
  constexpr const char* kName = "two_shot_all_reduce_out";
  const Operand operand(kName, input, group);
  check_output(kName, output, input, input.numel());
  if (input.numel() == 0) {
    return output;
  }
  check_occl(occlWindowAllReduceTwoShot(
      operand.window(), operand.offset(), static_cast<size_t>(input.numel()), type_of(input),
      reduction(kName, op), output.mutable_data_ptr(), operand.stream()));
  return output;
}

at::Tensor reduce_scatter_out(at::Tensor input, std::string group, bool split_last_dim,
                              at::Tensor output) {
  constexpr const char* kName = "reduce_scatter_out";
  const Operand operand(kName, input, group);
  const int64_t ranks = operand.ranks();
  const int64_t last = split_last_dim && input.dim() > 0 ? input.size(-1) : input.numel();
  TORCH_CHECK_VALUE(last % ranks == 0, kName, ": ", last, split_last_dim ? " columns" : " elements",
                    " cannot be divided among ", ranks, " ranks");
  if (split_last_dim) {
    std::vector<int64_t> expected = input.sizes().vec();
    if (!expected.empty()) {
      expected.back() /= ranks;
    }
    TORCH_CHECK_VALUE(output.sizes() == expected, kName, ": the output must have shape ", expected,
                      ", but got ", output.sizes());
  }
  check_output(kName, output, input, input.numel() / ranks);
  if (input.numel() == 0) {
    return output;
  }
  check_occl(occlWindowReduceScatter(operand.window(), operand.offset(),
                                     static_cast<size_t>(input.numel() / last),
                                     static_cast<size_t>(last / ranks), type_of(input), occlSum,
                                     output.mutable_data_ptr(), operand.stream()));
  return output;
}

// Exchanges rows along the first dimension. The device reads from `splits` how many rows each rank
// gets. torch refuses C++ types that differ from those of the CUDA kernel, which its other build
// contains.
void all_to_all_vdev(at::Tensor& input, at::Tensor& out, at::Tensor& splits,
                     at::Tensor& out_splits_offsets, std::string group) {
  constexpr const char* kName = "all_to_all_vdev";
  const Operand rows(kName, input, group);
  const Operand numbers(kName, splits, group);
  TORCH_CHECK_VALUE(input.dim() >= 1 && out.dim() == input.dim() &&
                        out.sizes().slice(1) == input.sizes().slice(1),
                    kName, ": input and out must agree in all sizes except the first, but got ",
                    input.sizes(), " and ", out.sizes());
  check_output(kName, out, input, out.numel());
  TORCH_CHECK_VALUE(splits.scalar_type() == at::kLong && splits.numel() == rows.ranks() &&
                        out_splits_offsets.scalar_type() == at::kLong &&
                        out_splits_offsets.numel() == 2 * rows.ranks(),
                    kName, ": in_splits must have ", rows.ranks(),
                    " int64 elements and out_splits_offsets must have ", 2 * rows.ranks(),
                    ", but got ", splits.numel(), " of ", splits.scalar_type(), " and ",
                    out_splits_offsets.numel(), " of ", out_splits_offsets.scalar_type());
  check_contiguous(kName, out_splits_offsets);
  const int64_t row = c10::multiply_integers(input.sizes().slice(1));
  const occlRows sizes{static_cast<size_t>(row) * input.element_size(),
                       static_cast<size_t>(input.size(0)), static_cast<size_t>(out.size(0))};
  check_occl(occlWindowAllToAllV(rows.window(), rows.offset(), numbers.window(), numbers.offset(),
                                 &sizes, out.mutable_data_ptr(),
                                 out_splits_offsets.mutable_data_ptr(), rows.stream()));
  (void)numbers.stream();  // keeps the memory of the splits until the exchange has run
}

// Returns the tensors of all ranks that are at the same offset as this rank's tensor.
std::vector<at::Tensor> get_remote_tensors(const at::Tensor& tensor, std::string group) {
  const Operand operand("get_remote_tensors", tensor, group);
  std::vector<at::Tensor> tensors;
  for (int peer = 0; peer < operand.ranks(); ++peer) {
    tensors.push_back(operand.tensor(peer, tensor));
  }
  return tensors;
}

// -------------------------------------------------------------------------------- single words

// torch's Python bindings of the same names call these functions, so the signatures must be the
// same.
at::Tensor memset32_(at::Tensor& input, int64_t offset, int64_t value, int64_t count) {
  TORCH_CHECK_VALUE(
      input.dim() == 1 && input.is_contiguous() &&
          (input.scalar_type() == at::kUInt32 || input.scalar_type() == at::kInt),
      "memset32_: the tensor must be contiguous and one-dimensional, with dtype uint32 or "
      "int32, but got ",
      input.scalar_type(), " of shape ", input.sizes(), " and strides ", input.strides());
  TORCH_CHECK_VALUE(offset >= 0 && count >= 1 && count <= input.numel() - offset,
                    "memset32_: cannot set ", count, " words at offset ", offset,
                    " of a tensor with ", input.numel(), " words");
  TORCH_CHECK_VALUE(
      value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<uint32_t>::max(),
      "memset32_: the value ", value, " does not fit in 32 bits");
  // Fill through an int32 view, because the bit pattern is the same for signed and unsigned words.
  input.view(at::kInt).narrow(0, offset, count).fill_(static_cast<int32_t>(value));
  return input;
}

at::Tensor stream_write_value32_(at::Tensor& input, int64_t offset, int64_t value) {
  return memset32_(input, offset, value, 1);
}

// --------------------------------------------------------------------------------- unsupported

void no_multicast(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op.schema().name(),
      ": this device has no multicast (has_multicast_support() is False): use "
      "one_shot_all_reduce, two_shot_all_reduce_ or a collective of the process group");
}

TORCH_LIBRARY_IMPL(symm_mem, PrivateUse1, library) {
  library.impl("one_shot_all_reduce", one_shot_all_reduce);
  library.impl("one_shot_all_reduce_out", one_shot_all_reduce_out);
  library.impl("one_shot_all_reduce_copy", one_shot_all_reduce_copy);
  library.impl("one_shot_all_reduce_copy_out", one_shot_all_reduce_copy_out);
  library.impl("two_shot_all_reduce_", two_shot_all_reduce_);
  library.impl("two_shot_all_reduce_out", two_shot_all_reduce_out);
  library.impl("reduce_scatter_out", reduce_scatter_out);
  library.impl("all_to_all_vdev", all_to_all_vdev);
  library.impl("get_remote_tensors", get_remote_tensors);
  library.impl("memset32_", memset32_);
  library.impl("stream_write_value32_", stream_write_value32_);
  for (const char* const name :
       {"multimem_all_reduce_", "multimem_one_shot_all_reduce", "multimem_one_shot_all_reduce_out",
        "multimem_one_shot_reduce_out", "multimem_all_gather_out"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&no_multicast>());
  }
}

}  // namespace
}  // namespace openreg
