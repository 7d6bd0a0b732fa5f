// SPDX-License-Identifier: BSD-3-Clause
//
// message_streams.h - selects the streams for the sends and receives of a group.
//
// A message occupies its stream until its peer arrives. Therefore each combination of peer and
// direction has a stream for messages outside a batch, where a message does not block messages of
// other peers. For example, all ranks of a ring may send before they receive. Messages with the
// same peer and direction keep the order of their calls, even relative to messages in batches,
// which run on a different stream. A receive from any rank keeps its order relative to all
// receives.
//
// A process group owns the object. Only one thread at a time may use it.
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
  // Identifies the messages that share a stream, because they have the same device, direction and
  // peer.
  struct Key {
    c10::DeviceIndex device;
    bool sends;
    int peer;  // the other rank, or -1 for any rank
    auto operator<=>(const Key&) const = default;
  };

  // Returns the stream for a message outside a batch. It is the same for each call with this key.
  c10::Stream stream(const Key& key, int priority);
  // Makes `stream` wait for those earlier messages that must run before messages with these keys.
  void follow(const std::vector<Key>& keys, const c10::Stream& stream);
  // Records that messages with these keys were enqueued on `stream` and end at `events`.
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
