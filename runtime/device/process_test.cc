// SPDX-License-Identifier: BSD-3-Clause
//
// First use, fork and exit. Each test needs a process in which the device was not used before, so
// each runs its statement in a process of its own: gtest's death tests in the "threadsafe" style,
// which start this program again.
#include "runtime/device/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/device/launch.h"
#include "runtime/device/openreg_emulation.h"

// The child of a fork has only one of its parent's threads: what the others hold would look like
// leaks.
static bool in_forked_child = false;
// NOLINTNEXTLINE(bugprone-reserved-identifier): the name that the leak checker looks for
extern "C" [[gnu::visibility("default")]] int __lsan_is_turned_off() { return in_forked_child; }

namespace openreg::device {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressSanitizer = true;
#else
constexpr bool kAddressSanitizer = false;
#endif

// Ends the process of a test with a message when a condition does not hold.
#define REQUIRE(condition)                                                                 \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      std::fprintf(stderr, "line %d: %s is false; last error: %s\n", __LINE__, #condition, \
                   orGetLastErrorDetail());                                                \
      _exit(99);                                                                           \
    }                                                                                      \
  } while (false)

bool LastErrorHas(const char* text) { return std::strstr(orGetLastErrorDetail(), text) != nullptr; }

// Counts that a child process shares with its parent.
struct Shared {
  std::atomic<int> started{0};
  std::atomic<int> finished{0};
};
Shared& NewShared() {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return *new (memory) Shared;
}

void Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

class ProcessTest : public testing::Test {
 protected:
  ProcessTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Each body runs in a fresh process, which has to end by itself within a minute.
#define EXPECT_PROCESS(body, code, text) \
  EXPECT_EXIT(                           \
      {                                  \
        alarm(60);                       \
        body();                          \
      },                                 \
      testing::ExitedWithCode(code), text)

// ---------------------------------------------------------------------------------------- first
// use

int MappingsOfTheDevice() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("memfd:openreg") != std::string::npos;
  }
  return count;
}

int FilesOfTheDevice() {
  int count = 0;
  for (int file = 0; file < 1024; ++file) {
    char name[128] = "";
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    count += readlink(link.c_str(), name, sizeof(name) - 1) > 0 &&
             std::strstr(name, "memfd:openreg") != nullptr;
  }
  return count;
}

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
  const int threads = ThreadCount();  // a sanitizer may have one of its own
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
  // ThreadSanitizer starts a thread of its own beside the first one.
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

TEST_F(ProcessTest, AnEnvironmentThatIsNotUnderstoodIsAnErrorOfEachCall) {
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
      {"OPENREG_DEVICE_MEMORY", "0", "bytes of one device"},
      {"OPENREG_DEVICE_MEMORY", "-5", "bytes of one device"},
      {"OPENREG_DEVICE_MEMORY", "1P", "bytes of one device"},
      {"OPENREG_DEVICE_MEMORY", "1Gi", "bytes of one device"},
      {"OPENREG_DEVICE_MEMORY", "2T", "at most 1T"},
      {"OPENREG_DEVICE_MEMORY", "18446744073709551615T", "bytes of one device"},
      {"OPENREG_LAUNCH_BLOCKING", "yes", "expected 0 or 1"},
  };
  for (const auto& each : kCases) {
    setenv(each.name, each.value, 1);
    EXPECT_PROCESS(UsesABadEnvironment, 7,
                   std::string("orErrorInvalidValue; openreg: .*") + each.text);
    unsetenv(each.name);
  }
}

// Lowers a limit, sees the device refuse in words that name it, raises the limit, and goes on.
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
  if (!kThreadSanitizer && !kAddressSanitizer) {  // they map terabytes themselves
    EXPECT_PROCESS(MeetsALimit<RLIMIT_AS>, 0, "RLIMIT_AS, ulimit -v. is 1 GiB");
  }
  unsetenv("OPENREG_DEVICE_MEMORY");
}

// ---------------------------------------------------------------------------------------------
// fork

// Forks, runs `child` there, and returns how it ended.
template <class Child>
int Fork(Child child) {
  const pid_t pid = fork();
  if (pid == 0) {
    in_forked_child = true;
    alarm(30);
    child();
    std::exit(0);  // with all exit handlers
  }
  int status = -1;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return status;
}

