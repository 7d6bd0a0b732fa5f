// SPDX-License-Identifier: BSD-3-Clause
//
// flight_recorder.h - records the most recent operations of all process groups in this process, to
// help analyze a hang. It is torch's flight recorder over our events, in the format that
// torch.distributed.flight_recorder.fr_trace reads.
//
// It keeps TORCH_FR_BUFFER_SIZE operations (default 2000; 0 disables it). There is one recorder per
// process, which is never destroyed. Any thread may call these functions.
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

// The events recorded on the stream before and after an operation, and its results other than
// tensors. The group keeps the object alive until the operation has finished; the Work shares
// ownership.
struct OperationEvents {
  std::optional<c10::Event> start;
  c10::Event end;
  int source = -1;  // the sender's rank, if the operation received a message

  // Returns whether the operation has finished. Returns false if this is unknown, because the
  // operation was captured or its stream has failed.
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
  std::string name;  // "all_reduce", "send 0->1"
  bool point_to_point;
  uint64_t sequence;                        // index among the group's collectives or messages
  uint64_t number;                          // index among all of the group's operations
  std::optional<size_t> id = std::nullopt;  // the id of its record, if it was recorded
};

// Registers a group and its ranks with the recorder. Call it before the group's first operation.
RecordedGroup record_group(const std::string& name, const std::string& description,
                           const std::vector<uint64_t>& ranks);
// Adds a record of the operation to the buffer and stores the record's id in `operation`. The
// record points to `events`, which must therefore live until retire_operation().
void record_operation(const RecordedGroup& group, RecordedOperation& operation,
                      const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
                      OperationEvents& events, std::chrono::milliseconds timeout);
// Detaches the record from the events. `passed` says whether the operation has finished, and
// `timed` whether to store its duration.
void retire_operation(const RecordedGroup& group, const RecordedOperation& operation, bool passed,
                      bool timed);

// Returns a pickled dict with "entries", "pg_config", "pg_status" and "version".
OPENREG_API std::string dump_flight_recorder(bool stacks, bool only_active);
// Writes a dump to the file named by TORCH_FR_DUMP_TEMP_FILE followed by the rank. Does so only
// once per process, and only if TORCH_FR_DUMP_ON_TIMEOUT is set. The caller has found that a
// communicator has failed; it is a collective, a wait, or the group's destructor.
void dump_flight_recorder_after_failure(int rank);

}  // namespace openreg

#endif  // DISTRIBUTED_FLIGHT_RECORDER_H_
