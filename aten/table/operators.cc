// SPDX-License-Identifier: BSD-3-Clause
//
// The operators that have a kernel in the minimal driver's table. The end of this file lists them.
// fill_ and copies support every dtype of up to 8 bytes, the others float32. A call that the kernel
// does not support, for instance with another dtype, uses the host fallback. An operator also falls
// back if the driver lacks its kernel. Any thread may call them.
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "aten/fallback/host_fallback.h"
#include "aten/tensors/copy.h"
#include "aten/tensors/copy_through_host.h"
#include "runtime/c10/device.h"
#include "runtime/c10/error.h"
#include "runtime/c10/stream.h"
#include "runtime/minimal/openreg_minimal.h"

namespace openreg {
namespace {

using torch::jit::Stack;

// Returns whether every kernel in the table can access the tensor. `device` is the device of the
// other operands.
bool is_supported(const at::Tensor& tensor, c10::Device device) {
  return tensor.defined() && tensor.device() == device && tensor.layout() == at::kStrided &&
         tensor.scalar_type() == at::kFloat && tensor.dim() <= OPENREG_MINIMAL_MAX_RANK &&
         !tensor.is_neg();
}

// Returns whether a tensor is a Python number or a CPU scalar that can be converted to float.
bool is_scalar(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.dim() == 0 && !tensor.is_complex();
}

// Returns whether the memory from the first to the last element of one tensor overlaps that of the
// other.
bool ranges_overlap(const at::Tensor& left, const at::Tensor& right) {
  const auto end = [](const at::Tensor& tensor) {
    return static_cast<const char*>(tensor.const_data_ptr()) +
           at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(),
                                            tensor.element_size());
  };
  return left.const_data_ptr() < end(right) && right.const_data_ptr() < end(left);
}

// Returns whether a kernel may read `input` while it writes `output`. An elementwise kernel may do
// so in place.
bool may_write(const at::Tensor& output, const at::Tensor& input, bool elementwise) {
  switch (at::get_overlap_status(output, input)) {
    case at::MemOverlapStatus::No:
      return true;
    case at::MemOverlapStatus::Full:
      return elementwise;
    case at::MemOverlapStatus::Partial:
      return false;
    case at::MemOverlapStatus::TooHard:
      break;  // torch does not examine tensors that are not dense, such as strided slices
  }
  return !ranges_overlap(output, input) ||
         (elementwise && output.const_data_ptr() == input.const_data_ptr() &&
          output.sizes() == input.sizes() && output.strides() == input.strides());
}

// Returns whether all elements of `output` have different addresses.
bool may_write(const at::Tensor& output) {
  const at::MemOverlap overlap = at::has_internal_overlap(output);
  if (overlap != at::MemOverlap::TooHard) {
    return overlap == at::MemOverlap::No;
  }
  // torch does not examine tensors that are not dense. Their elements have different addresses if
  // the stride of each dimension is larger than the distance between the first and the last element
  // of the dimensions with smaller strides.
  c10::SmallVector<std::pair<int64_t, int64_t>, OPENREG_MINIMAL_MAX_RANK> dimensions;
  for (int64_t dimension = 0; dimension < output.dim(); ++dimension) {
    if (output.size(dimension) != 1) {
      dimensions.emplace_back(output.stride(dimension), output.size(dimension));
    }
  }
  std::sort(dimensions.begin(), dimensions.end());
  int64_t distance = 0;
  for (const auto& [stride, size] : dimensions) {
    if (stride <= distance) {
      return false;
    }
    distance += stride * (size - 1);
  }
  return true;
}

orOperand operand(void* data, at::IntArrayRef strides) {
  orOperand result{};
  result.data = data;
  std::copy(strides.begin(), strides.end(), result.strides);
  return result;
}

orOperand output_operand(const at::Tensor& tensor) {
  return operand(tensor.mutable_data_ptr(), tensor.strides());
}

orOperand input_operand(const at::Tensor& tensor, at::IntArrayRef sizes) {
  const auto strides =
      at::inferExpandGeometry_dimvector(tensor.sizes(), tensor.strides(), sizes).strides;
  return operand(const_cast<void*>(tensor.const_data_ptr()), strides);
}

orKernelArguments elementwise(const at::Tensor& output) {
  orKernelArguments arguments{};
  arguments.rank = arguments.kept = static_cast<int>(output.dim());
  arguments.element_size = static_cast<int>(output.element_size());
  std::copy(output.sizes().begin(), output.sizes().end(), arguments.sizes);
  arguments.out = output_operand(output);
  return arguments;
}

// Warns that the driver lacks a kernel, once per kernel. The name may be misspelled here or in the
// driver, and the statistics of the fallback do not show this.
void warn_of_missing_kernel(const char* name) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  {
    const std::lock_guard lock(mutex);
    if (!warned.emplace(name).second) {
      return;
    }
  }
  TORCH_WARN("openreg: the driver has no kernel \"", name,
             "\": operators that would launch it run on the CPU. Warned once per kernel.");
}