void ForksAfterUse() {
  char* memory = nullptr;
  char* freed = nullptr;
  void* view = nullptr;
  void* pinned = nullptr;
  orStream_t stream;
  orEvent_t event;
  REQUIRE(orMalloc(reinterpret_cast<void**>(&memory), 1 << 20) == orSuccess);
  REQUIRE(orMalloc(reinterpret_cast<void**>(&freed), 1 << 20) == orSuccess);
  REQUIRE(orFree(freed) == orSuccess);
  REQUIRE(orMallocHost(&pinned, 100) == orSuccess);
  REQUIRE(orGetKernelPointer(&view, memory) == orSuccess);
  REQUIRE(orMemset(memory, 7, 1 << 20) == orSuccess);
  REQUIRE(orStreamCreate(&stream) == orSuccess && orEventCreate(&event) == orSuccess);
  // A kernel runs at the fork. It has begun by then: AddressSanitizer's allocator has locks that a
  // fork leaves as they are, and a worker that starts allocates.
  static std::atomic<bool> runs{false};
  REQUIRE(orLaunchKernel(stream, [] {
            runs = true;
            Sleep(10);
          }) == orSuccess);
  while (!runs) {
    std::this_thread::yield();
  }
  orEvent_t shared_event;
  REQUIRE(orEventCreateWithFlags(&shared_event, orEventInterprocess) == orSuccess);
  REQUIRE(FilesOfTheDevice() == 3);
  const int status = Fork([&] {
    void* pointer = nullptr;
    char byte = 0;
    int number = 0;
    size_t size = 0;
    orStream_t new_stream;
    orEvent_t new_event;
    orPointerAttributes attributes;
    orAddressWindow window;
    // Giving back does nothing and succeeds.
    REQUIRE(orFree(memory) == orSuccess);
    REQUIRE(orFreeHost(pinned) == orSuccess);
    REQUIRE(orHostUnregister(pinned) == orSuccess);
    REQUIRE(orMemTrim(&size) == orSuccess && size == 0);
    REQUIRE(orStreamDestroy(stream) == orSuccess);
    REQUIRE(orEventDestroy(event) == orSuccess);
    REQUIRE(orShutdown() == orSuccess);
    // Everything that needs a device is refused.
    REQUIRE(orInit() == orErrorForked);
    REQUIRE(orMalloc(&pointer, 1) == orErrorForked);
    REQUIRE(LastErrorHas("\"spawn\" or \"forkserver\""));
    REQUIRE(orMallocHost(&pointer, 1) == orErrorForked);
    REQUIRE(orHostRegister(&byte, 1) == orErrorForked);
    REQUIRE(orMemGetInfo(&size, &size) == orErrorForked);
    REQUIRE(orDeviceSynchronize() == orErrorForked);
    REQUIRE(orDeviceReset() == orErrorForked);
    REQUIRE(orPointerGetAttributes(&attributes, memory) == orErrorForked);
    REQUIRE(orGetKernelPointer(&pointer, memory) == orErrorForked);
    REQUIRE(orGetAddressWindow(&window) == orErrorForked);
    orIpcMemoryHandle handle{};
    REQUIRE(orIpcRelease(memory, nullptr) == orSuccess);
    REQUIRE(orIpcExport(&handle, memory, 1, nullptr) == orErrorForked);
    REQUIRE(orIpcImport(&pointer, &handle, nullptr) == orErrorForked);
    REQUIRE(orIpcIsExported(&number, memory, 1) == orErrorForked);
    REQUIRE(orMemcpy(&byte, memory, 1, orMemcpyDefault) == orErrorForked);
    REQUIRE(orMemcpyAsync(&byte, memory, 1, orMemcpyDefault, stream) == orErrorForked);
    REQUIRE(orMemcpyPeer(memory, 0, memory, 0, 1) == orErrorForked);
    REQUIRE(orMemset(memory, 0, 1) == orErrorForked);
    REQUIRE(orMemsetAsync(memory, 0, 1, stream) == orErrorForked);
    REQUIRE(orStreamCreate(&new_stream) == orErrorForked);
    REQUIRE(orGetDefaultStream(&new_stream, 0) == orErrorForked);
    REQUIRE(orStreamGetDevice(stream, &number) == orErrorForked);
    REQUIRE(orStreamGetPriority(stream, &number) == orErrorForked);
    REQUIRE(orStreamQuery(stream) == orErrorForked);
    REQUIRE(orStreamSynchronize(stream) == orErrorForked);
    REQUIRE(orStreamWaitEvent(stream, event, 0) == orErrorForked);
    REQUIRE(orEventCreate(&new_event) == orErrorForked);
    REQUIRE(orEventRecord(event, stream) == orErrorForked);
    REQUIRE(orEventQuery(event) == orErrorForked);
    REQUIRE(orEventSynchronize(event) == orErrorForked);
    REQUIRE(orLaunchKernel(stream, [] {}) == orErrorForked);
    REQUIRE(orLaunchHostFunc(stream, [](void*) {}, nullptr) == orErrorForked);
    REQUIRE(orSetDevice(1) == orErrorForked);
    REQUIRE(orGetDevice(&number) == orErrorForked);
    // What touches no device goes on.
    REQUIRE(orGetDeviceCount(&number) == orSuccess && number == 2);
    REQUIRE(orGetVersion(&number) == orSuccess);
    REQUIRE(MappingsOfTheDevice() == 0);
    REQUIRE(FilesOfTheDevice() == 0);  // else it would keep the memory of a parent that ended
  });
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  // The parent has lost nothing.
  REQUIRE(static_cast<char*>(view)[(1 << 20) - 1] == 7);
  REQUIRE(orDeviceSynchronize() == orSuccess);
  REQUIRE(orStreamDestroy(stream) == orSuccess && orEventDestroy(event) == orSuccess);
  REQUIRE(orFree(memory) == orSuccess && orFreeHost(pinned) == orSuccess);
  std::exit(0);
}

