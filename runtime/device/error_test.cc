// SPDX-License-Identifier: BSD-3-Clause
#include <thread>

#include "runtime/device/device_fixture.h"

namespace openreg::device {
namespace {

using ErrorTest = DeviceTest;

TEST_F(ErrorTest, EachCodeHasANameAndAText) {
  EXPECT_STREQ(orGetErrorName(orSuccess), "orSuccess");
  EXPECT_STREQ(orGetErrorString(orErrorInvalidValue), "invalid argument");
  for (int number = 0; number <= orErrorCaptureWrongThread; ++number) {
    const auto error = static_cast<orError_t>(number);
    EXPECT_EQ(std::string(orGetErrorName(error)).rfind("or", 0), 0u) << number;
    EXPECT_STRNE(orGetErrorString(error), "unrecognized error") << number;
  }
}

TEST_F(ErrorTest, AnUnknownCodeIsUnrecognized) {
  for (int number : {-1, orErrorCaptureWrongThread + 1, 1 << 30}) {
    EXPECT_STREQ(orGetErrorName(static_cast<orError_t>(number)), "unrecognized error");
    EXPECT_STREQ(orGetErrorString(static_cast<orError_t>(number)), "unrecognized error");
  }
}

TEST_F(ErrorTest, GetClearsAndPeekKeepsTheLastError) {
  EXPECT_EQ(orSetDevice(-5), orErrorInvalidDevice);
  EXPECT_EQ(orPeekAtLastError(), orErrorInvalidDevice);
  EXPECT_EQ(orGetLastError(), orErrorInvalidDevice);
  EXPECT_EQ(orGetLastError(), orSuccess);
}

TEST_F(ErrorTest, ACallThatSucceedsLeavesTheLastErrorAlone) {
  EXPECT_EQ(orSetDevice(-5), orErrorInvalidDevice);
  EXPECT_OK(orDeviceSynchronize());
  EXPECT_EQ(orGetLastError(), orErrorInvalidDevice);
}

TEST_F(ErrorTest, TheDetailNamesRequestAndFinding) {
  EXPECT_FAILS(
      orSetDevice(99), orErrorInvalidDevice,
      "orSetDevice: device index 99 is out of range: " + std::to_string(count_) + " device");
}

TEST_F(ErrorTest, TheLastErrorBelongsToItsThread) {
  EXPECT_EQ(orSetDevice(-5), orErrorInvalidDevice);
  std::thread([] {
    EXPECT_EQ(orGetLastError(), orSuccess);
    EXPECT_STREQ(orGetLastErrorDetail(), "");
    EXPECT_EQ(orTakeErrorPayload(), nullptr);
  }).join();
  EXPECT_EQ(orGetLastError(), orErrorInvalidDevice);
}

TEST_F(ErrorTest, VersionMatchesTheHeader) {
  int version = 0;
  EXPECT_OK(orGetVersion(&version));
  EXPECT_EQ(version, OPENREG_VERSION);
  EXPECT_FAILS(orGetVersion(nullptr), orErrorInvalidValue, "version is null");
}

}  // namespace
}  // namespace openreg::device
