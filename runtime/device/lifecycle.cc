// SPDX-License-Identifier: BSD-3-Clause
//
// The life of the device in a process: first use, fork, exit.
//
// Loading the library registers the fork handlers and the initializer, and does nothing else. The
// first call that needs a device sets everything up, and a fork in the meantime waits for it. In
// the child of a fork the device is gone, unless nothing had used it. At exit its threads end.
#include <pthread.h>

#include <cstdlib>
#include <mutex>

#include "runtime/device/allocation.h"
#include "runtime/device/arena.h"
#include "runtime/device/environment.h"
#include "runtime/device/error.h"
#include "runtime/device/fault_report.h"
#include "runtime/device/imported_file.h"
#include "runtime/device/process.h"
#include "runtime/device/shared_page.h"
#include "runtime/device/stream_registry.h"
#include "runtime/device/thread.h"

namespace openreg::device {
namespace {

// As set by orSetLaunchBlocking, which may come before the device exists; -1: the environment
// decides.
std::atomic<int> requested_blocking{-1};

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
void OnForkChild() {
  if (IsReady() || arena.reserved()) {
    mode.fetch_or(kForked, std::memory_order_seq_cst);
    arena.CloseFilesInChild();
    CloseSharedPageInChild();
    CloseImportFilesInChild();
  }
  AfterFork();
}

void EndThreads() {
  const uint32_t before = mode.fetch_or(kShutdown, std::memory_order_seq_cst);
  if ((before & (kReady | kForked | kShutdown)) != kReady) {
    return;
  }
  Streams::Get().ShutDown();
  mode.fetch_or(kStopped, std::memory_order_seq_cst);
}

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
    return Fail(orErrorSystem, "the exit handler cannot be registered: no memory");
  }
  const int requested = requested_blocking.load(std::memory_order_relaxed);
  const bool blocking = requested == -1 ? environment->launch_blocking : requested == 1;
  mode.fetch_or(blocking ? kReady | kBlocking : uint32_t{kReady}, std::memory_order_seq_cst);
  return orSuccess;
}

// Before any other constructor, which may use the device, and because a fork may come during the
// first use.
[[gnu::constructor(101)]] void Register() {
  SetInitializer(&Initialize);
  if (pthread_atfork(BeforeFork, AfterFork, OnForkChild) != 0) {
    std::abort();  // the process has no memory to start with
  }
}

}  // namespace

extern "C" {

OPENREG_API orError_t orSetLaunchBlocking(int blocking) {
  if (blocking != 0 && blocking != 1) {
    return Fail(orErrorInvalidValue, "orSetLaunchBlocking: blocking is %d: expected 0 or 1",
                blocking);
  }
  std::lock_guard lock(InitializeMutex());
  requested_blocking.store(blocking, std::memory_order_relaxed);
  if ((mode.load(std::memory_order_relaxed) & kReady) != 0) {
    if (blocking == 1) {
      mode.fetch_or(kBlocking, std::memory_order_acq_rel);
    } else {
      mode.fetch_and(~static_cast<uint32_t>(kBlocking), std::memory_order_acq_rel);
    }
  }
  return orSuccess;
}

OPENREG_API orError_t orGetLaunchBlocking(int* blocking) {
  if (blocking == nullptr) {
    return Fail(orErrorInvalidValue, "orGetLaunchBlocking: blocking is null");
  }
  if (const int requested = requested_blocking.load(std::memory_order_relaxed); requested != -1) {
    *blocking = requested;
    return orSuccess;
  }
  const Environment* environment;
  if (const orError_t error = GetEnvironment(&environment); error != orSuccess) {
    return error;
  }
  *blocking = environment->launch_blocking ? 1 : 0;
  return orSuccess;
}

OPENREG_API orError_t orInit(void) { return EnterQuery("orInit"); }

OPENREG_API orError_t orShutdown(void) {
  if (InForkedChild()) {
    return orSuccess;
  }
  if (thread_state.running != nullptr) {
    return Refuse("orShutdown", /*only_reads=*/false);
  }
  EndThreads();
  return orSuccess;
}

}  // extern "C"
}  // namespace openreg::device