TEST_F(ProcessTest, TheChildOfAForkIsRefusedAndDoesNoHarm) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "ThreadSanitizer does not support forks of a process with threads";
  }
  EXPECT_PROCESS(ForksAfterUse, 0, "");
}

void ForksBeforeUse() {
  int count = 0;
  REQUIRE(orGetDeviceCount(&count) == orSuccess);
  const int status = Fork([] {
    void* memory = nullptr;
    REQUIRE(orMalloc(&memory, 100) == orSuccess);
    REQUIRE(orMemset(memory, 1, 100) == orSuccess);
    REQUIRE(orLaunchKernel(nullptr, [] {}) == orSuccess);
    REQUIRE(orDeviceSynchronize() == orSuccess);
  });
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  REQUIRE(orDeviceSynchronize() == orSuccess);
  std::exit(0);
}

TEST_F(ProcessTest, ForkingBeforeTheFirstUseIsFine) { EXPECT_PROCESS(ForksBeforeUse, 0, ""); }

// In a process of its own, for there is one first use of each.
void ForksDuringTheFirstUse() {
  for (int round = 0; round < 60; ++round) {
    const int status = Fork([round] {
      alarm(5);
      std::atomic<bool> ready{false}, forks{false};
      std::thread first([&, round] {
        ready = true;
        while (!forks) {
        }
        const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(5 * round);
        while (std::chrono::steady_clock::now() < end) {
        }
        REQUIRE(orDeviceSynchronize() == orSuccess);
      });
      while (!ready) {
      }
      forks = true;
      const int forked = Fork([] {
        alarm(5);
        int count = 0, blocking = 0;
        REQUIRE(orGetDeviceCount(&count) == orSuccess && count == 2);
        REQUIRE(orGetLaunchBlocking(&blocking) == orSuccess);
        void* memory = nullptr;
        const orError_t error = orMalloc(&memory, 100);
        REQUIRE(error == orSuccess || error == orErrorForked);
        REQUIRE(orFree(memory) == orSuccess);
        REQUIRE(orDeviceSynchronize() == error);
      });
      first.join();
      REQUIRE(WIFEXITED(forked) && WEXITSTATUS(forked) == 0);
    });
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  std::exit(0);
}

TEST_F(ProcessTest, AForkDuringTheFirstUseWaitsForIt) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "ThreadSanitizer does not support forks of a process with threads";
  }
  EXPECT_PROCESS(ForksDuringTheFirstUse, 0, "");
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

