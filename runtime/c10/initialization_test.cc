// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/initialization.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "runtime/c10/device.h"

namespace openreg {
namespace {

std::atomic<int> first_calls{0};
std::atomic<int> last_calls{0};
bool initialized_inside = false;

[[maybe_unused]] const bool registered = [] {
  at_initialization([] {
    initialized_inside = is_initialized();
    ++first_calls;
  });
  at_initialization([] {
    EXPECT_EQ(first_calls, 1);  // actions run in the order of registration
    ++last_calls;
  });
  return true;
}();

TEST(InitializationTest, ActionsRunOnceAtTheFirstUseOfTheDevice) {
  EXPECT_GT(device_count(), 0);
  EXPECT_EQ(first_calls, 0);  // a query does not initialize the device
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      initialize();
      EXPECT_EQ(last_calls, 1);  // the last action ran before initialize() returned on any thread
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  initialize();
  EXPECT_EQ(first_calls, 1);
  EXPECT_EQ(last_calls, 1);
  EXPECT_FALSE(initialized_inside);
}

}  // namespace
}  // namespace openreg
