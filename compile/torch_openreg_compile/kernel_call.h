// SPDX-License-Identifier: BSD-3-Clause
//
// kernel_call.h - launches kernels from generated C++ code, without Python. The code is part of a
// program, or of a package that was compiled ahead of time.
//
// The two extern "C" functions are defined in libopenreg_aoti.so (aten/aoti). They throw
// exceptions. Any thread may call them.
#ifndef TORCH_OPENREG_COMPILE_KERNEL_CALL_H_
#define TORCH_OPENREG_COMPILE_KERNEL_CALL_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "compile/torch_openreg_compile/kernel.h"

extern "C" {
// Stores the kernel address of `data`, an address of the program, in `word`. Returns false if
// `data` is in host memory.
bool openreg_kernel_address(const void* data, uint64_t* word);
// Queues run() with a copy of the arguments on the device's current stream.
void openreg_kernel_launch(const char* name, bool parallel, bool pointwise, int64_t device,
                           int64_t cost, void (*run)(void* arguments), const void* arguments,
                           size_t bytes);
}

namespace openreg_generated {

// Stores one argument of the kernel. A CPU operand must be read-only and have one element. For such
// an operand, the value is stored instead of the address.
template <class T, class... Parameters>
void set_operand(Arguments<Parameters...>* packed, size_t index, T value, const char* kernel) {
  if constexpr (std::is_pointer_v<T>) {
    if (value != nullptr && !openreg_kernel_address(value, &packed->words[index])) {
      using Element = std::remove_pointer_t<T>;
      if constexpr (std::is_const_v<Element>) {
        packed->set(index, *value);
        packed->set_is_value(index);
        return;
      }
      throw std::runtime_error(std::string("kernel ") + kernel +
                               " of device openreg cannot write to a CPU tensor: allocate the "
                               "tensor on the device");
    }
    if (value == nullptr) {
      packed->set(index, value);
    }
  } else {
    packed->set(index, value);
  }
}

template <class... Parameters, size_t... kIndices>
void set_operands(Arguments<Parameters...>* packed, const char* kernel,
                  std::index_sequence<kIndices...>, Parameters... given) {
  (set_operand(packed, kIndices, given, kernel), ...);
}

// Launches `function` on the current stream of `device`. KernelApi in kernel_launch.h explains
// `cost`.
template <class... Parameters>
void launch(const KernelSite& site, int64_t device, int64_t cost, void (*function)(Parameters...),
            std::type_identity_t<Parameters>... given) {
  Arguments<Parameters...> packed;
  packed.function = function;
  packed.values = {};
  set_operands(&packed, site.name, std::index_sequence_for<Parameters...>(), given...);
  openreg_kernel_launch(site.name, site.parallel, site.pointwise, device, cost,
                        &Arguments<Parameters...>::run, &packed, sizeof(packed));
}

}  // namespace openreg_generated

#endif  // TORCH_OPENREG_COMPILE_KERNEL_CALL_H_
