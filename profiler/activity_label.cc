// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/activity_label.h"

namespace openreg {
namespace {

std::string memory_label(orMemoryType type) {
  switch (type) {
    case orMemoryTypeDevice:
      return "Device";
    case orMemoryTypeHost:
      return "Pinned";
    case orMemoryTypeUnmanaged:
      return "Pageable";
  }
  return "Unknown";
}

std::string direction_label(orMemcpyKind kind) {
  switch (kind) {
    case orMemcpyHostToHost:
      return "HtoH";
    case orMemcpyHostToDevice:
      return "HtoD";
    case orMemcpyDeviceToHost:
      return "DtoH";
    case orMemcpyDeviceToDevice:
      return "DtoD";
    case orMemcpyDefault:
      break;
  }
  return "Unknown";
}

}  // namespace

std::string activity_label(const orActivity& activity) {
  switch (activity.kind) {
    case orActivityMemcpy:
      return "Memcpy " + direction_label(activity.copy) + " (" + memory_label(activity.source) +
             " -> " + memory_label(activity.destination) + ")";
    case orActivityMemset:
      return "Memset (" + memory_label(activity.destination) + ")";
    case orActivityRuntime:
    case orActivityKernel:
    case orActivityHostFunction:
      break;
  }
  return activity.name != nullptr ? activity.name : "(unnamed kernel)";
}

}  // namespace openreg
