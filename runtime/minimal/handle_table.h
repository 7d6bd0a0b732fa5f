// SPDX-License-Identifier: BSD-3-Clause
//
// handle_table.h - a table of objects that are identified by handles of one kind.
//
// A handle is a number that is never reused, so a stale handle identifies no object. Its upper bits
// identify the kind and make it different from every address. Any thread may call these functions.
#ifndef RUNTIME_MINIMAL_HANDLE_TABLE_H_
#define RUNTIME_MINIMAL_HANDLE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace openreg::minimal {

template <class Object, class Handle, uint64_t kKind>
class HandleTable {
 public:
  // Adds the object and returns its handle. Returns null if the table already contains `limit`
  // objects.
  Handle Add(std::shared_ptr<Object> object, size_t limit) {
    const std::lock_guard lock(mutex_);
    if (objects_.size() >= limit) {
      return nullptr;
    }
    objects_[++last_] = std::move(object);
    return reinterpret_cast<Handle>(last_);
  }
  std::shared_ptr<Object> Find(Handle handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<uint64_t>(handle));
    return found != objects_.end() ? found->second : nullptr;
  }
  std::shared_ptr<Object> Remove(Handle handle) {
    const std::lock_guard lock(mutex_);
    auto node = objects_.extract(reinterpret_cast<uint64_t>(handle));
    return node ? std::move(node.mapped()) : nullptr;
  }
  std::vector<std::pair<Handle, std::shared_ptr<Object>>> All() {
    const std::lock_guard lock(mutex_);
    std::vector<std::pair<Handle, std::shared_ptr<Object>>> all;
    for (const auto& [number, object] : objects_) {
      all.emplace_back(reinterpret_cast<Handle>(number), object);
    }
    return all;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Object>> objects_;
  uint64_t last_ = kKind << 48;
};

}  // namespace openreg::minimal

#endif  // RUNTIME_MINIMAL_HANDLE_TABLE_H_
