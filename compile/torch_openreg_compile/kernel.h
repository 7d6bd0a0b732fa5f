// SPDX-License-Identifier: BSD-3-Clause
//
// kernel.h - what C++ kernels that torch's compiler generated are made of, besides their loops. The
// standard library is all that it needs. Its text is part of generated code: in front of a kernel,
// and of what launches it from Python (kernel_launch.h) or from C++ (kernel_call.h).
//
// Arguments travel as bytes, copied at the launch; they hold no tensor (the order of the stream
// protects the memory). A kernel may run any number of times with the same bytes, as graphs replay
// it.
#ifndef TORCH_OPENREG_COMPILE_KERNEL_H_
#define TORCH_OPENREG_COMPILE_KERNEL_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <type_traits>
#include <utility>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace openreg_generated {

// What is known of a kernel when it is generated. Static storage.
struct KernelSite {
  const char* name;
  bool parallel;   // it has parallel regions
  bool pointwise;  // no number of its result depends on how many threads compute it
};

#ifdef _OPENMP
// Threads of a parallel region that was generated for `most`: as many as the kernel has.
inline int team(int most) { return std::min(most, omp_get_max_threads()); }
#endif

// The first exception of a kernel's loops, which must not leave a parallel region.
class Failure {
 public:
  void keep() noexcept {
    if (!kept_.exchange(true)) {
      exception_ = std::current_exception();
    }
  }
  // Outside of parallel regions, whose end orders this behind keep().
  void rethrow() const {
    if (exception_ != nullptr) {
      std::rethrow_exception(exception_);
    }
  }

 private:
  std::atomic<bool> kept_{false};
  std::exception_ptr exception_;
};

// The arguments of one launch: a word each. Bit i of `values`: words[i] is not the address of the
// elements but the element itself.
template <class... Parameters>
struct Arguments {
  static constexpr size_t kCount = sizeof...(Parameters);
  using Function = void (*)(Parameters...);

  Function function;
  std::array<uint64_t, kCount> words;
  std::array<uint64_t, kCount / 64 + 1> values;

  template <class T>
  void set(size_t index, T value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
    std::memcpy(&words[index], &value, sizeof(value));
  }
  void set_is_value(size_t index) { values[index / 64] |= uint64_t{1} << index % 64; }

  template <class T>
  T get(size_t index) {
    uint64_t& word = words[index];
    if constexpr (std::is_pointer_v<T>) {
      if ((values[index / 64] >> index % 64 & 1) != 0) {
        return reinterpret_cast<T>(&word);
      }
    }
    T value;
    std::memcpy(&value, &word, sizeof(value));
    return value;
  }

  template <size_t... kIndices>
  void call(std::index_sequence<kIndices...>) {
    function(get<Parameters>(kIndices)...);
  }

  static void run(void* arguments) {
    static_cast<Arguments*>(arguments)->call(std::index_sequence_for<Parameters...>());
  }
};

}  // namespace openreg_generated

#endif  // TORCH_OPENREG_COMPILE_KERNEL_H_
