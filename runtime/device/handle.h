// SPDX-License-Identifier: BSD-3-Clause
//
// handle.h - tables of objects that are identified by handles.
//
// A handle is a number that consists of a generation, an index into the table, and a tag that
// distinguishes the tables. Each object stores its current handle, so a check of a handle is a load
// and a comparison. Objects are reused, and are freed only together with their table. The stream
// and event tables are never freed. A lookup of a stale handle therefore accesses no freed memory,
// and a forged handle finds no object.
//
// T must derive from HandleSlot. Any thread may call any function. Find needs no lock; the other
// functions lock a mutex.
#ifndef RUNTIME_DEVICE_HANDLE_H_
#define RUNTIME_DEVICE_HANDLE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "runtime/device/error.h"

namespace openreg::device {

struct HandleSlot {
  std::atomic<uint64_t> handle{0};  // 0 if the object has no valid handle
  uint32_t index = 0;
  uint64_t generation = 0;
};

template <class T, unsigned kIndexBits, uint64_t kTag>
class HandleTable {
 public:
  static constexpr uint32_t kCapacity = uint32_t{1} << kIndexBits;

  HandleTable() = default;
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;
  ~HandleTable() {
    for (std::atomic<T*>& chunk : chunks_) {
      delete[] chunk.load(std::memory_order_relaxed);
    }
  }

  T* Find(uint64_t handle) const {
    const uint64_t index = (handle >> kTagBits) & (kCapacity - 1);
    T* chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
    if (chunk == nullptr) [[unlikely]] {
      return nullptr;
    }
    T* object = &chunk[index % kChunk];
    return handle != 0 && object->handle.load(std::memory_order_acquire) == handle ? object
                                                                                   : nullptr;
  }

  // Returns the object with this index. Objects 0 to size()-1 exist, and each of them has been in
  // use at least once.
  T* At(uint32_t index) const {
    return &chunks_[index / kChunk].load(std::memory_order_acquire)[index % kChunk];
  }
  uint32_t size() const { return size_.load(std::memory_order_acquire); }

  // Returns an object without a user and without a handle. Returns null if the table is full or
  // host memory is exhausted.
  T* Take() {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const uint32_t index = free_.back();
      free_.pop_back();
      return At(index);
    }
    const uint32_t index = size_.load(std::memory_order_relaxed);
    if (index == kCapacity) {
      return nullptr;
    }
    std::atomic<T*>& chunk = chunks_[index / kChunk];
    if (chunk.load(std::memory_order_relaxed) == nullptr) {
      T* objects = new (std::nothrow) T[kChunk];  // freed with the table
      if (objects == nullptr) {
        return nullptr;
      }
      chunk.store(objects, std::memory_order_release);
    }
    T* object = At(index);
    object->index = index;
    size_.store(index + 1, std::memory_order_release);
    return object;
  }

  // Called if Take() has returned null. Sets this thread's last error to orErrorSystem with the
  // reason, and returns it. The arguments name the objects, for example "an event" and "events".
  orError_t FailTake(const char* object, const char* objects) const {
    if (size() == kCapacity) {
      return Fail(orErrorSystem,
                  "cannot create %s: the limit of %u %s has been reached; destroy %s that are no "
                  "longer needed",
                  object, kCapacity, objects, objects);
    }
    return Fail(orErrorSystem, "cannot create %s: out of host memory", object);
  }

  // Assigns a new handle to the object and returns this handle.
  uint64_t Publish(T* object) {
    const uint64_t handle = (++object->generation << (kIndexBits + kTagBits)) |
                            (uint64_t{object->index} << kTagBits) | kTag;
    object->handle.store(handle, std::memory_order_release);
    return handle;
  }

  // Invalidates the object's handle. Returns false if another thread has already done so.
  bool Retire(T* object, uint64_t handle) {
    return object->handle.compare_exchange_strong(handle, 0, std::memory_order_seq_cst);
  }

  // Returns a retired object to the table for reuse.
  void Recycle(T* object) {
    std::lock_guard lock(mutex_);
    free_.push_back(object->index);
  }

 private:
  static constexpr unsigned kTagBits = 2;
  static_assert(kTag != 0 && kTag < (1 << kTagBits), "a pointer has tag 0");
  static constexpr uint32_t kChunk = uint32_t{1} << (kIndexBits / 2);

  std::atomic<T*> chunks_[kCapacity / kChunk] = {};
  std::atomic<uint32_t> size_{0};
  std::mutex mutex_;
  std::vector<uint32_t> free_;
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_HANDLE_H_