// Launches a kernel. Returns false if the driver does not have it.
bool launch(const char* name, c10::Device device, const orKernelArguments& arguments) {
  const DeviceScope scope(device.index());
  orKernel_t kernel = nullptr;
  if (!driver_supports(orGetKernel(&kernel, name))) {
    warn_of_missing_kernel(name);
    return false;
  }
  OPENREG_CHECK(
      orLaunchKernel(current_native_stream(device.index()), kernel, &arguments, sizeof(arguments)));
  return true;
}

// Launches `output` = kernel(a, b) if the kernel supports the call.
bool launch_binary(const char* name, const at::Tensor& a, const at::Tensor& b, double scalar,
                   const at::Tensor& output) {
  const c10::Device device = output.device();
  if (!is_supported(output, device) || !is_supported(a, device) || !is_supported(b, device) ||
      output.sizes() != at::infer_size_dimvector(a.sizes(), b.sizes()) || !may_write(output) ||
      !may_write(output, a, /*elementwise=*/true) || !may_write(output, b, /*elementwise=*/true)) {
    return false;
  }
  orKernelArguments arguments = elementwise(output);
  arguments.a = input_operand(a, output.sizes());
  arguments.b = input_operand(b, output.sizes());
  arguments.scalar = scalar;
  return launch(name, device, arguments);
}

// Launches `output` = kernel(a) if the kernel supports the call.
bool launch_unary(const char* name, const at::Tensor& a, double scalar, const at::Tensor& output) {
  const c10::Device device = output.device();
  if (!is_supported(output, device) || !is_supported(a, device) || output.sizes() != a.sizes() ||
      !may_write(output) || !may_write(output, a, /*elementwise=*/true)) {
    return false;
  }
  orKernelArguments arguments = elementwise(output);
  arguments.a = input_operand(a, output.sizes());
  arguments.scalar = scalar;
  return launch(name, device, arguments);
}

// Launches `output` = kernel(a, b) if the kernel supports the call. One of `a` and `b` is a number:
// for x.mul_(3), torch passes the number first.
bool launch_with_number(const char* name, const at::Tensor& a, const at::Tensor& b,
                        const at::Tensor& output) {
  const auto& [tensor, number] = is_scalar(b) ? std::tie(a, b) : std::tie(b, a);
  return launch_unary(name, tensor, number.item().toDouble(), output);
}

// The function of one operator. It gets the arguments from the stack, and returns the result if the
// kernel supports the call.
using Run = std::optional<at::Tensor> (*)(at::ArrayRef<c10::IValue> arguments);

std::optional<at::Tensor> returned(bool launched, const at::Tensor& result) {
  return launched ? std::optional(result) : std::nullopt;
}

