// SPDX-License-Identifier: BSD-3-Clause
//
// message_streams.h - chooses the streams on which the sends and receives of a group run.
//
// A message occupies its stream until its peer arrives. A message outside a batch therefore runs on
// a stream of its own peer and direction, where it does not block others. For example, ranks in a
// ring may all send before they receive. Messages with the same peer and direction keep the order
// of their calls, even relative to messages in batches, which run on a different stream. A receive
// from any rank keeps its order relative to all receives.
//
// Owned by a process group. Only one thread at a time may use it.
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
  // Identifies the messages that share a stream: they have the same device, direction and peer.
  struct Key {
    c10::DeviceIndex device;
    bool sends;
    int peer;  // the other rank; -1: any rank
    auto operator<=>(const Key&) const = default;
  };

  // Returns the stream for a message outside a batch, which is the same for each call with `key`.
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
