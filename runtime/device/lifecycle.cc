// SPDX-License-Identifier: BSD-3-Clause
//
// The device's lifecycle in a process: first use, fork and exit.
//
// Loading the library only registers the fork handlers and the initializer. The first call that
// needs a device sets everything up. A fork during this setup waits until it is complete. A forked
// child can use the device only if nothing had used the device before the fork. At exit, the
// device's threads end.
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

// The value that was passed to orSetLaunchBlocking, which may be called before the device is set
// up. -1 means that it has not been called; in that case, the environment decides.
std::atomic<int> requested_blocking{-1};

std::mutex& InitializeMutex() {
  static std::mutex& mutex =
      *new std::mutex;  // never destroyed: a thread may use the device at exit
  return mutex;
}

// Makes a fork wait for a first use that is in progress. Otherwise, the child would inherit a
// partly initialized device, and mutexes that are locked by a thread of the parent.
void BeforeFork() {
  InitializeMutex().lock();
  EnvironmentMutex().lock();
}

void AfterFork() {
  EnvironmentMutex().unlock();
  InitializeMutex().unlock();
}

// Marks the device as unusable in the child, which has none of its threads and mappings. If nothing
// had used the device, the child may use it. The arena is checked, too, because the mappings are
// missing in the child even if the first use failed. Changes only `mode` and acquires no lock,
// because a thread that exists only in the parent may hold any lock.
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
    // Register the handler at the first use and not when the library is loaded. Exit handlers run
    // in reverse order of registration. This one therefore runs before the exit handlers of all
    // libraries that have been loaded so far and that kernels may use.
    return std::atexit(EndThreads) == 0;
  }();
  if (!hooked) {
    return Fail(orErrorSystem, "cannot register the device's exit handler: out of host memory");
  }
  const int requested = requested_blocking.load(std::memory_order_relaxed);
  const bool blocking = requested == -1 ? environment->launch_blocking : requested == 1;
  mode.fetch_or(blocking ? kReady | kBlocking : uint32_t{kReady}, std::memory_order_seq_cst);
  return orSuccess;
}

// Registers the initializer and the fork handlers. Runs before all other constructors, because they
// may use the device, or may even fork during its first use.
[[gnu::constructor(101)]] void Register() {
  SetInitializer(&Initialize);
  if (pthread_atfork(BeforeFork, AfterFork, OnForkChild) != 0) {
    std::abort();  // the process has too little memory to start
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
    return Fail(orErrorInvalidValue,
                "orGetLaunchBlocking: blocking is null: pass the address of an int");
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
