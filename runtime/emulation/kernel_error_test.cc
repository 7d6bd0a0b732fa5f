// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/emulation/kernel_error.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "runtime/c10/device.h"
#include "runtime/c10/error.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

const c10::impl::VirtualGuardImpl& guard() {
  static const c10::impl::VirtualGuardImpl impl(kOpenRegType);
  return impl;
}

c10::Device device(c10::DeviceIndex index) { return {kOpenRegType, index}; }

// Throws an exception of type E in a kernel, and expects the synchronization to rethrow it.
template <class E>
void expect_from_kernel(const c10::Stream& stream, void (*thrower)()) {
  const orLaunchAttributes attributes{"test::thrower", 0, 0};
  OPENREG_CHECK(orLaunchKernel(
      native_stream(stream),
      [](void* arguments) -> orError_t {
        try {
          (*static_cast<void (**)()>(arguments))();
        } catch (...) {
          return fail_kernel(std::current_exception());
        }
        return orSuccess;
      },
      &thrower, sizeof(thrower), &attributes));
  EXPECT_THROW(guard().synchronizeStream(stream), E);
  EXPECT_NO_THROW(guard().synchronizeStream(stream));  // the error is thrown only once
}

TEST(KernelErrorTest, ExceptionsOfKernelsKeepTheirType) {
  const c10::Stream stream = guard().getNewStream(device(0));
  expect_from_kernel<c10::IndexError>(stream, [] { TORCH_CHECK_INDEX(false, "index 7"); });
  expect_from_kernel<c10::ValueError>(stream, [] { TORCH_CHECK_VALUE(false, "value 7"); });
  expect_from_kernel<std::out_of_range>(stream, [] { throw std::out_of_range("range 7"); });
}

TEST(KernelErrorTest, MessageNamesTheOperator) {
  const c10::Stream stream = guard().getNewStream(device(0));
  const orLaunchAttributes attributes{"test::namesake", 0, 0};
  OPENREG_CHECK(orLaunchKernel(
      native_stream(stream),
      [](void*) -> orError_t {
        return fail_kernel(std::make_exception_ptr(c10::Error({"f", "x.cc", 1}, "the cause")));
      },
      nullptr, 0, &attributes));
  try {
    guard().synchronizeStream(stream);
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("the cause"), std::string::npos) << text;
    EXPECT_NE(text.find("test::namesake"), std::string::npos) << text;
  }
}

TEST(KernelErrorTest, DeviceSynchronizeFindsTheErrorOfAnyStream) {
  const c10::Stream stream = guard().getNewStream(device(1));
  OPENREG_CHECK(orLaunchKernel(
      native_stream(stream),
      [](void*) -> orError_t {
        return fail_kernel(std::make_exception_ptr(std::domain_error("far away")));
      },
      nullptr, 0, nullptr));
  EXPECT_NO_THROW(synchronize_device(0));
  EXPECT_THROW(synchronize_device(1), std::domain_error);
  EXPECT_NO_THROW(synchronize_device(1));
}

}  // namespace
}  // namespace openreg
