// SPDX-License-Identifier: BSD-3-Clause
//
// flight_recorder.h - the last operations of all process groups of this process, for the analysis
// of a hang: torch's flight recorder over our events, in the format that
// torch.distributed.flight_recorder.fr_trace reads.
//
// TORCH_FR_BUFFER_SIZE operations are kept (2000; 0: none). One recorder a process, never
// destroyed. Threads: any.
#ifndef DISTRIBUTED_FLIGHT_RECORDER_H_
#define DISTRIBUTED_FLIGHT_RECORDER_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/device/openreg.h"

namespace c10d {
struct ProcessGroupStatus;
}

namespace openreg {

// Where an operation begins and ends on its stream, and what it writes at its end. Kept by its
// group until it has passed, and by its Work.
struct OperationEvents {
  std::optional<c10::Event> start;
  c10::Event end;
  int source = -1;  // the rank that was received from

  // False where it cannot be told: of a captured operation, or after an error of its stream.
  bool passed() const;
};

// What the recorder is told of a group.
struct RecordedGroup {
  size_t id;  // in this process
  std::string name;
  std::string description;
  std::shared_ptr<c10d::ProcessGroupStatus> status;
};

struct RecordedOperation {
  std::string name;  // "all_reduce", "send 0->1"
  bool point_to_point;
  uint64_t sequence;  // of the group's collectives, or of its point-to-point operations
  uint64_t number;    // of all operations of the group
  std::optional<size_t> id = std::nullopt;  // of its record: none if nothing is recorded
};

// A group of ranks is about to run operations.
RecordedGroup record_group(const std::string& name, const std::string& description,
                           const std::vector<uint64_t>& ranks);
// Sets the operation's id. `events` lives until retire_operation.
void record_operation(const RecordedGroup& group, RecordedOperation& operation,
                      const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
                      OperationEvents& events, std::chrono::milliseconds timeout);
// `passed`: it has run to its end.
void retire_operation(const RecordedGroup& group, const RecordedOperation& operation, bool passed,
                      bool timed);

// Pickled: a dict with "entries", "pg_config", "pg_status", "version".
OPENREG_API std::string dump_flight_recorder(bool stacks, bool only_active);
// Once a process, if TORCH_FR_DUMP_ON_TIMEOUT is set: to TORCH_FR_DUMP_TEMP_FILE followed by the
// rank. For whoever finds that a communicator is over: a call, a wait, or the end of the group.
void dump_flight_recorder_after_failure(int rank);

}  // namespace openreg

#endif  // DISTRIBUTED_FLIGHT_RECORDER_H_
