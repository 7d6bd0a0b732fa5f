// SPDX-License-Identifier: BSD-3-Clause
//
// The kinds of calls whose kernels have run without an error of their arguments.
//
// A CPU kernel refuses a dtype, or a scalar that is out of range, when it runs, while such an error
// belongs to the call. So launch() waits for the first kernel of an operator with arguments of a
// new kind, throws what it throws, and adds the kind here; later calls of the kind do not wait.
//
// A fixed table for the process. Where it is full, a new kind replaces another one, which is then
// checked again. Threads: any, without a lock. Two threads may both check one kind.
#ifndef ATEN_LAUNCH_ACCEPTED_CALLS_H_
#define ATEN_LAUNCH_ACCEPTED_CALLS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace openreg {

class AcceptedCalls {
 public:
  // `key` is a hash of the operator and the kind of its arguments; not 0.
  bool contains(uint64_t key) const {
    for (size_t i = 0; i < kProbes; ++i) {
      const uint64_t known = keys_[(key + i) % kCapacity].load(std::memory_order_relaxed);
      if (known == key) {
        return true;
      }
      if (known == 0) {
        return false;
      }
    }
    return false;
  }

  void add(uint64_t key) {
    for (size_t i = 0; i < kProbes; ++i) {
      uint64_t known = 0;
      if (keys_[(key + i) % kCapacity].compare_exchange_strong(known, key,
                                                               std::memory_order_relaxed) ||
          known == key) {
        return;
      }
    }
    keys_[key % kCapacity].store(key, std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kCapacity = 8192;
  static constexpr size_t kProbes = 8;

  std::array<std::atomic<uint64_t>, kCapacity> keys_{};
};

}  // namespace openreg

#endif  // ATEN_LAUNCH_ACCEPTED_CALLS_H_