// ThreadSanitizer sees what is read without care.
TEST_F(ProcessTest, FreesMayComeBesideTheFirstUse) {
  EXPECT_PROCESS(FreesBesideTheFirstUse, 0, "");
}

void LaunchesAfterAFirstUseThatFailed() {
  int count = 0;
  REQUIRE(orGetDeviceCount(&count) == orSuccess);  // reads files, which the limit would forbid
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

void ForksWhileOthersWork() {
  REQUIRE(orDeviceSynchronize() == orSuccess);  // the first use is over, however slow threads start
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&stop] {
      while (!stop.load()) {
        void* memory = nullptr;
        orStream_t stream;
        REQUIRE(orMalloc(&memory, 10000) == orSuccess);
        REQUIRE(orStreamCreate(&stream) == orSuccess);
        REQUIRE(orMemsetAsync(memory, 1, 10000, stream) == orSuccess);
        REQUIRE(orStreamSynchronize(stream) == orSuccess);
        REQUIRE(orStreamDestroy(stream) == orSuccess);
        REQUIRE(orFree(memory) == orSuccess);
      }
    });
  }
  Sleep(5);
  for (int round = 0; round < 50; ++round) {
    const int status = Fork([] {  // some thread holds each lock at some time
      void* memory = nullptr;
      REQUIRE(orMalloc(&memory, 1) == orErrorForked);
      REQUIRE(orFree(memory) == orSuccess);
      REQUIRE(orMemTrim(nullptr) == orSuccess);
      REQUIRE(orDeviceSynchronize() == orErrorForked);
    });
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::exit(0);
}

TEST_F(ProcessTest, TheChildNeverWaitsForALockItsParentHeld) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "ThreadSanitizer does not support forks of a process with threads";
  }
  EXPECT_PROCESS(ForksWhileOthersWork, 0, "");
}

// ---------------------------------------------------------------------------------------------
// exit

Shared* shared;

void PrintCounts() {
  std::fprintf(stderr, "started %d finished %d\n", shared->started.load(), shared->finished.load());
}

// Registered before the device's own exit handler, and so run after it.
void PrintCountsAtExit() {
  shared = &NewShared();
  std::atexit(PrintCounts);
}

orError_t CountingKernel(void*) {
  ++shared->started;
  Sleep(30);
  ++shared->finished;
  return orSuccess;
}

