// SPDX-License-Identifier: BSD-3-Clause
//
// Tests the first use of the device in a process.
#include <dirent.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include "runtime/device/launch.h"
#include "runtime/device/process.h"
#include "runtime/device/process_fixture.h"

namespace openreg::device {
namespace {

int ThreadCount() {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  for (const dirent* entry = readdir(tasks); entry != nullptr; entry = readdir(tasks)) {
    count += entry->d_name[0] != '.';
  }
  closedir(tasks);
  return count;
}

void LooksBeforeTheFirstUse() {
  const int threads = ThreadCount();  // includes a thread that a sanitizer may have started
  int count = 0, device = 0, blocking = 0;
  REQUIRE(orGetDeviceCount(&count) == orSuccess && count == 3);
  REQUIRE(orSetDevice(2) == orSuccess);
  REQUIRE(orGetDevice(&device) == orSuccess && device == 2);
  REQUIRE(orGetLaunchBlocking(&blocking) == orSuccess);
  orDeviceProperties properties;
  REQUIRE(orGetDeviceProperties(&properties, 2) == orSuccess);
  REQUIRE(properties.total_memory == size_t{8} << 20);
  REQUIRE(orFree(nullptr) == orSuccess);
  REQUIRE(orMemTrim(nullptr) == orSuccess);
  REQUIRE(orStreamDestroy(reinterpret_cast<orStream_t>(5)) == orErrorInvalidHandle);
  REQUIRE(orFree(&count) == orErrorInvalidDevicePointer);
  REQUIRE(MappingsOfTheDevice() == 0 && ThreadCount() == threads);
  REQUIRE(orDeviceSynchronize() == orSuccess);
  REQUIRE(MappingsOfTheDevice() == 6 && ThreadCount() == threads);
  const orLaunchAttributes cheap{"cheap", orLaunchInline, 0};
  REQUIRE(
      orLaunchKernel(nullptr, [](void*) { return orSuccess; }, nullptr, 0, &cheap) == orSuccess);
  REQUIRE(ThreadCount() == threads);
  REQUIRE(
      orLaunchKernel(nullptr, [](void*) { return orSuccess; }, nullptr, 0, nullptr) == orSuccess);
  // ThreadSanitizer starts a thread of its own when the process creates its first thread.
  REQUIRE(ThreadCount() == threads + 1 + (kThreadSanitizer ? 1 : 0));
  std::exit(0);
}

TEST_F(ProcessTest, NothingIsMappedAndNoThreadStartsBeforeItIsNeeded) {
  setenv("OPENREG_DEVICE_COUNT", "3", 1);
  setenv("OPENREG_DEVICE_MEMORY", "8M", 1);
  EXPECT_PROCESS(LooksBeforeTheFirstUse, 0, "");
  unsetenv("OPENREG_DEVICE_COUNT");
  unsetenv("OPENREG_DEVICE_MEMORY");
}

void UsesABadEnvironment() {
  int count = 5;
  void* pointer = nullptr;
  const orError_t counted = orGetDeviceCount(&count);
  std::fprintf(stderr, "%s; %s", orGetErrorName(counted), orGetLastErrorDetail());
  REQUIRE(orMalloc(&pointer, 1) == orErrorInvalidValue && pointer == nullptr);
  REQUIRE(orSetDevice(1) == orErrorInvalidValue);
  std::exit(7);
}

TEST_F(ProcessTest, AnInvalidEnvironmentFailsEachCall) {
  const struct {
    const char* name;
    const char* value;
    const char* text;
  } kCases[] = {
      {"OPENREG_DEVICE_COUNT", "0", "expected a number from 1 to 16"},
      {"OPENREG_DEVICE_COUNT", "17", "OPENREG_DEVICE_COUNT is \"17\""},
      {"OPENREG_DEVICE_COUNT", "two", "expected a number from 1 to 16"},
      {"OPENREG_DEVICE_COUNT", "2x", "expected a number from 1 to 16"},
      {"OPENREG_DEVICE_COUNT", "99999999999999999999", "expected a number from 1 to 16"},
      {"OPENREG_DEVICE_MEMORY", "0", "a number of bytes per device"},
      {"OPENREG_DEVICE_MEMORY", "-5", "a number of bytes per device"},
      {"OPENREG_DEVICE_MEMORY", "1P", "a number of bytes per device"},
      {"OPENREG_DEVICE_MEMORY", "1Gi", "a number of bytes per device"},
      {"OPENREG_DEVICE_MEMORY", "2T", "at most 1T"},
      {"OPENREG_DEVICE_MEMORY", "18446744073709551615T", "a number of bytes per device"},
      {"OPENREG_LAUNCH_BLOCKING", "yes", "expected 0 or 1"},
  };
  for (const auto& each : kCases) {
    setenv(each.name, each.value, 1);
    EXPECT_PROCESS(UsesABadEnvironment, 7,
                   std::string("orErrorInvalidValue; openreg: .*") + each.text);
    unsetenv(each.name);
  }
}

// Lowers a limit and checks that the device's error names it. Then raises the limit and tries
// again.
template <int kResource>
void MeetsALimit() {
  rlimit before{};
  getrlimit(static_cast<__rlimit_resource>(kResource), &before);
  rlimit low = before;
  low.rlim_cur = kResource == RLIMIT_AS       ? rlim_t{1} << 30
                 : kResource == RLIMIT_NOFILE ? 3
                                              : 1 << 20;
  REQUIRE(setrlimit(static_cast<__rlimit_resource>(kResource), &low) == 0);
  void* pointer = nullptr;
  REQUIRE(orMalloc(&pointer, 1) == orErrorSystem);
  std::fprintf(stderr, "%s\n", orGetLastErrorDetail());
  REQUIRE(orMalloc(&pointer, 1) == orErrorSystem && pointer == nullptr);
  REQUIRE(setrlimit(static_cast<__rlimit_resource>(kResource), &before) == 0);
  REQUIRE(orMalloc(&pointer, 1) == orSuccess && pointer != nullptr);
  std::exit(0);
}

TEST_F(ProcessTest, LimitsOfTheSystemAreErrorsThatNameThem) {
  setenv("OPENREG_DEVICE_MEMORY", "4G", 1);
  EXPECT_PROCESS(MeetsALimit<RLIMIT_FSIZE>, 0, "RLIMIT_FSIZE, ulimit -f. is 1 MiB");
  EXPECT_PROCESS(MeetsALimit<RLIMIT_NOFILE>, 0, "RLIMIT_NOFILE");
  if (!kThreadSanitizer && !kAddressSanitizer) {  // these sanitizers themselves map terabytes
    EXPECT_PROCESS(MeetsALimit<RLIMIT_AS>, 0, "RLIMIT_AS, ulimit -v. is 1 GiB");
  }
  unsetenv("OPENREG_DEVICE_MEMORY");
}

void FreesBesideTheFirstUse() {
  std::atomic<bool> begins{false};
  std::thread other([&begins] {
    int local = 0;
    begins = true;
    for (int round = 0; round < 1000; ++round) {
      REQUIRE(orFree(&local) == orErrorInvalidDevicePointer);
      REQUIRE(orMemTrim(nullptr) == orSuccess);
    }
  });
  while (!begins) {
  }
  REQUIRE(orDeviceSynchronize() == orSuccess);
  other.join();
  std::exit(0);
}

// With ThreadSanitizer, this test also detects unsynchronized reads.
TEST_F(ProcessTest, FreesMayRunDuringTheFirstUse) { EXPECT_PROCESS(FreesBesideTheFirstUse, 0, ""); }

void LaunchesAfterAFirstUseThatFailed() {
  int count = 0;
  REQUIRE(orGetDeviceCount(&count) ==
          orSuccess);  // reads files, which the lowered limit would prevent
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  low.rlim_cur = 3;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  const auto store = [](int* to) { *to = 5; };
  void (*const kernel)(int*) = store;
  const orLaunchAttributes attributes{"store", orLaunchInline, 0, nullptr};
  int* memory = nullptr;
  REQUIRE(Launch(nullptr, attributes, kernel, memory) == orErrorSystem);
  REQUIRE(LastErrorHas("RLIMIT_NOFILE") && orGetLastError() == orErrorSystem);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(orMalloc(reinterpret_cast<void**>(&memory), sizeof(int)) == orSuccess);
  REQUIRE(Launch(nullptr, attributes, kernel, memory) == orSuccess);
  int number = 0;
  REQUIRE(orMemcpy(&number, memory, sizeof(number), orMemcpyDefault) == orSuccess && number == 5);
  std::exit(0);
}

TEST_F(ProcessTest, LaunchesWorkAfterAFirstUseThatFailed) {
  EXPECT_PROCESS(LaunchesAfterAFirstUseThatFailed, 0, "");
}

}  // namespace
}  // namespace openreg::device
