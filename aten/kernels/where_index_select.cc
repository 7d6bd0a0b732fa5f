// SPDX-License-Identifier: BSD-3-Clause
//
// Element selection: where, index_select, and narrow_copy.out.
//
// An out-of-range index is detected by the kernel, and its error is thrown at the next
// synchronization. Any thread may call these operators.
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/ops/index_select_cpu_dispatch.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/where_cpu_dispatch.h>
#include <torch/library.h>

#include "aten/launch/cpu_kernel.h"
#include "aten/structured/structured.h"
#include "aten/tensors/factories.h"

namespace openreg {
namespace {

constexpr int64_t kIndexCost = 2;

at::Tensor to_dtype(const at::Tensor& tensor, c10::ScalarType dtype) {
  return tensor.scalar_type() == dtype ? tensor : tensor.to(dtype);
}

at::Tensor to_condition(const at::Tensor& condition) {
  if (condition.scalar_type() == c10::kByte) {
    TORCH_WARN_ONCE(
        "where received a uint8 condition tensor. This behavior is deprecated and will be removed "
        "in a "
        "future version of PyTorch. Use a boolean condition instead.");
    return condition.to(c10::kBool);
  }
  TORCH_CHECK(condition.scalar_type() == c10::kBool,
              "where expected condition to be a boolean tensor, but got a tensor with dtype ",
              condition.scalar_type());
  return condition;
}

// Launches the selection. `out` is undefined in the functional variant; otherwise it is the
// caller's output. Operands of different dtypes are converted on the device, so that the
// TensorIterator can compute the output's sizes and strides from metadata.
template <OutputKind kKind>
at::Tensor launch_where(const at::Tensor& condition_, const at::Tensor& self_,
                        const at::Tensor& other_, c10::ScalarType dtype, const at::Tensor& out_) {
  Operands operands;
  operands.add(condition_);
  operands.add(self_);
  operands.add(other_);
  operands.add_device(out_);
  const c10::Device device(kOpenRegType, operands.device());
  // TensorIterator supports at most one scalar on the CPU. If there are more, all are moved.
  const bool numbers = int{condition_.is_cpu()} + int{self_.is_cpu()} + int{other_.is_cpu()} > 1;
  const auto placed = [&](const at::Tensor& tensor) {
    return numbers && tensor.is_cpu() ? tensor.to(device) : tensor;
  };
  const at::Tensor condition = placed(to_condition(condition_));
  const at::Tensor self = placed(to_dtype(self_, dtype));
  const at::Tensor other = placed(to_dtype(other_, dtype));
  StructuredMeta<at::TensorIteratorBase, 1, kKind> meta(device.index());
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).allow_cpu_scalars(true);
  if constexpr (kKind == OutputKind::kFunctional) {
    config.declare_static_dtype(dtype).declare_static_device(device);
  } else {
    meta.give_outputs(out_);
  }
  config.add_output(out_).add_const_input(condition).add_const_input(self).add_const_input(other);
  meta.build(config);
  at::Tensor out = meta.output(0);
  if (out.numel() > 0) {
    launch_cpu({"aten::where.self", out.numel()}, device.index(), &at::cpu::where_outf, condition,
               self, other, out);
  }
  return out;
}

at::Tensor where(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other) {
  return launch_where<OutputKind::kFunctional>(condition, self, other, at::result_type(self, other),
                                               at::Tensor());
}

at::Tensor& where_out(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other,
                      at::Tensor& out) {
  const c10::ScalarType dtype = at::result_type(self, other);
  TORCH_CHECK(out.scalar_type() == dtype, "Expected out type to be ", dtype, " but got ",
              out.scalar_type());
  launch_where<OutputKind::kOut>(condition, self, other, dtype, out);
  return out;
}

at::DimVector index_select_sizes(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_select(): Index is supposed to be a vector");
  TORCH_CHECK(self.dim() > 0 || index.numel() == 1,
              "index_select(): Index to scalar can have only 1 value, got ", index.numel(),
              " value(s)");
  TORCH_CHECK(index.scalar_type() == c10::kLong || index.scalar_type() == c10::kInt,
              "index_select(): Expected dtype int32 or int64 for index");
  at::DimVector sizes(self.sizes());
  if (self.dim() > 0) {
    sizes[dim] = index.numel();
  }
  return sizes;
}

at::Tensor& index_select_out(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                             at::Tensor& out) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(index);
  operands.add_device(out);
  const int64_t wrapped = at::maybe_wrap_dim(dim, self.dim());
  const at::DimVector sizes = index_select_sizes(self, wrapped, index);
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "index_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, index);
  at::native::resize_output(out, sizes);
  launch_cpu({"aten::index_select", out.numel() * kIndexCost}, operands.device(),
             &at::cpu::index_select_outf, self, wrapped, index, out);
  return out;
}

at::Tensor index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(index);
  const int64_t wrapped = at::maybe_wrap_dim(dim, self.dim());
  at::Tensor out =
      empty_on(operands.device(), index_select_sizes(self, wrapped, index), self.scalar_type());
  launch_cpu({"aten::index_select", out.numel() * kIndexCost}, operands.device(),
             &at::cpu::index_select_outf, self, wrapped, index, out);
  return out;
}

// Copies from a view. The CPU kernel is unsuitable: it assumes that the output is contiguous and
// writes past the end of an expanded output.
at::Tensor& narrow_copy_out(const at::Tensor& self, int64_t dim, int64_t start, int64_t length,
                            at::Tensor& output) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(output);
  TORCH_CHECK(self.dtype() == output.dtype());
  const at::Tensor part = self.narrow(dim, start, length);
  at::native::resize_output(output, part.sizes());
  return output.copy_(part);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("where.self", TORCH_FN(where));
  library.impl("where.self_out", TORCH_FN(where_out));
  library.impl("index_select", TORCH_FN(index_select));
  library.impl("index_select.out", TORCH_FN(index_select_out));
  library.impl("narrow_copy.out", TORCH_FN(narrow_copy_out));
}

}  // namespace openreg