bool AwaitStarted() {
  for (int round = 0; round < 20000; ++round) {
    if (shared->started.load() != 0) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return false;
}

template <uint32_t kFlags>
void ExitsWithQueuedWork() {
  PrintCountsAtExit();
  const orLaunchAttributes attributes{"counting", kFlags, 0};
  for (int number = 0; number < 100; ++number) {
    REQUIRE(orLaunchKernel(nullptr, CountingKernel, nullptr, 0, &attributes) == orSuccess);
  }
  REQUIRE(AwaitStarted());
  std::exit(3);
}

TEST_F(ProcessTest, ExitWaitsForTheKernelThatRunsAndDropsTheRest) {
  EXPECT_PROCESS(ExitsWithQueuedWork<0>, 3, "started 1 finished 1");
  EXPECT_PROCESS(ExitsWithQueuedWork<orLaunchParallel>, 3, "started 1 finished 1");
}

void ExitsWithAStreamThatWaits() {
  PrintCountsAtExit();
  orStream_t waiting;
  orEvent_t event;
  REQUIRE(orStreamCreate(&waiting) == orSuccess && orEventCreate(&event) == orSuccess);
  REQUIRE(orLaunchKernel(nullptr, CountingKernel, nullptr, 0, nullptr) == orSuccess);
  REQUIRE(orLaunchKernel(nullptr, CountingKernel, nullptr, 0, nullptr) == orSuccess);
  REQUIRE(orEventRecord(event, nullptr) == orSuccess);
  REQUIRE(orStreamWaitEvent(waiting, event, 0) == orSuccess);
  REQUIRE(orLaunchKernel(waiting, CountingKernel, nullptr, 0, nullptr) == orSuccess);
  orStream_t asleep;
  REQUIRE(orStreamCreate(&asleep) == orSuccess);
  REQUIRE(orLaunchKernel(asleep, [] {}) == orSuccess);
  REQUIRE(orStreamSynchronize(asleep) == orSuccess);
  REQUIRE(AwaitStarted());
  Sleep(1);
  std::exit(4);
}

TEST_F(ProcessTest, ExitDoesNotHangOnStreamsThatWaitOrSleep) {
  EXPECT_PROCESS(ExitsWithAStreamThatWaits, 4, "started 1 finished 1");
}

template <uint32_t kFlags>
void ExitsFromAKernel() {
  PrintCountsAtExit();
  orStream_t elsewhere;
  REQUIRE(orStreamCreate(&elsewhere) == orSuccess);
  REQUIRE(orLaunchKernel(elsewhere, CountingKernel, nullptr, 0, nullptr) == orSuccess);
  REQUIRE(AwaitStarted());
  const orLaunchAttributes attributes{"exit", kFlags, 0};
  REQUIRE(orLaunchKernel(
              nullptr, [](void*) -> orError_t { std::exit(5); }, nullptr, 0, &attributes) ==
          orSuccess);
  (void)orStreamSynchronize(nullptr);  // ends when the process does
  pause();
}

void ExitsFromACallback() {
  PrintCountsAtExit();
  REQUIRE(orLaunchHostFunc(nullptr, [](void*) { std::exit(5); }, nullptr) == orSuccess);
  (void)orStreamSynchronize(nullptr);
  pause();
}

TEST_F(ProcessTest, ExitFromAKernelOrCallbackDoesNotDeadlock) {
  EXPECT_PROCESS(ExitsFromAKernel<0>, 5, "started 1 finished 1");
  EXPECT_PROCESS(ExitsFromAKernel<orLaunchInline>, 5, "started 1 finished 1");
  EXPECT_PROCESS(ExitsFromAKernel<orLaunchParallel>, 5, "started 1 finished 1");
  EXPECT_PROCESS(ExitsFromACallback, 5, "started 0 finished 0");
}

void ShutsDownWhileOthersWait() {
  static std::atomic<bool> running{false};
  REQUIRE(orLaunchKernel(nullptr, [] {
            running = true;
            Sleep(50);
          }) == orSuccess);
  while (!running.load()) {
    Sleep(1);
  }
  REQUIRE(orLaunchKernel(nullptr, [] { Sleep(50); }) == orSuccess);
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    REQUIRE(orStreamSynchronize(nullptr) == orErrorShutdown);
    ++refused;
  });
  threads.emplace_back([&] {  // fills the queue and waits for room
    orError_t error = orSuccess;
    while (error == orSuccess) {
      error = orLaunchKernel(nullptr, [](void*) { return orSuccess; }, nullptr, 0, nullptr);
    }
    REQUIRE(error == orErrorShutdown);
    ++refused;
  });
  threads.emplace_back([&] {
    char byte = 0;
    void* memory = nullptr;
    REQUIRE(orMallocHost(&memory, 1) == orSuccess);
    REQUIRE(orMemcpy(memory, &byte, 1, orMemcpyHostToHost) == orErrorShutdown);
    ++refused;
  });
  Sleep(10);
  REQUIRE(orShutdown() == orSuccess);
  for (std::thread& thread : threads) {
    thread.join();
  }
  REQUIRE(refused.load() == 3);
  REQUIRE(orShutdown() == orSuccess);
  std::exit(0);
}

TEST_F(ProcessTest, AShutdownWakesThoseWhoWait) { EXPECT_PROCESS(ShutsDownWhileOthersWait, 0, ""); }

