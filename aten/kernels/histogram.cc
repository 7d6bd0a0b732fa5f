// SPDX-License-Identifier: BSD-3-Clause
//
// Histograms of integers, as on CUDA. The CPU has no kernel for integers, but programs call histc
// on all other devices, to count the tokens per expert. Histograms of other dtypes use the CPU
// kernel through the fallback. Any thread may call these operators.
#include <ATen/Dispatch_v2.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <c10/core/Scalar.h>
#include <torch/library.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "aten/fallback/alias_fallback.h"
#include "aten/launch/launch.h"
#include "aten/tensors/factories.h"

namespace openreg {
namespace {

constexpr int64_t kCost = 8;  // elementary operations per element

// The inclusive limits of a histogram.
struct Range {
  int64_t low;
  int64_t high;
};

// Returns the limits converted to the dtype. Throws if the dtype cannot represent them or if they
// are in the wrong order.
Range range_of(c10::ScalarType dtype, const at::Scalar& min, const at::Scalar& max) {
  Range range{};
  AT_DISPATCH_V2(dtype, "histc", AT_WRAP([&] {
                   range = {int64_t{min.to<scalar_t>()}, int64_t{max.to<scalar_t>()}};
                 }),
                 AT_EXPAND(AT_INTEGRAL_TYPES));
  TORCH_CHECK(range.low <= range.high, "torch.histc: max must be larger than min");
  return range;
}

// Counts the values in each bin. The last bin includes its upper limit.
template <class T>
void count(const at::Tensor& values, Range range, std::vector<int64_t>& bins) {
  const T* const first = values.const_data_ptr<T>();
  const T* const last = first + values.numel();
  if (range.low == range.high && first != last) {
    const auto [low, high] = std::minmax_element(first, last);
    range = {*low, *high};
  }
  // Use 128 bits: the difference of two 64-bit integers times the number of bins may exceed 64
  // bits.
  __extension__ using Wide = __int128;
  const bool widens = range.low == range.high;
  const Wide low = Wide{range.low} - (widens ? 1 : 0);
  const Wide width = Wide{range.high} + (widens ? 1 : 0) - low;
  for (const T* value = first; value != last; ++value) {
    const Wide offset = Wide{*value} - low;
    if (offset >= 0 && offset <= width) {
      const auto bin = static_cast<size_t>(offset * static_cast<Wide>(bins.size()) / width);
      ++bins[std::min(bin, bins.size() - 1)];
    }
  }
}

void launch_count(const at::Tensor& values, Range range, const at::Tensor& histogram) {
  launch_kernel(
      {"aten::histc", values.numel() * kCost, /*awaited=*/false, /*serial=*/true},
      histogram.get_device(), [&](AliasPool& aliases) {
        return [values = aliases.alias(values), range, histogram = aliases.alias(histogram)] {
          std::vector<int64_t> bins(static_cast<size_t>(histogram.numel()));
          AT_DISPATCH_V2(values.scalar_type(), "histc", AT_WRAP([&] {
                           count<scalar_t>(values.contiguous(), range, bins);
                           auto counts = histogram.accessor<scalar_t, 1>();
                           for (size_t i = 0; i < bins.size(); ++i) {
                             counts[static_cast<int64_t>(i)] = static_cast<scalar_t>(bins[i]);
                           }
                         }),
                         AT_EXPAND(AT_INTEGRAL_TYPES));
        };
      });
}

// Implements histc and histc.out. The latter has one more argument.
void histc(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const size_t count = handle.schema().arguments().size();
  const auto arguments = torch::jit::last(*stack, count);
  const at::Tensor self = arguments[0].toTensor();
  if (!is_device(self) || !c10::isIntegralType(self.scalar_type(), /*includeBool=*/false) ||
      c10::isBarebonesUnsignedType(self.scalar_type())) {
    alias_fallback(handle, stack);
    return;
  }
  const int64_t bins = arguments[1].toInt();
  TORCH_CHECK(bins > 0, "torch.histogram(): bins must be > 0, but got ", bins, " for dimension 0");
  const Range range =
      range_of(self.scalar_type(), arguments[2].toScalar(), arguments[3].toScalar());
  Operands operands;
  operands.add_device(self);
  at::Tensor histogram;
  if (count == 4) {
    histogram = empty_on(operands.device(), {bins}, self.scalar_type());
  } else {
    histogram = arguments[4].toTensor();
    operands.add_device(histogram);
    TORCH_CHECK(histogram.scalar_type() == self.scalar_type(),
                "torch.histogram: input tensor and hist tensor should have the same dtype, but "
                "got input ",
                c10::toString(self.scalar_type()), " and hist ",
                c10::toString(histogram.scalar_type()));
    at::native::resize_output(histogram, {bins});
    at::assert_no_internal_overlap(histogram);
  }
  launch_count(self, range, histogram);
  torch::jit::drop(*stack, count);
  stack->emplace_back(std::move(histogram));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("histc", torch::CppFunction::makeFromBoxedFunction<&histc>());
  library.impl("histc.out", torch::CppFunction::makeFromBoxedFunction<&histc>());
}

}  // namespace openreg
