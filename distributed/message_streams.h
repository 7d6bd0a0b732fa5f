// SPDX-License-Identifier: BSD-3-Clause
//
// message_streams.h - chooses the streams on which the sends and receives of a group run.
//
// A message occupies its stream until its peer arrives. Outside of a batch it therefore runs on a
// stream for its peer and direction and does not block others: ranks may send in a ring before they
// receive. Messages of one peer and direction keep the order of their calls, even with messages in
// batches, which are on another stream. A receive from any rank keeps the order with all receives.
//
// Owned by a process group. Threads: one at a time.
#ifndef DISTRIBUTED_MESSAGE_STREAMS_H_
#define DISTRIBUTED_MESSAGE_STREAMS_H_

#include <c10/core/Stream.h>

#include <compare>
#include <map>
#include <memory>
#include <vector>

#include "distributed/flight_recorder.h"

namespace openreg {

class MessageStreams {
 public:
  struct Key {
    c10::DeviceIndex device;
    bool sends;
    int peer;  // -1: any rank
    auto operator<=>(const Key&) const = default;
  };

  // Returns the stream of a message outside of a batch.
  c10::Stream stream(const Key& key, int priority);
  // Makes `stream` wait for the earlier messages that these messages must follow.
  void follow(const std::vector<Key>& keys, const c10::Stream& stream);
  // Records that the messages were enqueued on `stream` and end with `events`.
  void record(const std::vector<Key>& keys, const c10::Stream& stream,
              const std::shared_ptr<OperationEvents>& events);

 private:
  struct Last {
    c10::Stream stream;
    std::shared_ptr<OperationEvents> events;
  };

  std::map<Key, c10::Stream> streams_;
  std::map<Key, Last> last_;
};

}  // namespace openreg

#endif  // DISTRIBUTED_MESSAGE_STREAMS_H_
