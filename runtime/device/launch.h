// SPDX-License-Identifier: BSD-3-Clause
//
// launch.h - launches a plain C++ function as a kernel: the launch header of generated code.
//
//   void add(const float* a, const float* b, float* sum, int64_t n);
//   orError_t error = openreg::Launch(stream, {"add", orLaunchInline}, add, a, b, sum, n);
//
// The arguments are converted to the parameters of the function and packed, as bytes, into the
// launch:
//   - a device pointer becomes the address at which kernels see the memory, by one compare and one
//   add;
//   - a null pointer stays null;
//   - a pointer to const outside of device memory is taken for a 0-dim operand on the CPU: the one
//   element
//     it points to is read now and travels with the launch, so that the host may change it at once;
//   - any other pointer outside of device memory is refused: a kernel that runs later may not write
//   to it;
//   - everything else is passed by value and has to be trivially copyable.
// What does not fit into OPENREG_MAX_ARGUMENT_BYTES does not compile.
//
// Needs nothing but openreg.h, openreg_emulation.h and libopenreg.so. Callable from every thread
// outside of kernels; errors are those of orLaunchKernel.
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

// The address window of the process; null, with the last error, while that cannot be read.
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

// How one parameter travels. Set returns the error of a pointer which a kernel may not have;
// `taken` is set when an element was read instead of a pointer kept, and is given back to Get. (The
// flags of all parameters are beside them, in one word: a pointer then takes 8 bytes, and generated
// kernels have many.)
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

  // The pointer, or the element. Bytes and not a union: an element may have a constructor.
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

// Parameters one after the other. Not std::tuple, which is not trivially copyable. `bit` is the
// place of the first of them in the word of flags.
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
struct Packet {
  void (*function)(Parameters...);
  uint64_t flags;
  Pack<Parameters...> parameters;

  static orError_t Run(void* packed) {
    const auto* packet = static_cast<const Packet*>(packed);
    packet->parameters.Call(packet->function, packet->flags, 0);
    return orSuccess;
  }
};

}  // namespace launch_detail

template <class... Parameters, class... Arguments>
inline orError_t Launch(orStream_t stream, const orLaunchAttributes& attributes,
                        void (*function)(Parameters...), Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "one argument for each parameter");
  using Packet = launch_detail::Packet<Parameters...>;
  static_assert(std::is_trivially_copyable_v<Packet>);
  static_assert(sizeof(Packet) <= OPENREG_MAX_ARGUMENT_BYTES, "too many parameters for one launch");
  static_assert(alignof(Packet) <= 16, "a parameter needs more alignment than a launch gives");
  static_assert(sizeof...(Parameters) <= 64, "one flag for each parameter");
  Packet packet;
  packet.function = function;
  packet.flags = 0;
  const orAddressWindow* const window = LaunchWindow();
  if (window == nullptr) [[unlikely]] {
    return orPeekAtLastError();
  }
  if (const orError_t error =
          packet.parameters.Set(*window, &packet.flags, 0, std::forward<Arguments>(arguments)...);
      error != orSuccess) [[unlikely]] {
    return error;
  }
  return orLaunchKernel(stream, &Packet::Run, &packet, sizeof(packet), &attributes);
}

}  // namespace openreg

#endif  // RUNTIME_DEVICE_LAUNCH_H_
