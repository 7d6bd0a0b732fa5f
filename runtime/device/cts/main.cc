// SPDX-License-Identifier: BSD-3-Clause
//
// Runs the tests for the parts of the interface that the driver has. The name of each test suite
// begins with the tag of the part that it tests.
#include <gtest/gtest.h>

#include <string>

#include "runtime/device/cts/driver.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const unsigned tags = openreg::cts::TestedDriver().tags;
  const auto has = [tags](openreg::cts::Tag tag) { return (tags & tag) != 0; };
  std::string excluded;
  for (const auto& [tag, name] :
       {std::pair(openreg::cts::kTier2, "Tier2"), std::pair(openreg::cts::kGraphs, "Graphs"),
        std::pair(openreg::cts::kSharing, "Sharing"),
        std::pair(openreg::cts::kActivity, "Activity")}) {
    excluded += std::string(":") + (has(tag) ? "No" : "") + name + "*";
  }
  const std::string filter = GTEST_FLAG_GET(filter);
  GTEST_FLAG_SET(filter,
                 filter + (filter.find('-') == std::string::npos ? "-" : ":") + excluded.substr(1));
  return RUN_ALL_TESTS();
}
