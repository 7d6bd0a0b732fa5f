// SPDX-License-Identifier: BSD-3-Clause
//
// message_streams.h - on which streams the sends and receives of a group run.
//
// A message occupies its stream until its peer has come. Outside of a batch it therefore runs on a
// stream of its peer and direction, and holds up no other: ranks may send in a ring before they
// receive. Messages of one peer and direction keep the order of their calls, also with those of
// batches, which are on another stream; a receive from any rank keeps it with all receives.
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

  // The stream of a message outside of a batch.
  c10::Stream stream(const Key& key, int priority);
  // Has `stream` wait for the messages before.
  void follow(const std::vector<Key>& keys, const c10::Stream& stream);
  // The messages are enqueued on `stream`, up to the end of `events`.
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
