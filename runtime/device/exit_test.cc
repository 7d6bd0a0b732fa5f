// SPDX-License-Identifier: BSD-3-Clause
//
// Tests orShutdown, and the exit of a process that has used the device.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include "runtime/device/process_fixture.h"

namespace openreg::device {
namespace {

using ExitTest = ProcessTest;

// Counters that a child process shares with its parent.
struct Shared {
  std::atomic<int> started{0};
  std::atomic<int> finished{0};
};
Shared& NewShared() {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return *new (memory) Shared;
}

Shared* shared;

void PrintCounts() {
  std::fprintf(stderr, "started %d finished %d\n", shared->started.load(), shared->finished.load());
}

// Registers PrintCounts before the device registers its exit handler. PrintCounts therefore runs
// after that handler.
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

TEST_F(ExitTest, ExitWaitsForTheRunningKernelAndDropsTheOthers) {
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

TEST_F(ExitTest, ExitDoesNotHangOnStreamsThatWaitOrSleep) {
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
  (void)orStreamSynchronize(nullptr);  // waits until the process ends
  pause();
}

void ExitsFromACallback() {
  PrintCountsAtExit();
  REQUIRE(orLaunchHostFunc(nullptr, [](void*) { std::exit(5); }, nullptr) == orSuccess);
  (void)orStreamSynchronize(nullptr);
  pause();
}

TEST_F(ExitTest, ExitFromAKernelOrCallbackDoesNotDeadlock) {
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

TEST_F(ExitTest, AShutdownWakesWaitingThreads) { EXPECT_PROCESS(ShutsDownWhileOthersWait, 0, ""); }

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
  REQUIRE(LastErrorHas("the process is exiting"));
  void* more = nullptr;
  REQUIRE(orMalloc(&more, 1) == orErrorShutdown);
  REQUIRE(orStreamSynchronize(stream) == orErrorShutdown);
  REQUIRE(orDeviceSynchronize() == orErrorShutdown);
  REQUIRE(orStreamQuery(stream) == orSuccess);
  REQUIRE(orEventQuery(event) == orSuccess);
  // Destructors that run late can still release their resources.
  REQUIRE(orEventDestroy(event) == orSuccess);
  REQUIRE(orStreamDestroy(stream) == orSuccess);
  REQUIRE(orFree(memory) == orSuccess);
  REQUIRE(orMemTrim(nullptr) == orSuccess);
  std::exit(0);
}

TEST_F(ExitTest, AfterTheShutdownLaunchesAreRefusedAndMemoryCanBeFreed) {
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

TEST_F(ExitTest, QueriesOfDroppedWorkFailAfterTheShutdown) {
  EXPECT_PROCESS(AsksForWorkThatTheShutdownDropped, 0, "");
}

// A static object that is destroyed after the device's exit handler has run, like the static
// objects of libraries that were loaded earlier.
struct Late {
  ~Late() {
    if (memory != nullptr) {
      std::fprintf(stderr, "late free: %s\n", orGetErrorName(orFree(memory)));
      REQUIRE(orFree(memory) == orErrorInvalidDevicePointer);
      REQUIRE(LastErrorHas("not inside any live allocation"));
    }
  }
  void* memory = nullptr;
};
Late late;

void FreesInAStaticDestructor() {
  REQUIRE(orMalloc(&late.memory, 100) == orSuccess);
  REQUIRE(orFree(&late) ==
          orErrorInvalidDevicePointer);  // sets this thread's last error before the exit
  REQUIRE(orLaunchKernel(nullptr, [] {}) == orSuccess);
  std::exit(0);
}

TEST_F(ExitTest, StaticDestructorsMayFree) {
  EXPECT_PROCESS(FreesInAStaticDestructor, 0, "late free: orSuccess");
}

}  // namespace
}  // namespace openreg::device
