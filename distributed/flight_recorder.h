// SPDX-License-Identifier: BSD-3-Clause
//
// flight_recorder.h - records the most recent operations of all process groups in this process, to
// help analyze a hang. It uses torch's flight recorder with our events. The dump has the format
// that torch.distributed.flight_recorder.fr_trace reads.
//
// The recorder keeps the last TORCH_FR_BUFFER_SIZE operations (default 2000; 0 disables it). Each
// process has one recorder, which is never destroyed. Any thread may call these functions.
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

// The events that are recorded on the stream before and after an operation, and its results other
// than tensors. The group keeps the object alive until the operation has finished; the Work shares
// ownership.
struct OperationEvents {
  std::optional<c10::Event> start;
  c10::Event end;
  int source = -1;  // the sender's rank, if the operation received a message

  // Returns whether the operation is known to have finished. This is unknown if the operation was
  // captured or its stream has failed.
  bool passed() const;
};

// The names and the status under which the recorder stores a group's operations.
struct RecordedGroup {
  size_t id;  // identifies the group in this process
  std::string name;
  std::string description;
  std::shared_ptr<c10d::ProcessGroupStatus> status;
};

// An operation as the recorder stores it.
struct RecordedOperation {
  std::string name;  // for example "all_reduce" or "send 0->1"
  bool point_to_point;
  uint64_t sequence;                        // index among the group's collectives or messages
  uint64_t number;                          // index among all of the group's operations
  std::optional<size_t> id = std::nullopt;  // the id of the record, if there is one
};

// Registers a group and its ranks with the recorder. Must be called before the group's first
// operation.
RecordedGroup record_group(const std::string& name, const std::string& description,
                           const std::vector<uint64_t>& ranks);
// Adds a record of the operation to the buffer and stores the record's id in `operation`. The
// record refers to `events`, which must live until retire_operation().
void record_operation(const RecordedGroup& group, RecordedOperation& operation,
                      const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
                      OperationEvents& events, std::chrono::milliseconds timeout);
// Detaches the record from the events. `passed` specifies whether the operation has finished, and
// `timed` whether to store its duration.
void retire_operation(const RecordedGroup& group, const RecordedOperation& operation, bool passed,
                      bool timed);

// Returns a pickled dict with "entries", "pg_config", "pg_status" and "version".
OPENREG_API std::string dump_flight_recorder(bool stacks, bool only_active);
// Called by a collective, a wait or the group's destructor when a communicator has failed. Writes a
// dump to the file whose name is TORCH_FR_DUMP_TEMP_FILE followed by the rank. Does so only once
// per process, and only if TORCH_FR_DUMP_ON_TIMEOUT is set.
void dump_flight_recorder_after_failure(int rank);

}  // namespace openreg

#endif  // DISTRIBUTED_FLIGHT_RECORDER_H_
