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
// Needs nothing but openreg.h and libopenreg.so. Callable from every thread outside of kernels;
// errors are those of orLaunchKernel.
#ifndef RUNTIME_DEVICE_LAUNCH_H_
#define RUNTIME_DEVICE_LAUNCH_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "runtime/device/openreg.h"

namespace openreg {

// The address window of the process. The first call asks for it; no base and no size if that
// failed.
inline const orAddressWindow& LaunchWindow() {
  static const orAddressWindow window = [] {
    orAddressWindow found{};
    if (orGetAddressWindow(&found) != orSuccess) {
      found = {};
    }
    return found;
  }();
  return window;
}

namespace launch_detail {

// How one parameter travels. Set returns false for a pointer which a kernel may not have.
template <class T>
struct Parameter {
  static_assert(std::is_trivially_copyable_v<T>, "a kernel's parameters travel as bytes");
  static_assert(!std::is_reference_v<T>, "a kernel's parameters travel by value");
  T value;
  bool Set(T given, const orAddressWindow&) {
    value = given;
    return true;
  }
  T Get() const { return value; }
};

template <class T>
struct Parameter<T*> {
  using Element = std::remove_const_t<T>;
  static constexpr bool kReadsElement = std::is_const_v<T> && !std::is_void_v<Element>;
  // A pointer, or the element if there is no pointer to a device.
  struct Nothing {};
  T* pointer;
  bool has_element;
  std::conditional_t<kReadsElement, Element, Nothing> element;

  bool Set(T* given, const orAddressWindow& window) {
    has_element = false;
    const auto address = reinterpret_cast<uintptr_t>(given);
    if (address - window.base < window.size) {
      pointer = reinterpret_cast<T*>(address + static_cast<uintptr_t>(window.kernel_offset));
      return true;
    }
    pointer = given;
    if (given == nullptr) {
      return true;
    }
    if constexpr (kReadsElement) {
      static_assert(std::is_trivially_copyable_v<Element>, "a kernel's operands travel as bytes");
      has_element = true;
      element = *given;
      return true;
    } else {
      return false;
    }
  }
  T* Get() const {
    if constexpr (kReadsElement) {
      if (has_element) {
        return &element;
      }
    }
    return pointer;
  }
};

// Parameters one after the other. Not std::tuple, which is not trivially copyable.
template <class... Parameters>
struct Pack {
  template <class Function, class... Done>
  void Call(Function function, const Done&... done) const {
    function(done.Get()...);
  }
  bool Set(const orAddressWindow&) { return true; }
};

template <class First, class... Rest>
struct Pack<First, Rest...> {
  Parameter<First> first;
  Pack<Rest...> rest;

  template <class Given, class... More>
  bool Set(const orAddressWindow& window, Given&& given, More&&... more) {
    return first.Set(static_cast<First>(std::forward<Given>(given)), window) &&
           rest.Set(window, std::forward<More>(more)...);
  }
  template <class Function, class... Done>
  void Call(Function function, const Done&... done) const {
    rest.Call(function, done..., first);
  }
};

template <class... Parameters>
struct Packet {
  void (*function)(Parameters...);
  Pack<Parameters...> parameters;

  static orError_t Run(void* packed) {
    const auto* packet = static_cast<const Packet*>(packed);
    packet->parameters.Call(packet->function);
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
  Packet packet;
  packet.function = function;
  if (!packet.parameters.Set(LaunchWindow(), std::forward<Arguments>(arguments)...)) {
    return orErrorInvalidDevicePointer;
  }
  return orLaunchKernel(stream, &Packet::Run, &packet, sizeof(packet), &attributes);
}

}  // namespace openreg

#endif  // RUNTIME_DEVICE_LAUNCH_H_
