// SPDX-License-Identifier: BSD-3-Clause
//
// work.h - a piece of work for a stream: a kernel, a copy, a fill or a host function. It becomes a
// command of the stream or, during a capture, a node of a graph. It is a plain value that refers to
// the caller's arguments.
#ifndef RUNTIME_DEVICE_WORK_H_
#define RUNTIME_DEVICE_WORK_H_

#include <cstddef>
#include <cstdint>

#include "runtime/device/activity.h"
#include "runtime/device/openreg_emulation.h"
#include "runtime/device/stream.h"

namespace openreg::device {

struct Work {
  Work(Command::Kind kind, Command::Place place) : kind(kind), place(place) {}

  Command::Kind kind;
  Command::Place place;
  bool may_inline = false;     // may run on the launching thread if the stream is idle
  bool synchronous = false;    // whether a copy must be done when the call returns
  uint32_t work_ns = 0;        // estimated time on one thread, for work that may have a team
  const char* name = nullptr;  // must have static storage
  union {
    orKernelFunction_t kernel = nullptr;
    orHostFn_t function;
  };
  union {
    const void* arguments = nullptr;
    void* data;  // the function's argument
  };
  size_t size = 0;  // size of the arguments in bytes

  // For captures. `repeatable` describes how a graph runs a kernel that consumes its arguments (see
  // orRepeatable). `refused_because` is the reason why the work cannot be captured. The reason
  // completes the sentence "orX: stream S is being captured, ".
  const orRepeatable* repeatable = nullptr;
  const char* refused_because = nullptr;

  // For activity records: the description of a copy or fill.
  const orCopyDescription* copy = nullptr;

  bool MayHaveTeam() const { return place == Command::kOnExecutor || place == Command::kMoldable; }
};

// Adds the kind and the description of the work to an activity record.
inline void DescribeWork(Command::Kind kind, const char* name, const orCopyDescription* copy,
                         orActivity* record) {
  if (kind == Command::kHostFunction) {
    record->kind = orActivityHostFunction;
    record->name = "(host function)";
    return;
  }
  record->name = InternName(name);
  if (copy == nullptr) {
    record->kind = orActivityKernel;
    return;
  }
  record->kind = copy->kind == orMemcpyDefault ? orActivityMemset : orActivityMemcpy;
  record->bytes = copy->bytes;
  record->copy = copy->kind;
  record->source = copy->source;
  record->destination = copy->destination;
}

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_WORK_H_
