// SPDX-License-Identifier: BSD-3-Clause
//
// Variance and standard deviation: the reductions of torch that are not structured.
// Threads: any.
#include <ATen/core/Tensor.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/std_cpu_dispatch.h>
#include <ATen/ops/std_mean_cpu_dispatch.h>
#include <ATen/ops/var_cpu_dispatch.h>
#include <ATen/ops/var_mean_cpu_dispatch.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "aten/cpu_kernel.h"
#include "aten/factories.h"
#include "aten/store.h"

namespace openreg {
namespace {

using Correction = std::optional<at::Scalar>;

constexpr int64_t kCost = 4;  // of an element

// Of the variance of complex numbers, which is real.
c10::ScalarType variance_dtype(const at::Tensor& self, const char* name) {
  TORCH_CHECK(at::isFloatingType(self.scalar_type()) || at::isComplexType(self.scalar_type()), name,
              " only support floating point and complex dtypes");
  return c10::toRealValueType(self.scalar_type());
}

at::DimVector reduced_sizes(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim) {
  at::DimVector dims = dim.has_value() ? at::DimVector(*dim) : at::DimVector();
  at::maybe_wrap_dims(dims, self.dim());
  return at::meta::get_reduction_shape(self, dims, keepdim);
}

using OutFunction = at::Tensor& (*)(const at::Tensor&, at::OptionalIntArrayRef, const Correction&,
                                    bool, at::Tensor&);

template <OutFunction kFunction>
at::Tensor launch_one(const char* name, const at::Tensor& self, at::OptionalIntArrayRef dim,
                      const Correction& correction, bool keepdim) {
  Operands operands;
  operands.add_device(self);
  const c10::ScalarType dtype = variance_dtype(self, "std and var");
  at::Tensor out = empty_on(operands.device(), reduced_sizes(self, dim, keepdim), dtype);
  launch_cpu({name, self.numel() * kCost}, operands.device(), kFunction, self, dim, correction,
             keepdim, out);
  return out;
}

at::Tensor var(const at::Tensor& self, at::OptionalIntArrayRef dim, const Correction& correction,
               bool keepdim) {
  return launch_one<&at::cpu::var_outf>("aten::var.correction", self, dim, correction, keepdim);
}

// (`std` would hide the namespace.)
at::Tensor standard_deviation(const at::Tensor& self, at::OptionalIntArrayRef dim,
                              const Correction& correction, bool keepdim) {
  return launch_one<&at::cpu::std_outf>("aten::std.correction", self, dim, correction, keepdim);
}

using Two = std::tuple<at::Tensor, at::Tensor>;
using PairFunction = Two (*)(const at::Tensor&, at::OptionalIntArrayRef, const Correction&, bool);

// The variance (or its root) and the mean.
template <PairFunction kFunction>
Two launch_pair(const char* name, const char* kernel, const at::Tensor& self,
                at::OptionalIntArrayRef dim, const Correction& correction, bool keepdim) {
  Operands operands;
  operands.add_device(self);
  const c10::ScalarType dtype = variance_dtype(self, kernel);
  const at::DimVector sizes = reduced_sizes(self, dim, keepdim);
  at::Tensor spread = empty_on(operands.device(), sizes, dtype);
  at::Tensor mean = empty_on(operands.device(), sizes, self.scalar_type());
  launch_kernel({name, self.numel() * kCost}, operands.device(), [&](AliasPool& aliases) {
    return [self = aliases.alias(self), dim = Owned<at::OptionalIntArrayRef>(aliases, dim),
            correction, keepdim, spread = aliases.alias(spread), mean = aliases.alias(mean)] {
      const auto [spread_result, mean_result] = kFunction(self, dim, correction, keepdim);
      store(spread_result, spread);
      store(mean_result, mean);
    };
  });
  return {std::move(spread), std::move(mean)};
}

Two var_mean(const at::Tensor& self, at::OptionalIntArrayRef dim, const Correction& correction,
             bool keepdim) {
  return launch_pair<&at::cpu::var_mean>("aten::var_mean.correction", "var_mean", self, dim,
                                         correction, keepdim);
}

Two std_mean(const at::Tensor& self, at::OptionalIntArrayRef dim, const Correction& correction,
             bool keepdim) {
  return launch_pair<&at::cpu::std_mean>("aten::std_mean.correction", "std_mean", self, dim,
                                         correction, keepdim);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("var.correction", TORCH_FN(var));
  library.impl("std.correction", TORCH_FN(standard_deviation));
  library.impl("var_mean.correction", TORCH_FN(var_mean));
  library.impl("std_mean.correction", TORCH_FN(std_mean));
}

}  // namespace openreg
