// SPDX-License-Identifier: BSD-3-Clause
//
// kernel_call.h - how C++ that torch's compiler generated around kernels launches them: without
// Python, in a program or in a package that was compiled ahead of time.
//
// The two functions are those of libopenreg_aoti.so (aten/aoti). They throw. Threads: any.
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
// The address at which kernels see what the program sees at `data`; false for the host's memory.
bool openreg_kernel_address(const void* data, uint64_t* word);
// Queues run(a copy of the arguments) on the current stream of the device.
void openreg_kernel_launch(const char* name, bool parallel, bool pointwise, int64_t device,
                           int64_t cost, void (*run)(void* arguments), const void* arguments,
                           size_t bytes);
}

namespace openreg_generated {

// An operand on the CPU has one element, which is only read: it travels itself.
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
                               " of device openreg cannot write to a tensor of the CPU");
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

// `cost`: see KernelApi in kernel_launch.h.
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