void UsesTheDeviceAfterTheShutdown() {
  void* memory = nullptr;
  orStream_t stream;
  orEvent_t event;
  REQUIRE(orMalloc(&memory, 100) == orSuccess);
  REQUIRE(orStreamCreate(&stream) == orSuccess && orEventCreate(&event) == orSuccess);
  REQUIRE(orLaunchKernel(stream, [] {}) == orSuccess);
  REQUIRE(orStreamSynchronize(stream) == orSuccess);
  REQUIRE(orShutdown() == orSuccess);
  REQUIRE(orLaunchKernel(
              stream, [](void*) { return orSuccess; }, nullptr, 0, nullptr) == orErrorShutdown);
  REQUIRE(LastErrorHas("the process exits"));
  void* more = nullptr;
  REQUIRE(orMalloc(&more, 1) == orErrorShutdown);
  REQUIRE(orStreamSynchronize(stream) == orErrorShutdown);
  REQUIRE(orDeviceSynchronize() == orErrorShutdown);
  REQUIRE(orStreamQuery(stream) == orSuccess);
  REQUIRE(orEventQuery(event) == orSuccess);
  // Late destructors give back what they have.
  REQUIRE(orEventDestroy(event) == orSuccess);
  REQUIRE(orStreamDestroy(stream) == orSuccess);
  REQUIRE(orFree(memory) == orSuccess);
  REQUIRE(orMemTrim(nullptr) == orSuccess);
  std::exit(0);
}

TEST_F(ProcessTest, AfterTheShutdownLaunchesAreRefusedAndMemoryCanBeFreed) {
  EXPECT_PROCESS(UsesTheDeviceAfterTheShutdown, 0, "");
}

void AsksForWorkThatTheShutdownDropped() {
  static std::atomic<bool> running{false};
  orEvent_t event, before, timed;
  REQUIRE(orEventCreate(&event) == orSuccess && orEventCreate(&before) == orSuccess);
  REQUIRE(orEventCreateWithFlags(&timed, orEventEnableTiming) == orSuccess);
  orStream_t idle;
  REQUIRE(orStreamCreate(&idle) == orSuccess);
  REQUIRE(orLaunchKernel(nullptr, [] {
            running = true;
            Sleep(50);
          }) == orSuccess);
  REQUIRE(orEventRecord(before, nullptr) == orSuccess);
  while (!running.load()) {
    Sleep(1);
  }
  REQUIRE(orLaunchKernel(nullptr, [] { REQUIRE(false); }) == orSuccess);
  REQUIRE(orEventRecord(event, nullptr) == orSuccess);
  REQUIRE(orEventRecord(timed, nullptr) == orSuccess);
  REQUIRE(orEventQuery(event) == orErrorNotReady);
  REQUIRE(orShutdown() == orSuccess);
  float milliseconds = 0;
  REQUIRE(orEventQuery(before) == orSuccess);
  REQUIRE(orEventQuery(event) == orErrorShutdown);
  REQUIRE(LastErrorHas("orEventQuery: queued commands were dropped"));
  REQUIRE(orEventElapsedTime(&milliseconds, timed, timed) == orErrorShutdown);
  REQUIRE(orStreamQuery(nullptr) == orErrorShutdown);
  REQUIRE(orStreamQuery(idle) == orSuccess);
  std::exit(0);
}

TEST_F(ProcessTest, WhoAsksForWorkThatTheShutdownDroppedIsTold) {
  EXPECT_PROCESS(AsksForWorkThatTheShutdownDropped, 0, "");
}

// A static object that outlives the device's exit handler, like those of libraries loaded before.
struct Late {
  ~Late() {
    if (memory != nullptr) {
      std::fprintf(stderr, "late free: %s\n", orGetErrorName(orFree(memory)));
      REQUIRE(orFree(memory) == orErrorInvalidDevicePointer);
      REQUIRE(LastErrorHas("no allocation lives now"));
    }
  }
  void* memory = nullptr;
};
Late late;

void FreesInAStaticDestructor() {
  REQUIRE(orMalloc(&late.memory, 100) == orSuccess);
  REQUIRE(orFree(&late) == orErrorInvalidDevicePointer);  // this thread has had an error before
  REQUIRE(orLaunchKernel(nullptr, [] {}) == orSuccess);
  std::exit(0);
}

TEST_F(ProcessTest, StaticDestructorsMayFree) {
  EXPECT_PROCESS(FreesInAStaticDestructor, 0, "late free: orSuccess");
}

}  // namespace
}  // namespace openreg::device
