// SPDX-License-Identifier: BSD-3-Clause
//
// kernel_launch.h - turns C++ code that torch's compiler generates into a device kernel.
//
// Two sides share this file. The extension module torch_openreg._C provides a KernelApi in a
// capsule. A generated module imports the capsule and defines, after the text of this file, one
// function
//
//   extern "C" void kernel(const float* in, float* out, int64_t size);
//
// Python calls this function with the kernel's cost and its arguments, which are tensors and
// integers. The file includes only Python and the standard library, so that it compiles quickly.
//
// Python calls the function while it holds the GIL. The kernel runs on a thread chosen by the
// device.
#ifndef TORCH_OPENREG_COMPILE_KERNEL_LAUNCH_H_
#define TORCH_OPENREG_COMPILE_KERNEL_LAUNCH_H_

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "compile/torch_openreg_compile/kernel.h"

namespace openreg_generated {

// The interface to the runtime. Its functions set a Python error if they fail.
struct KernelApi {
  static constexpr const char* kCapsule = "torch_openreg._C.kernel_api";
  static constexpr int64_t kVersion = 1;

  int64_t version;
  // Stores the kernel address of a tensor's elements in `word` and returns 1. For a read-only CPU
  // operand with one element of `bytes` bytes, stores the element itself and returns 0. For any
  // other tensor or object, returns -1. `device` is the device of the previous operands, initially
  // -1.
  int (*operand)(PyObject* tensor, size_t bytes, bool written, uint64_t* word, int64_t* device);
  // Queues run() with a copy of the arguments on the current stream of `device`. `cost` is a number
  // of elementary operations, each of about a quarter of a nanosecond. Returns 0 on success and -1
  // on failure.
  int (*launch)(const KernelSite& site, int64_t device, int64_t cost, void (*run)(void* arguments),
                const void* arguments, size_t bytes);
};

// Converts an argument from Python. If the argument does not fit the parameter, sets an error and
// returns false. `device` is the device of the previous operands.
template <class T, class... Parameters>
bool set_argument(const KernelApi& api, Arguments<Parameters...>* packed, size_t index,
                  PyObject* given, int64_t* device) {
  if constexpr (std::is_pointer_v<T>) {
    using Element = std::remove_pointer_t<T>;
    const int kind = api.operand(given, sizeof(Element), !std::is_const_v<Element>,
                                 &packed->words[index], device);
    if (kind == 0) {
      packed->set_is_value(index);
    }
    return kind >= 0;
  } else if constexpr (std::is_floating_point_v<T>) {
    packed->set(index, static_cast<T>(PyFloat_AsDouble(given)));
    return PyErr_Occurred() == nullptr;
  } else {
    packed->set(index, static_cast<T>(PyLong_AsLongLong(given)));
    return PyErr_Occurred() == nullptr;
  }
}

template <class... Parameters, size_t... kIndices>
bool set_arguments(const KernelApi& api, Arguments<Parameters...>* packed, PyObject* const* given,
                   int64_t* device, std::index_sequence<kIndices...>) {
  return (set_argument<Parameters>(api, packed, kIndices, given[kIndices], device) && ...);
}

// Launches the kernel for a call from Python. given[0] is the cost; one argument per parameter
// follows.
template <class... Parameters>
PyObject* call(const KernelApi& api, const KernelSite& site, void (*function)(Parameters...),
               PyObject* const* given, Py_ssize_t count) {
  using Packed = Arguments<Parameters...>;
  static_assert(std::is_trivially_copyable_v<Packed>);
  if (count != static_cast<Py_ssize_t>(Packed::kCount + 1)) {
    return PyErr_Format(PyExc_TypeError, "kernel %s takes its cost and %zu arguments, but got %zd",
                        site.name, Packed::kCount, std::max<Py_ssize_t>(count - 1, 0));
  }
  const int64_t cost = PyLong_AsLongLong(given[0]);
  if (cost == -1 && PyErr_Occurred() != nullptr) {
    return nullptr;
  }
  Packed packed;
  packed.function = function;
  packed.values = {};
  int64_t device = -1;
  if (!set_arguments(api, &packed, given + 1, &device, std::index_sequence_for<Parameters...>()) ||
      api.launch(site, device, cost, &Packed::run, &packed, sizeof(packed)) != 0) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

// Returns the runtime's functions. If there is no compatible runtime, sets a Python error and
// returns null.
inline const KernelApi* find_api() {
  const auto* api = static_cast<const KernelApi*>(PyCapsule_Import(KernelApi::kCapsule, 0));
  if (api != nullptr && api->version != KernelApi::kVersion) {
    PyErr_Format(PyExc_ImportError,
                 "openreg: the kernel was generated for version %lld of the launch interface, but "
                 "torch_openreg has version %lld: remove the compiler's cache",
                 static_cast<long long>(KernelApi::kVersion), static_cast<long long>(api->version));
    return nullptr;
  }
  return api;
}

}  // namespace openreg_generated

#endif  // TORCH_OPENREG_COMPILE_KERNEL_LAUNCH_H_
