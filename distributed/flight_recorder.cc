// SPDX-License-Identifier: BSD-3-Clause
// torch's header needs the library fmt, and libtorch does not export its copy. Therefore compile
// fmt into this file.
#define FMT_HEADER_ONLY
#include "distributed/flight_recorder.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <mutex>
#include <torch/csrc/distributed/c10d/FlightRecorderDetail.hpp>
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <utility>

namespace c10d {

template <>
float getDurationFromEvent<c10::Event>(c10::Event& start, c10::Event& end) {
  return static_cast<float>(start.elapsedTime(end));
}

}  // namespace c10d

namespace openreg {
namespace {

// torch's recorder template, instantiated for our events. Gloo's operations are in a separate
// recorder.
using Recorder = c10d::FlightRecorder<c10::Event>;

// Held while events are read or detached. A dump reads events without holding the recorder's own
// lock, so this mutex prevents their destruction during the dump.
std::mutex events_mutex;

}  // namespace

bool OperationEvents::passed() const {
  try {
    return end.query();
  } catch (const c10::Error&) {
    return false;
  }
}

RecordedGroup record_group(const std::string& name, const std::string& description,
                           const std::vector<uint64_t>& ranks) {
  static std::atomic<size_t> groups{0};
  Recorder::get()->record_pg_ranks({name, description}, ranks);
  return {groups.fetch_add(1), name, description, std::make_shared<c10d::ProcessGroupStatus>()};
}

void record_operation(const RecordedGroup& group, RecordedOperation& operation,
                      const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
                      OperationEvents& events, std::chrono::milliseconds timeout) {
  if (!operation.point_to_point) {
    group.status->lastEnqueuedSeq = static_cast<int64_t>(operation.sequence);
    group.status->lastEnqueuedWorkName = operation.name;
  }
  // Use "nccl:" because torch's analysis accepts only the names of known backends, and "occl" is
  // not one of them (torch's flight_recorder/components/types.py, Op).
  operation.id = Recorder::get()->record(
      group.id, {group.name, group.description}, operation.point_to_point ? 0 : operation.sequence,
      operation.point_to_point ? operation.sequence : 0, operation.number, "nccl:" + operation.name,
      inputs, outputs, events.start.has_value() ? &*events.start : nullptr, &events.end, timeout,
      group.status, operation.point_to_point);
}

void retire_operation(const RecordedGroup& group, const RecordedOperation& operation, bool passed,
                      bool timed) {
  const std::lock_guard lock(events_mutex);
  Recorder::get()->retire_id(operation.id, /*compute_duration=*/timed);
  if (passed && !operation.point_to_point) {
    const auto sequence = static_cast<int64_t>(operation.sequence);
    if (sequence > group.status->lastCompletedSeq) {
      group.status->lastCompletedSeq = sequence;
      group.status->lastCompletedWorkName = operation.name;
    }
  }
}

std::string dump_flight_recorder(bool stacks, bool only_active) {
  const std::lock_guard lock(events_mutex);
  return Recorder::get()->dump(std::nullopt, /*includeCollectives=*/true, stacks, only_active);
}

void dump_flight_recorder_after_failure(int rank) {
  static std::atomic<bool> done{false};
  if (!c10d::getCvarBool({"TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT"}, false) ||
      done.exchange(true)) {
    return;
  }
  // Omit the Python stacks: reading them needs the GIL, which a waiting thread may hold.
  c10d::DebugInfoWriter::getWriter(rank).write(dump_flight_recorder(false, false));
}

}  // namespace openreg
