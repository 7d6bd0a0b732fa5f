// SPDX-License-Identifier: BSD-3-Clause
//
// Tests operators with a driver that has no kernels or no events. The linker replaces the driver's
// functions with those of this file (--wrap), which call the originals through __real_.
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/threshold_backward.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/DeviceType.h>
#include <c10/core/Event.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "aten/fallback/fallback.h"
#include "aten/launch/sleep.h"
#include "runtime/c10/device.h"
#include "runtime/c10/stream.h"
#include "runtime/minimal/openreg_minimal.h"

extern "C" {
// The prefix is a separate string literal, because tools/new_backend renames a function only at the
// start of a word.
orError_t real_get_kernel(orKernel_t* kernel, const char* name) asm(
    "__real_"
    "orGetKernel");
orError_t get_kernel(orKernel_t* kernel, const char* name) asm(
    "__wrap_"
    "orGetKernel");
orError_t real_event_record(orEvent_t event, orStream_t stream) asm(
    "__real_"
    "orEventRecord");
orError_t event_record(orEvent_t event, orStream_t stream) asm(
    "__wrap_"
    "orEventRecord");
orError_t real_event_create(orEvent_t* event) asm(
    "__real_"
    "orEventCreate");
orError_t event_create(orEvent_t* event) asm(
    "__wrap_"
    "orEventCreate");
orError_t real_event_create_with_flags(orEvent_t* event, unsigned int flags) asm(
    "__real_"
    "orEventCreateWithFlags");
orError_t event_create_with_flags(orEvent_t* event, unsigned int flags) asm(
    "__wrap_"
    "orEventCreateWithFlags");
}

namespace openreg {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::atomic<bool> lacks_kernels = false;
std::atomic<bool> lacks_events = false;
std::atomic<bool> lacks_records = false;  // events can be created, but not recorded

// Makes the driver return orErrorNotSupported while the object exists.
class Missing {
 public:
  explicit Missing(std::atomic<bool>& lacks) : lacks_(lacks) { lacks_ = true; }
  ~Missing() { lacks_ = false; }
  Missing(const Missing&) = delete;
  Missing& operator=(const Missing&) = delete;

 private:
  std::atomic<bool>& lacks_;
};

// Collects the warnings of the calling thread while the object exists.
class Warnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }

  std::vector<std::string> texts;

 private:
  const c10::WarningUtils::WarningHandlerGuard guard_{this};
};

at::Tensor on(c10::DeviceIndex index, const at::Tensor& tensor) {
  return tensor.to(c10::Device(kOpenRegType, index));
}

TEST(MissingFunctionsTest, OperatorsWithoutKernelsFallBack) {
  const at::Tensor x = at::ones({3, 4}).cumsum(1).sub_(2);
  const at::Tensor device = on(0, x);
  const Missing kernels(lacks_kernels);
  fallback_reset();
  EXPECT_TRUE(at::equal(at::add(device, device).cpu(), at::add(x, x)));
  EXPECT_TRUE(at::equal(at::mul(device, 3).cpu(), at::mul(x, 3)));
  EXPECT_TRUE(at::equal(at::relu(device).cpu(), at::relu(x)));
  EXPECT_TRUE(at::equal(at::mm(device, device.t()).cpu(), at::mm(x, x.t())));
  EXPECT_TRUE(at::equal(at::sum(device, {0}).cpu(), at::sum(x, {0})));
  EXPECT_TRUE(at::equal(at::ones({2}, device.options()).cpu(), at::ones({2})));
  std::vector<std::string> names;
  for (const FallbackRecord& record : fallback_stats()) {
    names.push_back(record.name);
  }
  EXPECT_THAT(names,
              UnorderedElementsAre("aten::add.out", "aten::mul.out", "aten::relu", "aten::mm.out",
                                   "aten::sum.IntList_out", "aten::fill_.Scalar"));
}

TEST(MissingFunctionsTest, AMissingKernelIsNamedOnce) {
  const at::Tensor device = on(0, at::ones({3, 4}));
  const Missing kernels(lacks_kernels);
  const Warnings warnings;
  at::threshold_backward(device, device, 0);
  at::threshold_backward(device, device, 0);
  EXPECT_THAT(warnings.texts,
              ElementsAre(AllOf(HasSubstr("no kernel"), HasSubstr("threshold_backward"))));
}

TEST(MissingFunctionsTest, CopiesWithoutAKernelGoThroughTheHost) {
  const at::Tensor x = at::ones({3, 4}).cumsum(1);
  const at::Tensor device = on(0, x);
  const Missing kernels(lacks_kernels);
  EXPECT_TRUE(at::equal(device.t().contiguous().cpu(), x.t()));
}

