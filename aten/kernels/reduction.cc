// SPDX-License-Identifier: BSD-3-Clause
//
// Reductions that are not structured operators in torch: variance and standard deviation, extrema
// of all elements, dot products. Any thread may call these operators.
#include <ATen/core/Tensor.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/dot_cpu_dispatch.h>
#include <ATen/ops/std_cpu_dispatch.h>
#include <ATen/ops/std_mean_cpu_dispatch.h>
#include <ATen/ops/var_cpu_dispatch.h>
#include <ATen/ops/var_mean_cpu_dispatch.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "aten/launch/cpu_kernel.h"
#include "aten/launch/store.h"
#include "aten/tensors/factories.h"

namespace openreg {
namespace {

using Correction = std::optional<at::Scalar>;

constexpr int64_t kCost = 4;  // elementary operations per element

// Returns the dtype of a variance, which is a real number even for complex tensors.
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

// Implements `std`. A function of that name would hide the namespace.
at::Tensor standard_deviation(const at::Tensor& self, at::OptionalIntArrayRef dim,
                              const Correction& correction, bool keepdim) {
  return launch_one<&at::cpu::std_outf>("aten::std.correction", self, dim, correction, keepdim);
}

using Two = std::tuple<at::Tensor, at::Tensor>;
using PairFunction = Two (*)(const at::Tensor&, at::OptionalIntArrayRef, const Correction&, bool);

// Computes a pair: the variance or standard deviation, and the mean.
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

void check_extremum(const char* name, const at::Tensor& self) {
  TORCH_CHECK(
      self.numel() > 0, name,
      "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction "
      "dim with the 'dim' argument.");
  TORCH_CHECK_NOT_IMPLEMENTED(!c10::isComplexType(self.scalar_type()), '"', name,
                              "_all\" not implemented for '", c10::toString(self.scalar_type()),
                              "'");
}

at::Tensor max(const at::Tensor& self) {
  check_extremum("max", self);
  return at::amax(self);
}

at::Tensor min(const at::Tensor& self) {
  check_extremum("min", self);
  return at::amin(self);
}

at::Tensor dot(const at::Tensor& self, const at::Tensor& other) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(other);
  TORCH_CHECK(self.dim() == 1 && other.dim() == 1, "1D tensors expected, but got ", self.dim(),
              "D and ", other.dim(), "D tensors");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(),
              "dot : expected both vectors to have same dtype, but found ", self.scalar_type(),
              " and ", other.scalar_type());
  TORCH_CHECK(self.numel() == other.numel(), "inconsistent tensor size, expected tensor [",
              self.numel(), "] and src [", other.numel(),
              "] to have the same number of elements, but got ", self.numel(), " and ",
              other.numel(), " elements respectively");
  TORCH_CHECK_NOT_IMPLEMENTED(self.scalar_type() != c10::kBool,
                              "\"dot\" not implemented for 'Bool'");
  at::Tensor out = empty_on(operands.device(), {}, self.scalar_type());
  launch_kernel({"aten::dot", self.numel()}, operands.device(), [&](AliasPool& aliases) {
    return [self = aliases.alias(self), other = aliases.alias(other), out = aliases.alias(out)] {
      store(at::cpu::dot(self, other), out);
    };
  });
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("var.correction", TORCH_FN(var));
  library.impl("std.correction", TORCH_FN(standard_deviation));
  library.impl("var_mean.correction", TORCH_FN(var_mean));
  library.impl("std_mean.correction", TORCH_FN(std_mean));
  library.impl("max", TORCH_FN(max));
  library.impl("min", TORCH_FN(min));
  library.impl("dot", TORCH_FN(dot));
}

}  // namespace openreg
