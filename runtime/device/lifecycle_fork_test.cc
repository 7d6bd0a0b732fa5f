// SPDX-License-Identifier: BSD-3-Clause
//
// Tests forks before, during and after a process's first use of the device.
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "runtime/device/process_fixture.h"

// Turns leak detection off in a forked child. A child has only one of its parent's threads, so
// memory that belongs to the other threads would be reported as leaks.
static bool in_forked_child = false;
// NOLINTNEXTLINE(bugprone-reserved-identifier): the name that the leak checker looks for
extern "C" [[gnu::visibility("default")]] int __lsan_is_turned_off() { return in_forked_child; }

namespace openreg::device {
namespace {

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

using ForkTest = ProcessTest;

// Forks, runs `child` in the child process, and returns its exit status.
template <class Child>
int Fork(Child child) {
  const pid_t pid = fork();
  if (pid == 0) {
    in_forked_child = true;
    alarm(30);
    child();
    std::exit(0);  // runs all exit handlers
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
  // Let a kernel run during the fork, and wait until it has started. A worker that is starting may
  // allocate memory, and a fork does not reset the locks of AddressSanitizer's allocator.
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
    // Calls that release resources do nothing and return orSuccess.
    REQUIRE(orFree(memory) == orSuccess);
    REQUIRE(orFreeHost(pinned) == orSuccess);
    REQUIRE(orHostUnregister(pinned) == orSuccess);
    REQUIRE(orMemTrim(&size) == orSuccess && size == 0);
    REQUIRE(orStreamDestroy(stream) == orSuccess);
    REQUIRE(orEventDestroy(event) == orSuccess);
    REQUIRE(orShutdown() == orSuccess);
    // Calls that need a device are refused.
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
    // Calls that need no device still work.
    REQUIRE(orGetDeviceCount(&number) == orSuccess && number == 2);
    REQUIRE(orGetVersion(&number) == orSuccess);
    REQUIRE(MappingsOfTheDevice() == 0);
    REQUIRE(FilesOfTheDevice() == 0);  // otherwise the child would keep the parent's memory alive
  });
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  // The parent is not affected.
  REQUIRE(static_cast<char*>(view)[(1 << 20) - 1] == 7);
  REQUIRE(orDeviceSynchronize() == orSuccess);
  REQUIRE(orStreamDestroy(stream) == orSuccess && orEventDestroy(event) == orSuccess);
  REQUIRE(orFree(memory) == orSuccess && orFreeHost(pinned) == orSuccess);
  std::exit(0);
}

TEST_F(ForkTest, TheChildOfAForkIsRefusedAndHarmless) {
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

TEST_F(ForkTest, ForkingBeforeTheFirstUseIsAllowed) { EXPECT_PROCESS(ForksBeforeUse, 0, ""); }

// Runs in several processes, because each process has only one first use.
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

TEST_F(ForkTest, AForkDuringTheFirstUseWaitsForIt) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "ThreadSanitizer does not support forks of a process with threads";
  }
  EXPECT_PROCESS(ForksDuringTheFirstUse, 0, "");
}

void ForksWhileOthersWork() {
  REQUIRE(orDeviceSynchronize() == orSuccess);  // completes the first use before the forks
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
    const int status = Fork([] {  // each lock is held by some thread during some of the forks
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

TEST_F(ForkTest, TheChildNeverWaitsForALockItsParentHeld) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "ThreadSanitizer does not support forks of a process with threads";
  }
  EXPECT_PROCESS(ForksWhileOthersWork, 0, "");
}

}  // namespace
}  // namespace openreg::device
