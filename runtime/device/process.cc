// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/process.h"

#include <pthread.h>

#include <cstdlib>
#include <mutex>

#include "runtime/device/allocation.h"
#include "runtime/device/arena.h"
#include "runtime/device/board.h"
#include "runtime/device/environment.h"
#include "runtime/device/error.h"
#include "runtime/device/fault_report.h"
#include "runtime/device/imported_memory.h"
#include "runtime/device/stream.h"

namespace openreg::device {

constinit std::atomic<uint32_t> mode{0};

namespace {

// Set by orSetLaunchBlocking before the device exists; -1: the environment decides.
std::atomic<int> blocking_wish{-1};

std::mutex& InitializeMutex() {
  static std::mutex& mutex = *new std::mutex;  // a thread may use the device while the process ends
  return mutex;
}

// A fork waits for a first use that is under way. Otherwise the child would find these mutexes
// locked, by a thread that it does not have, and half a device.
void BeforeFork() {
  InitializeMutex().lock();
  EnvironmentMutex().lock();
}

void AfterFork() {
  EnvironmentMutex().unlock();
  InitializeMutex().unlock();
}

// The child has none of the device's threads and mappings. Only `mode` changes: every other lock
// may be held by a thread that the child does not have. If nothing had used the device, the child
// may. What is mapped is left out of the child also after a first use that failed.
void LeaveBehind() {
  if (IsReady() || arena.reserved()) {
    mode.fetch_or(kForked, std::memory_order_seq_cst);
    arena.CloseFilesInChild();
    CloseBoardFileInChild();
    CloseImportFilesInChild();
  }
  AfterFork();
}

// Before the first use, because a fork may come during it.
[[gnu::constructor]] void WatchForks() {
  if (pthread_atfork(BeforeFork, AfterFork, LeaveBehind) != 0) {
    std::abort();  // the process has no memory to start with
  }
}

void EndThreads() {
  const uint32_t before = mode.fetch_or(kShutdown, std::memory_order_seq_cst);
  if ((before & (kReady | kForked | kShutdown)) != kReady) {
    return;
  }
  Streams::Get().ShutDown();
  mode.fetch_or(kStopped, std::memory_order_seq_cst);
}

}  // namespace

orError_t Initialize() {
  std::lock_guard lock(InitializeMutex());
  if ((mode.load(std::memory_order_relaxed) & kReady) != 0) {
    return orSuccess;
  }
  const Environment* environment;
  if (const orError_t error = GetEnvironment(&environment); error != orSuccess) {
    return error;
  }
  if (!arena.reserved()) {
    if (const orError_t error =
            arena.Reserve(environment->device_count, environment->device_memory);
        error != orSuccess) {
      return error;
    }
    Allocations::Get().SetUp();
  }
  if (const orError_t error = Streams::Get().SetUp(environment->device_count); error != orSuccess) {
    return error;
  }
  static const bool hooked = [] {
    InstallFaultReport();
    // Registered at the first use and not when the library is loaded: exit handlers run in reverse
    // order, so ours comes before the teardown of whatever was loaded until now and kernels may
    // use.
    return std::atexit(EndThreads) == 0;
  }();
  if (!hooked) {
    return Fail(orErrorSystem, "the handler of the exit can not be registered: no memory");
  }
  const int wish = blocking_wish.load(std::memory_order_relaxed);
  const bool blocking = wish == -1 ? environment->launch_blocking : wish == 1;
  mode.fetch_or(blocking ? kReady | kBlocking : uint32_t{kReady}, std::memory_order_seq_cst);
  return orSuccess;
}

orError_t Refuse(const char* function, bool only_reads) {
  const uint32_t now = mode.load(std::memory_order_acquire);
  if ((now & kForked) != 0) {
    return Fail(
        orErrorForked,
        "%s: the device was used before this process was forked, and a child can not use it; start "
        "processes by \"spawn\" or \"forkserver\"",
        function);
  }
  if (!only_reads && thread_state.running != nullptr) {
    return Fail(
        orErrorNotPermitted,
        "%s was called from inside a kernel or host callback, where nothing may be queued, waited "
        "for, allocated or freed",
        function);
  }
  if (!only_reads && (now & kShutdown) != 0) {
    return Fail(orErrorShutdown, "%s: the process exits", function);
  }
  return Initialize();
}

orError_t EnterRelease(const char* function) {
  return thread_state.running == nullptr || thread_state.releasing
             ? orSuccess
             : Refuse(function, /*only_reads=*/false);
}

}  // namespace openreg::device

using openreg::device::blocking_wish;
using openreg::device::Environment;
using openreg::device::Fail;
using openreg::device::GetEnvironment;
using openreg::device::InitializeMutex;
using openreg::device::kBlocking;
using openreg::device::kReady;
using openreg::device::mode;

orError_t orSetLaunchBlocking(int blocking) {
  if (blocking != 0 && blocking != 1) {
    return Fail(orErrorInvalidValue, "orSetLaunchBlocking: blocking is %d: expected 0 or 1",
                blocking);
  }
  std::lock_guard lock(InitializeMutex());
  blocking_wish.store(blocking, std::memory_order_relaxed);
  if ((mode.load(std::memory_order_relaxed) & kReady) != 0) {
    if (blocking == 1) {
      mode.fetch_or(kBlocking, std::memory_order_acq_rel);
    } else {
      mode.fetch_and(~static_cast<uint32_t>(kBlocking), std::memory_order_acq_rel);
    }
  }
  return orSuccess;
}

orError_t orGetLaunchBlocking(int* blocking) {
  if (blocking == nullptr) {
    return Fail(orErrorInvalidValue, "orGetLaunchBlocking: blocking is null");
  }
  if (const int wish = blocking_wish.load(std::memory_order_relaxed); wish != -1) {
    *blocking = wish;
    return orSuccess;
  }
  const Environment* environment;
  if (const orError_t error = GetEnvironment(&environment); error != orSuccess) {
    return error;
  }
  *blocking = environment->launch_blocking ? 1 : 0;
  return orSuccess;
}

orError_t orShutdown(void) {
  if (openreg::device::LeftBehind()) {
    return orSuccess;
  }
  if (openreg::device::thread_state.running != nullptr) {
    return openreg::device::Refuse("orShutdown", /*only_reads=*/false);
  }
  openreg::device::EndThreads();
  return orSuccess;
}
