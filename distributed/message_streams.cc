// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/message_streams.h"

#include "distributed/occl/occl.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

// Returns whether message `key` must run after the earlier message `before`.
bool keeps_order(const MessageStreams::Key& key, const MessageStreams::Key& before) {
  return key.device == before.device && key.sends == before.sends &&
         (key.peer == before.peer || key.peer == occlAnyRank || before.peer == occlAnyRank);
}

}  // namespace

c10::Stream MessageStreams::stream(const Key& key, int priority) {
  const auto found = streams_.find(key);
  return found != streams_.end()
             ? found->second
             : streams_.emplace(key, pooled_stream(key.device, priority)).first->second;
}

void MessageStreams::follow(const std::vector<Key>& keys, const c10::Stream& stream) {
  for (const auto& [before, last] : last_) {
    for (const Key& key : keys) {
      if (last.stream != stream && keeps_order(key, before)) {
        last.events->end.block(stream);
        break;
      }
    }
  }
}

void MessageStreams::record(const std::vector<Key>& keys, const c10::Stream& stream,
                            const std::shared_ptr<OperationEvents>& events) {
  for (const Key& key : keys) {
    last_.insert_or_assign(key, Last{stream, events});
  }
}

}  // namespace openreg
