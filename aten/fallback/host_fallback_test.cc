// SPDX-License-Identifier: BSD-3-Clause
//
// Tests a device that has factories, views, copies and the host fallback, but no kernels.
#include "aten/fallback/host_fallback.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/index.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "aten/fallback/fallback.h"
#include "runtime/c10/device.h"

namespace openreg {
namespace {

const c10::Device kDevice(kOpenRegType, 0);

at::Tensor to_device(const at::Tensor& tensor) { return tensor.to(kDevice); }

bool same(const at::Tensor& device, const at::Tensor& cpu) {
  return device.device() == kDevice && device.sizes() == cpu.sizes() &&
         device.strides() == cpu.strides() && at::equal(device.cpu(), cpu);
}

FallbackRecord record_of(const std::string& name) {
  for (const FallbackRecord& record : fallback_stats()) {
    if (record.name == name) {
      return record;
    }
  }
  return {};
}

TEST(HostFallbackTest, ResultsAreTheCpus) {
  const at::Tensor x = at::randn({3, 5});
  const auto [values, indices] = at::sort(x, 1, /*descending=*/true);
  const auto [device_values, device_indices] = at::sort(to_device(x), 1, /*descending=*/true);
  EXPECT_TRUE(same(device_values, values));
  EXPECT_TRUE(same(device_indices, indices));
  EXPECT_TRUE(same(to_device(x).t() + 1, x.t() + 1));
}

TEST(HostFallbackTest, AnInPlaceOperatorWritesOnlyToItsView) {
  const at::Tensor x = at::arange(12.0).view({3, 4});
  const at::Tensor y = to_device(x);
  x.slice(1, 1, 4, 2).mul_(10);
  const at::Tensor view = y.slice(1, 1, 4, 2);
  EXPECT_TRUE(view.mul_(10).is_same(view));
  EXPECT_TRUE(same(y, x));
}

TEST(HostFallbackTest, ArgumentsThatShareMemoryShareItOnTheHost) {
  const at::Tensor x = at::arange(6.0);
  const at::Tensor y = to_device(x);
  at::Tensor out = y.slice(0, 0, 5);
  EXPECT_THROW(at::add_out(out, y.slice(0, 1, 6), out), c10::Error);
  EXPECT_TRUE(same(y, x));
}

TEST(HostFallbackTest, AnInPlaceOperatorKeepsItsShape) {
  const at::Tensor x = to_device(at::ones({1, 3}));
  EXPECT_THROW(x.logical_and_(to_device(at::ones({2, 3}))), c10::Error);
  EXPECT_EQ(x.sizes(), at::IntArrayRef({1, 3}));
  const at::Tensor scalar = to_device(at::ones({}));
  EXPECT_THROW(scalar.addr_(to_device(at::ones({2})), to_device(at::ones({3}))), c10::Error);
}

TEST(HostFallbackTest, WritesThatTheSchemaDoesNotDeclareAreCopiedBack) {
  const at::Tensor x = at::randn({4, 3});
  const at::Tensor mean = at::zeros({3});
  const at::Tensor variance = at::ones({3});
  const at::Tensor device_mean = to_device(mean);
  const at::Tensor device_variance = to_device(variance);
  at::native_batch_norm(x, {}, {}, mean, variance, /*training=*/true, 0.5, 1e-5);
  at::native_batch_norm(to_device(x), {}, {}, device_mean, device_variance, /*training=*/true, 0.5,
                        1e-5);
  EXPECT_TRUE(same(device_mean, mean));
  EXPECT_TRUE(same(device_variance, variance));
}

TEST(HostFallbackTest, DropoutDrawsFromTheGeneratorOfTheDevice) {
  const at::Tensor before = at::detail::getDefaultCPUGenerator().get_state();
  const auto [kept, mask] = at::native_dropout(to_device(at::ones({100})), 0.5, /*train=*/true);
  EXPECT_TRUE(at::equal(at::detail::getDefaultCPUGenerator().get_state(), before));
  EXPECT_TRUE(at::equal(kept.cpu(), mask.cpu().to(at::kFloat) * 2));
}

TEST(HostFallbackTest, AnIndexMayBeOnTheCpu) {
  const at::Tensor x = at::arange(6.0);
  c10::List<std::optional<at::Tensor>> indices;
  indices.push_back(at::arange(3));
  EXPECT_TRUE(same(at::index(to_device(x), indices), at::index(x, indices)));
}

TEST(HostFallbackTest, AnOutputIsResized) {
  const at::Tensor x = at::randn({4});
  at::Tensor out = at::empty({0}, at::TensorOptions(kDevice));
  EXPECT_TRUE(at::exp_out(out, to_device(x)).is_same(out));
  EXPECT_TRUE(same(out, at::exp(x)));
}

class Warnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
  std::vector<std::string> texts;
};

TEST(HostFallbackTest, OnlyAnOutputThatStaysResizedCausesAWarning) {
  Warnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  const at::Tensor x = to_device(at::randn({3, 4}));
  // The CPU's kernel for mse_loss.out resizes the output to the shape of x, and back.
  EXPECT_EQ(at::mse_loss(x, x).item<float>(), 0);
  EXPECT_TRUE(warnings.texts.empty());
  at::Tensor out = at::empty({2}, at::TensorOptions(kDevice));
  at::exp_out(out, x);
  ASSERT_EQ(warnings.texts.size(), 1U);
  EXPECT_NE(warnings.texts[0].find("was resized"), std::string::npos);
}

TEST(HostFallbackTest, CopiesConvertAndBroadcast) {
  const at::Tensor x = at::randn({2, 3});
  EXPECT_TRUE(same(to_device(x).to(at::kHalf), x.to(at::kHalf)));
  EXPECT_TRUE(same(to_device(x).t().contiguous(), x.t().contiguous()));
  at::Tensor y = at::zeros({4, 6});
  at::Tensor device = to_device(y);
  y.slice(1, 0, 6, 2).copy_(x.select(0, 1));
  device.slice(1, 0, 6, 2).copy_(to_device(x).select(0, 1));
  EXPECT_TRUE(same(device, y));
  EXPECT_EQ(to_device(x).select(0, 1).select(0, 2).item<float>(), x[1][2].item<float>());
}

TEST(HostFallbackTest, AcceleratorOperatorsRunTheCpuOperator) {
  c10::register_privateuse1_backend("openreg");  // for autograd, which queries the stream
  const at::Tensor x = at::randn({2, 3, 8, 8});
  at::Tensor weight = at::randn({4, 3, 3, 3}).requires_grad_();
  at::Tensor bias = at::randn({4}).requires_grad_();
  at::Tensor device_weight = to_device(weight.detach()).requires_grad_();
  at::Tensor device_bias = to_device(bias.detach()).requires_grad_();
  const at::Tensor y = at::conv2d(x, weight, bias, 2, 1);
  const at::Tensor z = at::conv2d(to_device(x), device_weight, device_bias, 2, 1);
  EXPECT_TRUE(z.detach().cpu().allclose(y.detach()));
  y.sum().backward();
  z.sum().backward();
  EXPECT_TRUE(device_weight.grad().cpu().allclose(weight.grad(), 1e-4, 1e-5));
  EXPECT_TRUE(device_bias.grad().cpu().allclose(bias.grad(), 1e-4, 1e-5));

  const at::Tensor query = at::randn({1, 2, 4, 8});
  EXPECT_TRUE(at::scaled_dot_product_attention(to_device(query), to_device(query), to_device(query))
                  .cpu()
                  .allclose(at::scaled_dot_product_attention(query, query, query), 1e-4, 1e-5));
}

TEST(HostFallbackTest, SparseTensorsGoThroughTheirParts) {
  const at::Tensor x = at::randn({4, 4});
  EXPECT_TRUE(same(to_device(x).to_sparse().mul(2).to_dense(), x * 2));
}

TEST(HostFallbackTest, ACpuTensorIsRefused) {
  const at::Tensor x = at::ones({3});
  try {
    at::mul(to_device(x), x);
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("on the same device"), std::string::npos);
  }
}