class MissingEventsTest : public testing::TestWithParam<std::atomic<bool>*> {};

INSTANTIATE_TEST_SUITE_P(Functions, MissingEventsTest,
                         testing::Values(&lacks_events, &lacks_records),
                         [](const auto& info) { return info.index == 0 ? "Create" : "Record"; });

TEST_P(MissingEventsTest, CopiesBetweenDevicesWait) {
  if (device_count() < 2) {
    GTEST_SKIP() << "a copy between devices needs two of them";
  }
  const at::Tensor source = on(0, at::ones({4}));
  const at::Tensor target = on(1, at::ones({4}));
  // Keep both devices busy. Otherwise there is nothing to wait for.
  for (const at::Tensor& tensor : {source, target}) {
    const c10::DeviceGuard guard(tensor.device());
    launch_sleep(20'000'000);
    tensor.add_(tensor.get_device() + 1);
  }
  const Missing events(*GetParam());
  target.copy_(source);
  EXPECT_TRUE(at::equal(target.cpu(), at::ones({4}).add_(1)));
}

TEST_P(MissingEventsTest, BackwardAcrossDevicesWaits) {
  if (device_count() < 2) {
    GTEST_SKIP() << "a copy between devices needs two of them";
  }
  c10::register_privateuse1_backend("openreg");  // for autograd, which queries the stream
  const Missing events(*GetParam());
  const at::Tensor leaf = on(0, at::ones({4}).cumsum(0)).requires_grad_();
  const at::Tensor there = on(1, leaf.mul(3)).mul(2);
  const at::Tensor gradient = on(1, at::ones({4}));
  // Without an order between the streams, the gradient would reach device 0 before this addition.
  {
    const c10::DeviceGuard guard(gradient.device());
    launch_sleep(20'000'000);
    gradient.add_(1);
  }
  there.backward(gradient);
  EXPECT_TRUE(at::equal(leaf.grad().cpu(), at::ones({4}).mul_(12)));
}

TEST_P(MissingEventsTest, FreeingPinnedMemoryWaitsForItsCopies) {
  const Missing events(*GetParam());
  at::Tensor source = at::ones({4}).pin_memory(kOpenRegType);
  launch_sleep(20'000'000);
  const at::Tensor target = source.to(c10::Device(kOpenRegType, 0), /*non_blocking=*/true);
  source.reset();
  at::ones({4}).pin_memory(kOpenRegType).fill_(2);  // gets the memory of `source` again
  EXPECT_TRUE(at::equal(target.cpu(), at::ones({4})));
}

TEST_P(MissingEventsTest, EventsThatMeasureTimeAreNotSupported) {
  const Missing events(*GetParam());
  c10::Event event(kOpenRegType, c10::EventFlag::BACKEND_DEFAULT);
  // The wrapped functions store no text, so the message names the error code.
  try {
    event.record(current_stream(0));
    FAIL() << "the driver has no events";
  } catch (const c10::NotImplementedError& error) {
    const std::string text = error.what_without_backtrace();
    EXPECT_THAT(text, HasSubstr("the driver returned "));
    EXPECT_THAT(text, HasSubstr(orGetErrorName(orErrorNotSupported)));
  }
}

// The wrapped function stores no text, so the message names it.
TEST(MissingFunctionsTest, AnErrorWithoutATextNamesTheFunction) {
  c10::Event event(kOpenRegType);
  event.record(current_stream(0));
  const Missing records(lacks_records);
  try {
    event.record(current_stream(0));
    FAIL() << "the event was recorded again";
  } catch (const c10::NotImplementedError& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                AllOf(HasSubstr("orEventRecord returned "), HasSubstr("without a message")));
  }
}

}  // namespace
}  // namespace openreg

orError_t get_kernel(orKernel_t* kernel, const char* name) {
  return openreg::lacks_kernels ? orErrorNotSupported : real_get_kernel(kernel, name);
}

orError_t event_record(orEvent_t event, orStream_t stream) {
  return openreg::lacks_records ? orErrorNotSupported : real_event_record(event, stream);
}

orError_t event_create(orEvent_t* event) {
  return openreg::lacks_events ? orErrorNotSupported : real_event_create(event);
}

orError_t event_create_with_flags(orEvent_t* event, unsigned int flags) {
  return openreg::lacks_events ? orErrorNotSupported : real_event_create_with_flags(event, flags);
}
