// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/environment.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <mutex>
#include <string>

#include "runtime/device/arena.h"
#include "runtime/device/error.h"

namespace openreg::device {
namespace {

// Returns the first number in a control group file. Returns the maximum value if the file does not
// exist or contains "max".
size_t ReadLimit(const std::string& path) {
  std::ifstream file(path);
  size_t limit = 0;
  if (file >> limit) {
    return limit;
  }
  return std::numeric_limits<size_t>::max();
}

// Returns the lowest limit of a group and its parents. In a container, the path that the operating
// system reports may lie outside the mounted hierarchy. In that case, only the limit at the root of
// the hierarchy is found; the root is the container's own group.
size_t GroupLimit(const std::string& mount, std::string group, const char* file) {
  size_t limit = std::numeric_limits<size_t>::max();
  for (;;) {
    limit = std::min(limit, ReadLimit(mount + group + "/" + file));
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) {
      return limit;
    }
    group.resize(slash);
  }
}

Environment Read() {
  Environment result{};
  auto refuse = [&](const char* name, const char* value, const char* expected) {
    result.error = orErrorInvalidValue;
    std::snprintf(result.detail, sizeof(result.detail), "%s is \"%.64s\": expected %s", name, value,
                  expected);
  };

  result.device_count = 2;
  if (const char* value = std::getenv("OPENREG_DEVICE_COUNT"); value != nullptr && *value != '\0') {
    const std::string_view text(value);
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), result.device_count);
    if (error != std::errc() || end != text.data() + text.size() || result.device_count < 1 ||
        result.device_count > OPENREG_MAX_DEVICES) {
      refuse("OPENREG_DEVICE_COUNT", value, "a number from 1 to 16");
      return result;
    }
  }
  static_assert(OPENREG_MAX_DEVICES == 16, "the message above contains the number");

  if (const char* value = std::getenv("OPENREG_DEVICE_MEMORY");
      value != nullptr && *value != '\0') {
    if (!ParseBytes(value, &result.device_memory) || result.device_memory > kMaxDeviceMemory) {
      refuse("OPENREG_DEVICE_MEMORY", value,
             "a number of bytes per device, at most 1T, with an optional suffix K, M, G or T");
      return result;
    }
    result.device_memory = RoundUp(result.device_memory, kLargePage);
  } else {
    const size_t share = MemoryLimit() / 2 / static_cast<size_t>(result.device_count);
    result.device_memory =
        std::clamp(share / kLargePage * kLargePage, 16 * kLargePage, kMaxDeviceMemory);
  }

  if (const char* value = std::getenv("OPENREG_LAUNCH_BLOCKING");
      value != nullptr && *value != '\0') {
    const std::string_view text(value);
    if (text != "0" && text != "1") {
      refuse("OPENREG_LAUNCH_BLOCKING", value, "0 or 1");
      return result;
    }
    result.launch_blocking = text == "1";
  }
  return result;
}

}  // namespace

bool ParseBytes(std::string_view text, size_t* bytes) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number == 0) {
    return false;
  }
  int shift = 0;
  const std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
  if (suffix.size() > 1) {
    return false;
  }
  if (suffix.size() == 1) {
    constexpr std::string_view kSuffixes = "KMGT";
    // Convert to upper case.
    const size_t power = kSuffixes.find(static_cast<char>(suffix[0] & ~0x20));
    if (power == std::string_view::npos) {
      return false;
    }
    shift = 10 * (static_cast<int>(power) + 1);
  }
  if (number > std::numeric_limits<size_t>::max() >> shift) {
    return false;
  }
  *bytes = number << shift;
  return true;
}

size_t MemoryLimit() {
  size_t limit =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::ifstream groups("/proc/self/cgroup");
  // Lines are "number:controllers:path". A line with number 0 and no controllers is for version 2.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos) {
      limit = std::min(limit, GroupLimit("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes"));
    } else if (controllers == ",,") {
      limit = std::min(limit, GroupLimit("/sys/fs/cgroup", path, "memory.max"));
    }
  }
  return limit;
}

std::mutex& EnvironmentMutex() {
  // Never destroyed, because a thread may call this at exit.
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

orError_t GetEnvironment(const Environment** environment) {
  static constinit std::atomic<const Environment*> read{nullptr};
  const Environment* found = read.load(std::memory_order_acquire);
  if (found == nullptr) [[unlikely]] {
    const std::lock_guard lock(EnvironmentMutex());
    found = read.load(std::memory_order_relaxed);
    if (found == nullptr) {
      static Environment kept;
      kept = Read();
      found = &kept;
      read.store(found, std::memory_order_release);
    }
  }
  if (found->error != orSuccess) {
    return Fail(found->error, "%s", found->detail);
  }
  *environment = found;
  return orSuccess;
}

orError_t CheckDevice(const char* function, int device) {
  const Environment* environment;
  if (const orError_t error = GetEnvironment(&environment); error != orSuccess) {
    return error;
  }
  if (device < 0 || device >= environment->device_count) {
    return Fail(orErrorInvalidDevice,
                "%s: device index %d is out of range: %d device%s (OPENREG_DEVICE_COUNT)", function,
                device, environment->device_count, environment->device_count == 1 ? "" : "s");
  }
  return orSuccess;
}

}  // namespace openreg::device
