// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/environment.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace openreg::device {
namespace {

TEST(EnvironmentTest, ReadsBytesWithASuffix) {
  const struct {
    const char* text;
    size_t bytes;
  } kGood[] = {{"1", 1},
               {"4096", 4096},
               {"64K", size_t{64} << 10},
               {"2m", size_t{2} << 20},
               {"3G", size_t{3} << 30},
               {"1t", size_t{1} << 40}};
  for (const auto& each : kGood) {
    size_t bytes = 0;
    EXPECT_TRUE(ParseBytes(each.text, &bytes)) << each.text;
    EXPECT_EQ(bytes, each.bytes) << each.text;
  }
  for (const char* text : {"", "0", "-1", "+1", " 1", "1 ", "1KB", "K", "1P", "1.5G", "0x10",
                           "99999999999999999999", "18446744073709551615K"}) {
    size_t bytes = 7;
    EXPECT_FALSE(ParseBytes(text, &bytes)) << text;
    EXPECT_EQ(bytes, 7u) << text;
  }
}

TEST(EnvironmentTest, TheMemoryLimitIsAtMostTheMemory) {
  const size_t limit = MemoryLimit();
  EXPECT_GT(limit, size_t{1} << 20);
  EXPECT_LE(limit, static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
                       static_cast<size_t>(sysconf(_SC_PAGESIZE)));
}

}  // namespace
}  // namespace openreg::device
