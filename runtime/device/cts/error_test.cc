// SPDX-License-Identifier: BSD-3-Clause
//
// Tests errors and the version (tier 1).
#include "runtime/device/cts/fixture.h"

namespace openreg::cts {
namespace {

using Tier1ErrorTest = DriverTest;

TEST_F(Tier1ErrorTest, EachCodeHasANameAndAText) {
  EXPECT_STREQ(orGetErrorName(orSuccess), "orSuccess");
  EXPECT_STREQ(orGetErrorName(orErrorInvalidValue), "orErrorInvalidValue");
  EXPECT_STREQ(orGetErrorString(orErrorInvalidValue), "invalid argument");
  for (int number = 0; number <= orErrorCaptureWrongThread; ++number) {
    const auto error = static_cast<orError_t>(number);
    EXPECT_STRNE(orGetErrorName(error), "unrecognized error") << number;
    EXPECT_STRNE(orGetErrorString(error), "unrecognized error") << number;
  }
}

TEST_F(Tier1ErrorTest, AnUnknownCodeIsUnrecognized) {
  for (int number : {-1, orErrorCaptureWrongThread + 1, 1 << 30}) {
    EXPECT_STREQ(orGetErrorName(static_cast<orError_t>(number)), "unrecognized error");
    EXPECT_STREQ(orGetErrorString(static_cast<orError_t>(number)), "unrecognized error");
  }
}

TEST_F(Tier1ErrorTest, GetClearsAndPeekKeepsTheLastError) {
  EXPECT_EQ(orSetDevice(-5), orErrorInvalidDevice);
  EXPECT_EQ(orPeekAtLastError(), orErrorInvalidDevice);
  EXPECT_EQ(orGetLastError(), orErrorInvalidDevice);
  EXPECT_EQ(orGetLastError(), orSuccess);
}

TEST_F(Tier1ErrorTest, ACallThatSucceedsLeavesTheLastErrorAlone) {
  EXPECT_EQ(orSetDevice(-5), orErrorInvalidDevice);
  EXPECT_OK(orDeviceSynchronize());
  EXPECT_EQ(orGetLastError(), orErrorInvalidDevice);
}

TEST_F(Tier1ErrorTest, TheDetailSaysWhatWasRequested) {
  EXPECT_EQ(orSetDevice(4321), orErrorInvalidDevice);
  EXPECT_NE(std::string(orGetLastErrorDetail()).find("4321"), std::string::npos)
      << orGetLastErrorDetail();
}

TEST_F(Tier1ErrorTest, TheLastErrorBelongsToItsThread) {
  EXPECT_EQ(orSetDevice(-5), orErrorInvalidDevice);
  std::thread([] {
    EXPECT_EQ(orGetLastError(), orSuccess);
    EXPECT_STREQ(orGetLastErrorDetail(), "");
  }).join();
  EXPECT_EQ(orGetLastError(), orErrorInvalidDevice);
}

TEST_F(Tier1ErrorTest, TheVersionIsThatOfTheHeader) {
  int version = 0;
  EXPECT_OK(orGetVersion(&version));
  EXPECT_EQ(version / 10000, OPENREG_VERSION / 10000);
  EXPECT_GE(version, OPENREG_VERSION);
  EXPECT_FAILS(orGetVersion(nullptr), orErrorInvalidValue);
}

}  // namespace
}  // namespace openreg::cts