TEST(HostFallbackTest, CallsAreCounted) {
  const at::Tensor x = to_device(at::ones({256}));
  fallback_reset();
  at::exp(x);
  at::exp(x);
  // torch implements the functional variant by calling the out= variant, whose output is also an
  // argument and is therefore copied to the host, too.
  const FallbackRecord record = record_of("aten::exp.out");
  EXPECT_EQ(record.calls, 2U);
  EXPECT_EQ(record.synchronous, 2U);
  EXPECT_EQ(record.bytes_in, 4096U);
  EXPECT_EQ(record.bytes_out, 2048U);
  EXPECT_GT(record.ns, 0U);
}

TEST(HostFallbackTest, ThePolicyMayForbidIt) {
  const at::Tensor x = to_device(at::ones({3}));
  set_fallback_policy(FallbackPolicy::kError);
  EXPECT_THROW(at::exp(x), c10::NotImplementedError);
  set_fallback_policy(FallbackPolicy::kSilent);
  EXPECT_NO_THROW(at::exp(x));
}

TEST(HostFallbackTest, ViewsNeedNoKernel) {
  const at::Tensor x = to_device(at::arange(6.0));
  fallback_reset();
  const at::Tensor y = x.view({2, 3}).t().slice(0, 1, 3);
  EXPECT_TRUE(y.is_alias_of(x));
  EXPECT_TRUE(fallback_stats().empty());
}

}  // namespace
}  // namespace openreg
