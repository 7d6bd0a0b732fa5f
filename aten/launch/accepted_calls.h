// SPDX-License-Identifier: BSD-3-Clause
//
// Records the kinds of calls whose kernels have run without an argument error.
//
// A CPU kernel rejects a dtype or an out-of-range scalar only when it runs, but the call itself
// must throw the error. Therefore launch() waits for the first kernel of an operator with a new
// kind of arguments. If the kernel throws, launch() rethrows the exception; otherwise it adds the
// kind to this table. Later calls of the same kind do not wait.
//
// The table is process-wide and has a fixed size. If it is full, a new kind replaces another one,
// and the next call of the replaced kind is checked again. Any thread may call the functions, which
// are lock-free. Two threads may check the same kind at the same time.
#ifndef ATEN_LAUNCH_ACCEPTED_CALLS_H_
#define ATEN_LAUNCH_ACCEPTED_CALLS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace openreg {

class AcceptedCalls {
 public:
  // Returns whether the table contains a kind of call. `key` is a hash of the operator and the kind
  // of its arguments; it must not be 0.
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
