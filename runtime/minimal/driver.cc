// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/minimal/driver.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string_view>

#include "runtime/minimal/memory.h"
#include "runtime/minimal/stream.h"

namespace openreg::minimal {

thread_local constinit ThreadState thread_state;

namespace {

constexpr size_t kMaxDeviceMemory = size_t{1} << 40;
constexpr size_t kMemoryUnit = size_t{2} << 20;  // device memory is a multiple of this size

// The driver's state in this process. It changes at the first use, at orShutdown, and in a forked
// child. The thread that uses the driver first holds `first_use_mutex` while it initializes the
// driver. A fork acquires the mutex as well, so it waits for an initialization in progress.
enum class Phase { kUnused, kReady, kForked, kShutdown };
constinit std::atomic<Phase> phase{Phase::kUnused};
constinit std::atomic<int> requested_blocking{-1};  // from orSetLaunchBlocking
constinit std::mutex first_use_mutex;
constinit std::mutex settings_mutex;  // held by a fork, and while variables are read

size_t DefaultMemory(int device_count) {
  size_t available = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * kPage;
  size_t limit = 0;
  if (std::ifstream file("/sys/fs/cgroup/memory.max"); file >> limit) {  // the limit of a container
    available = std::min(available, limit);
  }
  const size_t share = available / 2 / static_cast<size_t>(device_count);
  return std::clamp(share / kMemoryUnit * kMemoryUnit, kMemoryUnit, kMaxDeviceMemory);
}

// Parses a size such as "123", "64K", "2M", "1G" or "1T". Returns 0 for any other text.
size_t ParseBytes(std::string_view text) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view suffix = text.substr(static_cast<size_t>(end - text.data()));
  const size_t unit = std::string_view("KMGTkmgt").find(suffix);
  if (error != std::errc() || suffix.size() > 1 || unit == std::string_view::npos) {
    return 0;
  }
  const size_t shift = suffix.empty() ? 0 : 10 * (unit % 4 + 1);
  return number > kMaxDeviceMemory >> shift ? 0 : number << shift;
}

Settings ReadSettings() {
  Settings settings;
  const auto get = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string_view(value != nullptr ? value : "");
  };
  const auto refuse = [&](const char* name, const char* expected) {
    settings.error = orErrorInvalidValue;
    std::snprintf(settings.detail, sizeof(settings.detail), "%s is \"%.64s\": expected %s", name,
                  std::getenv(name), expected);
  };
  if (const std::string_view text = get("OPENREG_DEVICE_COUNT"); !text.empty()) {
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), settings.device_count);
    if (error != std::errc() || end != text.data() + text.size() || settings.device_count < 1 ||
        settings.device_count > OPENREG_MAX_DEVICES) {
      refuse("OPENREG_DEVICE_COUNT", "a number from 1 to 16");
      return settings;
    }
  }
  settings.device_memory = DefaultMemory(settings.device_count);
  if (const std::string_view text = get("OPENREG_DEVICE_MEMORY"); !text.empty()) {
    settings.device_memory = (ParseBytes(text) + kMemoryUnit - 1) / kMemoryUnit * kMemoryUnit;
    if (settings.device_memory == 0) {
      refuse("OPENREG_DEVICE_MEMORY", "bytes, at most 1T, with an optional suffix K, M, G or T");
    }
  }
  if (const std::string_view text = get("OPENREG_LAUNCH_BLOCKING"); !text.empty()) {
    settings.launch_blocking = text == "1";
    if (text != "0" && text != "1") {
      refuse("OPENREG_LAUNCH_BLOCKING", "0 or 1");
    }
  }
  return settings;
}

void EndThreads() {
  Phase ready = Phase::kReady;
  if (phase.compare_exchange_strong(ready, Phase::kShutdown)) {
    Streams::Get().ShutDown();
  }
}

orError_t FirstUse() {
  const std::lock_guard lock(first_use_mutex);
  if (phase.load() != Phase::kUnused) {
    return orSuccess;
  }
  const Settings& settings = GetSettings();
  if (settings.error != orSuccess) {
    return Fail(settings.error, "%s", settings.detail);
  }
  RETURN_IF_ERROR(ReserveMemory(settings.device_count, settings.device_memory));
  Streams::Get().CreateDefaults(settings.device_count);
  // Exit handlers run in reverse order of registration. This one therefore runs before the exit
  // handlers of all libraries that have been loaded so far and that kernels may use.
  if (std::atexit(EndThreads) != 0) {
    return Fail(orErrorSystem, "cannot register the device's exit handler: out of host memory");
  }
  phase.store(Phase::kReady);
  return orSuccess;
}

// Runs before main(), because a fork may happen during the first use of the driver.
[[gnu::constructor]] void RegisterForkHandlers() {
  const auto prepare = [] {
    first_use_mutex.lock();
    settings_mutex.lock();
  };
  static constexpr auto kParent = [] {
    settings_mutex.unlock();
    first_use_mutex.unlock();
  };
  const auto child = [] {
    if (phase.load() != Phase::kUnused) {
      phase.store(Phase::kForked);
    }
    kParent();
  };
  pthread_atfork(prepare, kParent, child);
}

}  // namespace

orError_t Fail(orError_t error, const char* format, ...) {
  ThreadState& thread = thread_state;
  const int prefix = std::snprintf(thread.detail, sizeof(thread.detail), "openreg: ");
  va_list values;
  va_start(values, format);
  std::vsnprintf(thread.detail + prefix, sizeof(thread.detail) - prefix, format, values);
  va_end(values);
  return thread.last_error = error;
}