// Implements add.out(self, other, *, alpha, out).
std::optional<at::Tensor> add(at::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& a = arguments[0].toTensor();
  const at::Tensor& b = arguments[1].toTensor();
  const at::Scalar alpha = arguments[2].toScalar();
  const at::Tensor& output = arguments[3].toTensor();
  if (alpha.isComplex()) {
    return std::nullopt;
  }
  if (alpha.equal(1) && (is_scalar(a) || is_scalar(b))) {
    return returned(launch_with_number("add_scalar", a, b, output), output);
  }
  return returned(launch_binary("add", a, b, alpha.toDouble(), output), output);
}

// Implements mul.out(self, other, *, out).
std::optional<at::Tensor> mul(at::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& a = arguments[0].toTensor();
  const at::Tensor& b = arguments[1].toTensor();
  const at::Tensor& output = arguments[2].toTensor();
  if (is_scalar(a) || is_scalar(b)) {
    return returned(launch_with_number("mul_scalar", a, b, output), output);
  }
  return returned(launch_binary("mul", a, b, 0, output), output);
}

// Implements threshold_backward.grad_input(grad_output, self, threshold, *, grad_input).
std::optional<at::Tensor> threshold_backward(at::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& output = arguments[3].toTensor();
  return returned(
      launch_binary("threshold_backward", arguments[0].toTensor(), arguments[1].toTensor(),
                    arguments[2].toScalar().toDouble(), output),
      output);
}

// Implements relu(self).
std::optional<at::Tensor> relu(at::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (!is_supported(self, self.device())) {
    return std::nullopt;
  }
  const at::Tensor result = at::empty_like(self);
  return returned(launch_unary("relu", self, 0, result), result);
}

// Implements relu_(self).
std::optional<at::Tensor> relu_in_place(at::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  return returned(launch_unary("relu", self, 0, self), self);
}

// Implements fill_.Scalar(self, value).
std::optional<at::Tensor> fill(at::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (self.layout() != at::kStrided || self.dim() > OPENREG_MINIMAL_MAX_RANK ||
      self.dtype().itemsize() > sizeof(orKernelArguments::bytes) || !may_write(self) ||
      self.is_conj() || self.is_neg()) {
    return std::nullopt;
  }
  const at::Tensor value = at::scalar_tensor(
      arguments[1].toScalar(), at::TensorOptions().dtype(self.dtype()).device(at::kCPU));
  orKernelArguments call = elementwise(self);
  std::memcpy(call.bytes, value.const_data_ptr(), self.element_size());
  return returned(launch("fill", self.device(), call), self);
}

// Implements mm.out(self, mat2, *, out).
std::optional<at::Tensor> mm(at::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& a = arguments[0].toTensor();
  const at::Tensor& b = arguments[1].toTensor();
  const at::Tensor& output = arguments[2].toTensor();
  const c10::Device device = output.device();
  if (!is_supported(output, device) || !is_supported(a, device) || !is_supported(b, device) ||
      a.dim() != 2 || b.dim() != 2 || a.size(1) != b.size(0) ||
      output.sizes() != at::IntArrayRef{a.size(0), b.size(1)} || !may_write(output) ||
      !may_write(output, a, /*elementwise=*/false) ||
      !may_write(output, b, /*elementwise=*/false)) {
    return std::nullopt;
  }
  orKernelArguments call{};
  call.rank = 3;
  call.kept = 2;
  call.element_size = static_cast<int>(output.element_size());
  const int64_t sizes[] = {a.size(0), b.size(1), a.size(1)};
  std::copy(std::begin(sizes), std::end(sizes), call.sizes);
  call.out = output_operand(output);
  call.a = operand(const_cast<void*>(a.const_data_ptr()), {a.stride(0), 0, a.stride(1)});
  call.b = operand(const_cast<void*>(b.const_data_ptr()), {0, b.stride(1), b.stride(0)});
  return returned(launch("mm", device, call), output);
}

