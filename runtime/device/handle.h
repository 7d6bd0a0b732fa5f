// SPDX-License-Identifier: BSD-3-Clause
//
// handle.h - tables of objects that are named by handles.
//
// A handle is a number: generation, index into the table, and a tag which tells the tables apart.
// An object keeps the handle by which it is known now, so that checking one is a load and a
// compare. Objects are recycled, and freed only with their table, which for streams and events is
// never: looking at a stale handle touches no freed memory, and a made-up one finds no object.
//
// T derives from HandleSlot. Find may be called from every thread at any time; the other functions
// lock.
#ifndef RUNTIME_DEVICE_HANDLE_H_
#define RUNTIME_DEVICE_HANDLE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace openreg::device {

struct HandleSlot {
  std::atomic<uint64_t> handle{0};  // 0: not found by any handle
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

  // Objects 0 .. size()-1 exist; each was in use at some time.
  T* At(uint32_t index) const {
    return &chunks_[index / kChunk].load(std::memory_order_acquire)[index % kChunk];
  }
  uint32_t size() const { return size_.load(std::memory_order_acquire); }

  // An object that no other caller has, not yet found by a handle; null when the table or the
  // memory is full.
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

  // Makes the object known by a new handle.
  uint64_t Publish(T* object) {
    const uint64_t handle = (++object->generation << (kIndexBits + kTagBits)) |
                            (uint64_t{object->index} << kTagBits) | kTag;
    object->handle.store(handle, std::memory_order_release);
    return handle;
  }

  // No handle finds the object any more. False if another thread was faster.
  bool Retire(T* object, uint64_t handle) {
    return object->handle.compare_exchange_strong(handle, 0, std::memory_order_seq_cst);
  }

  // Gives a retired object back.
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
