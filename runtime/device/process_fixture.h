// SPDX-License-Identifier: BSD-3-Clause
//
// process_fixture.h - the common code of the tests of first use, fork and exit. Each of these tests
// needs a process in which the device has not been used, so it runs its body in a new process. It
// uses gtest's death tests in the "threadsafe" style, which start the program again.
#ifndef RUNTIME_DEVICE_PROCESS_FIXTURE_H_
#define RUNTIME_DEVICE_PROCESS_FIXTURE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "runtime/device/openreg_emulation.h"

namespace openreg::device {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

// If the condition is false, prints a message and ends the process of the test.
#define REQUIRE(condition)                                                                 \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      std::fprintf(stderr, "line %d: %s is false; last error: %s\n", __LINE__, #condition, \
                   orGetLastErrorDetail());                                                \
      _exit(99);                                                                           \
    }                                                                                      \
  } while (false)

inline bool LastErrorHas(const char* text) {
  return std::strstr(orGetLastErrorDetail(), text) != nullptr;
}

inline void Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

class ProcessTest : public testing::Test {
 protected:
  ProcessTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Runs the body in a new process, which must end within a minute.
#define EXPECT_PROCESS(body, code, text) \
  EXPECT_EXIT(                           \
      {                                  \
        alarm(60);                       \
        body();                          \
      },                                 \
      testing::ExitedWithCode(code), text)

inline int MappingsOfTheDevice() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("memfd:openreg") != std::string::npos;
  }
  return count;
}

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_PROCESS_FIXTURE_H_
