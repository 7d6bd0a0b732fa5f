// SPDX-License-Identifier: BSD-3-Clause
//
// launch.h - launches a plain C++ function as a kernel: the launch header of generated code.
//
//   void add(const float* a, const float* b, float* sum, int64_t n);
//   orError_t error = openreg::Launch(stream, {"add", orLaunchInline}, add, a, b, sum, n);
//
// The arguments are converted to the types of the function's parameters, and their bytes are packed
// into the launch:
//   - A device pointer is replaced with the address that kernels must use (one comparison, one
//     addition).
//   - A null pointer stays null.
//   - A pointer to const that does not point to device memory is a 0-dim operand on the CPU. The
//     element is read immediately and copied into the launch, so the host may change it after the
//     call.
//   - Any other pointer that does not point to device memory is refused, because a kernel that runs
//     later must not write to host memory.
//   - Everything else is passed by value and must be trivially copyable.
// Code whose arguments exceed OPENREG_MAX_ARGUMENT_BYTES does not compile.
//
// This header needs only openreg.h, openreg_emulation.h and libopenreg.so. Any thread that is not
// running a kernel may call Launch. The errors are those of orLaunchKernel.
#ifndef RUNTIME_DEVICE_LAUNCH_H_
#define RUNTIME_DEVICE_LAUNCH_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "runtime/device/openreg_emulation.h"

namespace openreg {

// Returns the process's address window. If the driver cannot provide it, sets the last error and
// returns null.
inline const orAddressWindow* LaunchWindow() {
  static constinit std::atomic<const orAddressWindow*> known{nullptr};
  if (const orAddressWindow* window = known.load(std::memory_order_acquire)) [[likely]] {
    return window;
  }
  orAddressWindow found;
  if (orGetAddressWindow(&found) != orSuccess) {
    return nullptr;
  }
  static const orAddressWindow window = found;
  known.store(&window, std::memory_order_release);
  return &window;
}

namespace launch_detail {

// Stores one parameter. Set returns an error for a pointer that a kernel must not use. If Set
// stores an element instead of a pointer, it sets `*taken`, and Get receives the same flag. (One
// word in the record contains the flags of all parameters. Each pointer therefore occupies only 8
// bytes, which matters because generated kernels have many pointers.)
template <class T>
struct Parameter {
  static_assert(std::is_trivially_copyable_v<T>, "a kernel's parameters travel as bytes");
  static_assert(!std::is_reference_v<T>, "a kernel's parameters travel by value");
  T value;
  orError_t Set(T given, const orAddressWindow&, bool*) {
    value = given;
    return orSuccess;
  }
  T Get(bool) const { return value; }
};

template <class T>
struct Parameter<T*> {
  static constexpr bool kReadsElement = std::is_const_v<T> && !std::is_void_v<T>;
  struct Nothing {};
  using Element = std::conditional_t<kReadsElement, std::remove_const_t<T>, Nothing>;
  static_assert(std::is_trivially_copyable_v<Element>, "a kernel's operands travel as bytes");

  // The pointer or the element. It is stored as bytes, because a union cannot contain an element
  // that has a constructor.
  static constexpr size_t kSize = sizeof(Element) > sizeof(T*) ? sizeof(Element) : sizeof(T*);
  static constexpr size_t kAlign = alignof(Element) > alignof(T*) ? alignof(Element) : alignof(T*);
  alignas(kAlign) unsigned char bytes[kSize];

  orError_t Set(T* given, const orAddressWindow& window, bool* taken) {
    const auto address = reinterpret_cast<uintptr_t>(given);
    if (address - window.base < window.size) {
      const uintptr_t seen = address + static_cast<uintptr_t>(window.kernel_offset);
      std::memcpy(bytes, &seen, sizeof(seen));
      return orSuccess;
    }
    if (given == nullptr) {
      std::memcpy(bytes, &given, sizeof(given));
      return orSuccess;
    }
    if constexpr (kReadsElement) {
      std::memcpy(bytes, given, sizeof(Element));
      *taken = true;
      return orSuccess;
    } else {
      return orCheckKernelPointer(given);
    }
  }
  T* Get(bool taken) const {
    if constexpr (kReadsElement) {
      if (taken) {
        return std::launder(reinterpret_cast<const Element*>(bytes));
      }
    }
    T* pointer;
    std::memcpy(&pointer, bytes, sizeof(pointer));
    return pointer;
  }
};

// The stored parameters, one after the other. A std::tuple cannot be used, because it is not
// trivially copyable. `bit` is the index of the first parameter's flag in the word of flags.
template <class... Parameters>
struct Pack {
  orError_t Set(const orAddressWindow&, uint64_t*, int) { return orSuccess; }
  template <class Function, class... Done>
  void Call(Function function, uint64_t, int, const Done&... done) const {
    function(done...);
  }
};

template <class First, class... Rest>
struct Pack<First, Rest...> {
  Parameter<First> first;
  Pack<Rest...> rest;

  template <class Given, class... More>
  orError_t Set(const orAddressWindow& window, uint64_t* flags, int bit, Given&& given,
                More&&... more) {
    bool taken = false;
    const orError_t error =
        first.Set(static_cast<First>(std::forward<Given>(given)), window, &taken);
    *flags |= uint64_t{taken} << bit;
    return error != orSuccess ? error
                              : rest.Set(window, flags, bit + 1, std::forward<More>(more)...);
  }
  template <class Function, class... Done>
  void Call(Function function, uint64_t flags, int bit, const Done&... done) const {
    rest.Call(function, flags, bit + 1, done..., first.Get((flags >> bit & 1) != 0));
  }
};

template <class... Parameters>
struct LaunchRecord {
  void (*function)(Parameters...);
  uint64_t flags;
  Pack<Parameters...> parameters;

  static orError_t Run(void* packed) {
    const auto* record = static_cast<const LaunchRecord*>(packed);
    record->parameters.Call(record->function, record->flags, 0);
    return orSuccess;
  }
};

}  // namespace launch_detail

template <class... Parameters, class... Arguments>
inline orError_t Launch(orStream_t stream, const orLaunchAttributes& attributes,
                        void (*function)(Parameters...), Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "one argument for each parameter");
  using LaunchRecord = launch_detail::LaunchRecord<Parameters...>;
  static_assert(std::is_trivially_copyable_v<LaunchRecord>);
  static_assert(sizeof(LaunchRecord) <= OPENREG_MAX_ARGUMENT_BYTES,
                "too many parameters for one launch");
  static_assert(alignof(LaunchRecord) <= 16,
                "a parameter needs a larger alignment than a launch provides");
  static_assert(sizeof...(Parameters) <= 64, "one flag for each parameter");
  LaunchRecord record;
  record.function = function;
  record.flags = 0;
  const orAddressWindow* const window = LaunchWindow();
  if (window == nullptr) [[unlikely]] {
    return orPeekAtLastError();
  }
  if (const orError_t error =
          record.parameters.Set(*window, &record.flags, 0, std::forward<Arguments>(arguments)...);
      error != orSuccess) [[unlikely]] {
    return error;
  }
  return orLaunchKernel(stream, &LaunchRecord::Run, &record, sizeof(record), &attributes);
}

}  // namespace openreg

#endif  // RUNTIME_DEVICE_LAUNCH_H_