orError_t FailNull(const char* function, const char* parameter) {
  return Fail(orErrorInvalidValue, "%s: %s must not be null", function, parameter);
}

const Settings& GetSettings() {
  static constinit std::atomic<const Settings*> settings{nullptr};
  if (settings.load() == nullptr) {
    const std::lock_guard lock(settings_mutex);
    if (settings.load() == nullptr) {
      settings.store(new Settings(ReadSettings()));
    }
  }
  return *settings.load();
}

bool InForkedChild() { return phase.load() == Phase::kForked; }

orError_t EnterQuery(const char* function) {
  const Phase now = phase.load();
  if (now == Phase::kForked) {
    return Fail(orErrorForked,
                "%s: the device was used before this process was forked, and a child cannot use "
                "it; start processes with \"spawn\" or \"forkserver\"",
                function);
  }
  return now == Phase::kUnused ? FirstUse() : orSuccess;
}

orError_t EnterRelease(const char* function) {
  return !thread_state.in_kernel
             ? orSuccess
             : Fail(orErrorNotPermitted,
                    "%s was called inside a kernel or host callback, which must not "
                    "queue, wait, allocate or free; call it from another host "
                    "thread or after the kernel",
                    function);
}

orError_t EnterWork(const char* function) {
  if (!InForkedChild()) {
    RETURN_IF_ERROR(EnterRelease(function));
  }
  RETURN_IF_ERROR(EnterQuery(function));
  return phase.load() == Phase::kShutdown
             ? Fail(orErrorShutdown, "%s: the process is exiting", function)
             : orSuccess;
}

orError_t CheckDevice(const char* function, int device) {
  const Settings& settings = GetSettings();
  if (settings.error != orSuccess) {
    return Fail(settings.error, "%s", settings.detail);
  }
  if (device < 0 || device >= settings.device_count) {
    return Fail(orErrorInvalidDevice,
                "%s: device index %d is out of range: %d device%s (OPENREG_DEVICE_COUNT)", function,
                device, settings.device_count, settings.device_count == 1 ? "" : "s");
  }
  return orSuccess;
}

bool LaunchBlocking() {
  const int requested = requested_blocking.load();
  return requested == -1 ? GetSettings().launch_blocking : requested == 1;
}

extern "C" {

OPENREG_API orError_t orGetLastError(void) {
  const orError_t error = thread_state.last_error;
  thread_state.last_error = orSuccess;
  return error;
}

OPENREG_API orError_t orPeekAtLastError(void) { return thread_state.last_error; }

OPENREG_API const char* orGetLastErrorDetail(void) { return thread_state.detail; }

OPENREG_API orError_t orGetVersion(int* version) {
  RETURN_IF_NULL(version);
  *version = OPENREG_VERSION;
  return orSuccess;
}

OPENREG_API orError_t orInit(void) { return EnterQuery("orInit"); }

OPENREG_API orError_t orShutdown(void) {
  BEGIN_RELEASE();
  EndThreads();
  return orSuccess;
}

OPENREG_API orError_t orSetLaunchBlocking(int blocking) {
  if (blocking != 0 && blocking != 1) {
    return Fail(orErrorInvalidValue, "orSetLaunchBlocking: blocking is %d: expected 0 or 1",
                blocking);
  }
  requested_blocking.store(blocking);
  return orSuccess;
}

OPENREG_API orError_t orGetLaunchBlocking(int* blocking) {
  RETURN_IF_NULL(blocking);
  RETURN_IF_ERROR(CheckDevice(__func__, 0));
  *blocking = LaunchBlocking() ? 1 : 0;
  return orSuccess;
}

OPENREG_API orError_t orGetDeviceCount(int* count) {
  RETURN_IF_NULL(count);
  *count = 0;
  RETURN_IF_ERROR(CheckDevice(__func__, 0));
  *count = GetSettings().device_count;
  return orSuccess;
}

OPENREG_API orError_t orGetDevice(int* device) {
  RETURN_IF_NULL(device);
  if (InForkedChild()) {
    return EnterQuery(__func__);
  }
  *device = thread_state.device;
  return orSuccess;
}

OPENREG_API orError_t orSetDevice(int device) {
  if (InForkedChild()) {
    return EnterQuery(__func__);
  }
  RETURN_IF_ERROR(CheckDevice(__func__, device));
  thread_state.device = device;
  return orSuccess;
}

OPENREG_API orError_t orGetDeviceProperties(orDeviceProperties* properties, int device) {
  RETURN_IF_NULL(properties);
  RETURN_IF_ERROR(CheckDevice(__func__, device));
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "OpenReg minimal accelerator");
  properties->total_memory = GetSettings().device_memory;
  properties->allocation_granularity = kPage;
  properties->major = 1;
  properties->multi_processor_count = 1;  // each kernel runs on its stream's thread
  properties->max_threads_per_multi_processor = 1;
  properties->warp_size = 1;
  std::ifstream("/proc/sys/kernel/random/boot_id")
      .read(reinterpret_cast<char*>(properties->uuid), sizeof(properties->uuid) - 1);
  properties->uuid[15] = static_cast<uint8_t>(device);
  return orSuccess;
}

}  // extern "C"
}  // namespace openreg::minimal
