// SPDX-License-Identifier: BSD-3-Clause
//
// kernel.h - all parts of generated C++ kernels except their loops. The file needs only the
// standard library. Generated code contains the text of this file before each kernel, and before
// the code that launches the kernel from Python (kernel_launch.h) or from C++ (kernel_call.h).
//
// Arguments are passed as bytes, which the launch copies. They contain no references to tensors,
// because stream order protects the memory. A kernel may run any number of times with the same
// bytes, because graphs replay it.
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

// The properties of a kernel that are known when it is generated. A KernelSite is in static
// storage.
struct KernelSite {
  const char* name;
  bool parallel;   // whether the kernel has parallel regions
  bool pointwise;  // whether the result is independent of the number of threads
};

#ifdef _OPENMP
// Returns the number of threads for a parallel region that was generated for `most` threads. It is
// limited by the number of threads that the kernel may use.
inline int team(int most) { return std::min(most, omp_get_max_threads()); }
#endif

// Stores the first exception of a kernel's loops, because exceptions must not leave a parallel
// region.
class Failure {
 public:
  // Stores the current exception unless another one is already stored. Called in a catch clause.
  void keep() noexcept {
    if (!kept_.exchange(true)) {
      exception_ = std::current_exception();
    }
  }
  // Rethrows the stored exception, if any. Must be called outside of parallel regions, because the
  // end of a region synchronizes this function with keep().
  void rethrow() const {
    if (exception_ != nullptr) {
      std::rethrow_exception(exception_);
    }
  }

 private:
  std::atomic<bool> kept_{false};
  std::exception_ptr exception_;
};

// The arguments of one launch, with one word per argument. If bit i of `values` is set, words[i]
// contains the element itself; otherwise it contains the address of the elements.
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
