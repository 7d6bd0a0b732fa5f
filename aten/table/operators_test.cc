// SPDX-License-Identifier: BSD-3-Clause
//
// Tests which calls use a kernel of the table and which calls fall back, and the sign of zero.
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/signbit.h>
#include <ATen/ops/sum.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "aten/fallback/fallback.h"
#include "runtime/c10/device.h"

namespace openreg {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const c10::Device kDevice(kOpenRegType, 0);

// Calls the function with a random 4 x 6 tensor on the device and with the same tensor on the CPU.
// Expects the same result, and the same contents of the tensor afterwards. Returns the operators
// that fell back.
std::vector<std::string> fallbacks(const std::function<at::Tensor(const at::Tensor&)>& call) {
  const at::Tensor host = at::randn({4, 6});
  const at::Tensor device = host.to(kDevice);
  fallback_reset();
  const at::Tensor result = call(device);
  std::vector<std::string> names;
  for (const FallbackRecord& record : fallback_stats()) {
    names.push_back(record.name);
  }
  // A sum of random numbers may be close to 0, so a relative tolerance alone is not sufficient.
  EXPECT_TRUE(result.cpu().allclose(call(host), /*rtol=*/1e-5, /*atol=*/1e-5));
  EXPECT_TRUE(at::equal(device.cpu(), host));
  return names;
}

at::Tensor even_columns(const at::Tensor& x) { return x.slice(1, 0, x.size(1), 2); }

at::Tensor odd_columns(const at::Tensor& x) { return x.slice(1, 1, x.size(1), 2); }

at::Tensor rows(const at::Tensor& x, int64_t first, int64_t last) {
  return x.slice(0, first, last);
}

TEST(TableTest, InputsMayHaveGaps) {
  const auto unary = [](const auto& x) { return at::relu(even_columns(x)); };
  const auto scalar = [](const auto& x) { return at::add(even_columns(x), 3); };
  const auto binary = [](const auto& x) { return at::add(even_columns(x), odd_columns(x), 2); };
  const auto sum = [](const auto& x) { return at::sum(even_columns(x), {0}); };
  const auto product = [](const auto& x) { return at::mm(even_columns(x), odd_columns(x).t()); };
  EXPECT_THAT(fallbacks(unary), IsEmpty());
  EXPECT_THAT(fallbacks(scalar), IsEmpty());
  EXPECT_THAT(fallbacks(binary), IsEmpty());
  EXPECT_THAT(fallbacks(sum), IsEmpty());
  EXPECT_THAT(fallbacks(product), IsEmpty());
}

TEST(TableTest, AnInputMayBeExpanded) {
  const auto add = [](const auto& x) { return at::add(x, x.select(0, 1).expand({4, 6})); };
  EXPECT_THAT(fallbacks(add), IsEmpty());
}

TEST(TableTest, AnOutputMayHaveGaps) {
  const auto fill = [](const auto& x) { return even_columns(x).fill_(7); };
  const auto relu = [](const auto& x) { return even_columns(x).t().relu_(); };
  const auto mul = [](const auto& x) {
    at::Tensor out = even_columns(rows(x, 2, 4));
    return at::mul_out(out, even_columns(rows(x, 0, 2)), odd_columns(rows(x, 0, 2)));
  };
  EXPECT_THAT(fallbacks(fill), IsEmpty());
  EXPECT_THAT(fallbacks(relu), IsEmpty());
  EXPECT_THAT(fallbacks(mul), IsEmpty());
}

TEST(TableTest, AnElementwiseKernelMayReadAnotherViewOfItsOutput) {
  const auto square = [](const auto& x) { return even_columns(x).mul_(even_columns(x)); };
  EXPECT_THAT(fallbacks(square), IsEmpty());
}

TEST(TableTest, AnInputThatTheKernelWouldOverwriteFallsBack) {
  const auto mul = [](const auto& x) {
    at::Tensor out = even_columns(rows(x, 1, 4));
    return at::mul_out(out, even_columns(rows(x, 0, 3)), odd_columns(rows(x, 0, 3)));
  };
  const auto sum = [](const auto& x) {
    at::Tensor out = even_columns(x).select(0, 0);
    return at::sum_out(out, even_columns(x), {0});
  };
  EXPECT_THAT(fallbacks(mul), ElementsAre("aten::mul.out"));
  EXPECT_THAT(fallbacks(sum), ElementsAre("aten::sum.IntList_out"));
}

TEST(TableTest, ANumberMayBeTheFirstOperand) {
  const auto add = [](const auto& x) { return at::add(at::scalar_tensor(3), x); };
  const auto mul = [](const auto& x) { return at::mul(at::scalar_tensor(3), x); };
  const auto mul_in_place = [](const auto& x) { return x.mul_(3); };
  EXPECT_THAT(fallbacks(add), IsEmpty());
  EXPECT_THAT(fallbacks(mul), IsEmpty());
  EXPECT_THAT(fallbacks(mul_in_place), IsEmpty());
}

TEST(TableTest, ElementwiseKernelsPreserveTheSignOfZero) {
  const auto signs = [](const at::Tensor& x) { return at::signbit(x.cpu()); };
  const at::Tensor host = at::scalar_tensor(-0.0).expand({3});
  const at::Tensor device = host.to(kDevice);
  EXPECT_TRUE(at::equal(signs(at::relu(device)), signs(at::relu(host))));
  EXPECT_TRUE(at::equal(signs(at::mul(device, 2)), signs(at::mul(host, 2))));
  EXPECT_TRUE(at::equal(signs(at::add(device, device)), signs(at::add(host, host))));
  EXPECT_TRUE(at::equal(signs(at::sum(device)), signs(at::sum(host))));
}

TEST(TableTest, AnOutputThatOverlapsItselfFallsBack) {
  const auto fill = [](const auto& x) { return x.as_strided({3, 2}, {1, 1}).fill_(7); };
  EXPECT_THAT(fallbacks(fill), ElementsAre("aten::fill_.Scalar"));
}

}  // namespace
}  // namespace openreg