// Implements sum.IntList_out(self, dim, keepdim, *, dtype, out).
std::optional<at::Tensor> sum(at::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& output = arguments[4].toTensor();
  const c10::Device device = output.device();
  if (!is_supported(output, device) || !is_supported(self, device) || !may_write(output) ||
      !may_write(output, self, /*elementwise=*/false) ||
      (!arguments[3].isNone() && arguments[3].toScalarType() != at::kFloat)) {
    return std::nullopt;
  }
  const std::vector<int64_t> dimensions =
      arguments[1].isNone() ? std::vector<int64_t>() : arguments[1].toIntVector();
  const auto reduced = at::dim_list_to_bitset(
      dimensions.empty() ? at::OptionalIntArrayRef() : dimensions, static_cast<size_t>(self.dim()));
  const bool keep = arguments[2].toBool();
  std::vector<int64_t> sizes;
  for (int64_t dimension = 0; dimension < self.dim(); ++dimension) {
    if (!reduced[static_cast<size_t>(dimension)]) {
      sizes.push_back(self.size(dimension));
    } else if (keep) {
      sizes.push_back(1);
    }
  }
  if (output.sizes() != sizes) {
    return std::nullopt;  // the output must be resized
  }
  orKernelArguments call{};
  call.element_size = static_cast<int>(output.element_size());
  call.out.data = output.mutable_data_ptr();
  call.a.data = const_cast<void*>(self.const_data_ptr());
  int64_t kept_dimension = 0;  // index of the output's dimension
  for (const bool reduce : {false, true}) {
    for (int64_t dimension = 0; dimension < self.dim(); ++dimension) {
      if (reduced[static_cast<size_t>(dimension)] != reduce) {
        continue;
      }
      call.sizes[call.rank] = self.size(dimension);
      call.a.strides[call.rank] = self.stride(dimension);
      if (!reduce) {
        call.out.strides[call.rank] = output.stride(keep ? dimension : kept_dimension++);
      }
      ++call.rank;
    }
    if (!reduce) {
      call.kept = call.rank;
    }
  }
  return returned(launch("sum", device, call), output);
}

// Copies between strided device tensors. For equal layouts, the driver's memcpy is faster. Copies
// that the kernel does not support go through the host.
void copy(c10::DeviceIndex device, const at::Tensor& dst, const at::Tensor& src, bool awaited) {
  const size_t size = dst.element_size();
  const bool same_layout = dst.sizes() == src.sizes() && dst.strides() == src.strides() &&
                           dst.is_non_overlapping_and_dense();
  if (dst.device() != src.device() || dst.scalar_type() != src.scalar_type() || same_layout ||
      dst.is_conj() != src.is_conj() || dst.is_neg() != src.is_neg() ||
      dst.dim() > OPENREG_MINIMAL_MAX_RANK || (size != 1 && size != 2 && size != 4 && size != 8)) {
    copy_through_host(device, dst, src, awaited);
    return;
  }
  orKernelArguments arguments = elementwise(dst);
  arguments.a = input_operand(src, dst.sizes());
  if (!launch("copy", dst.device(), arguments)) {
    copy_through_host(device, dst, src, awaited);
  }
}

[[maybe_unused]] const bool registered = (set_copy_kernel(&copy), true);

template <Run kRun>
void boxed(const c10::OperatorHandle& handle, Stack* stack) {
  const size_t count = handle.schema().arguments().size();
  const std::optional<at::Tensor> result = kRun(torch::jit::last(*stack, count));
  if (!result.has_value()) {
    host_fallback(handle, stack);
    return;
  }
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, *result);
}

template <Run kRun>
torch::CppFunction kernel() {
  return torch::CppFunction::makeFromBoxedFunction<&boxed<kRun>>();
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("add.out", kernel<&add>());
  library.impl("mul.out", kernel<&mul>());
  library.impl("threshold_backward.grad_input", kernel<&threshold_backward>());
  library.impl("relu", kernel<&relu>());
  library.impl("relu_", kernel<&relu_in_place>());
  library.impl("fill_.Scalar", kernel<&fill>());
  library.impl("mm.out", kernel<&mm>());
  library.impl("sum.IntList_out", kernel<&sum>());
}

}  // namespace openreg
