// SPDX-License-Identifier: BSD-3-Clause
//
// kernel_launch.h - how the C++ that torch's compiler generates becomes a kernel of the device.
//
// Two sides share it. The extension module torch_openreg._C offers a KernelApi in a capsule; a
// generated module takes it and defines, behind the text of this file, one function
//
//   extern "C" void kernel(const float* in, float* out, int64_t size);
//
// which Python calls with the kernel's cost and its arguments: tensors and integers. Nothing but
// Python and the standard library is needed, so that it costs a compilation little.
//
// Ownership: arguments travel as bytes, copied at the launch; they hold no tensor (the order of the
// stream protects the memory). A kernel may run any number of times with the same bytes, as graphs
// replay it. Threads: Python calls with the GIL; the kernel runs on the thread that the device
// chooses.
#ifndef TORCH_OPENREG_COMPILE_KERNEL_LAUNCH_H_
#define TORCH_OPENREG_COMPILE_KERNEL_LAUNCH_H_

#include <Python.h>

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

// The functions set a Python error where they fail.
struct KernelApi {
  static constexpr const char* kCapsule = "torch_openreg._C.kernel_api";
  static constexpr int64_t kVersion = 1;

  int64_t version;
  // The address at which kernels see a tensor's elements, into `word`; returns 1. An operand on the
  // CPU, of one element of `bytes` bytes that is only read: the element itself; returns 0. -1: any
  // other tensor, or none.
  // `device` is that of the operands so far, -1 at first.
  int (*operand)(PyObject* tensor, size_t bytes, bool written, uint64_t* word, int64_t* device);
  // Queues run(copy of the arguments) on the current stream of `device`. `cost` counts elementary
  // operations of about a quarter of a nanosecond. Returns 0, or -1.
  int (*launch)(const KernelSite& site, int64_t device, int64_t cost, void (*run)(void* arguments),
                const void* arguments, size_t bytes);
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

  template <class T>
  bool set(const KernelApi& api, size_t index, PyObject* given, int64_t* device) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
    uint64_t& word = words[index];
    if constexpr (std::is_pointer_v<T>) {
      using Element = std::remove_pointer_t<T>;
      const int kind =
          api.operand(given, sizeof(Element), !std::is_const_v<Element>, &word, device);
      values[index / 64] |= uint64_t{kind == 0} << index % 64;
      return kind >= 0;
    } else if constexpr (std::is_floating_point_v<T>) {
      const T value = static_cast<T>(PyFloat_AsDouble(given));
      std::memcpy(&word, &value, sizeof(value));
      return PyErr_Occurred() == nullptr;
    } else {
      const T value = static_cast<T>(PyLong_AsLongLong(given));
      std::memcpy(&word, &value, sizeof(value));
      return PyErr_Occurred() == nullptr;
    }
  }

  template <size_t... kIndices>
  bool set_all(const KernelApi& api, PyObject* const* given, int64_t* device,
               std::index_sequence<kIndices...>) {
    return (set<Parameters>(api, kIndices, given[kIndices], device) && ...);
  }

  template <size_t... kIndices>
  void call(std::index_sequence<kIndices...>) {
    function(get<Parameters>(kIndices)...);
  }

  static void run(void* arguments) {
    static_cast<Arguments*>(arguments)->call(std::index_sequence_for<Parameters...>());
  }
};

// A call from Python: given[0] is the cost, behind it is an argument for each parameter.
template <class... Parameters>
PyObject* call(const KernelApi& api, const KernelSite& site, void (*function)(Parameters...),
               PyObject* const* given, Py_ssize_t count) {
  using Packed = Arguments<Parameters...>;
  static_assert(std::is_trivially_copyable_v<Packed>);
  if (count != static_cast<Py_ssize_t>(Packed::kCount + 1)) {
    return PyErr_Format(PyExc_TypeError, "kernel %s takes its cost and %zu arguments, not %zd",
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
  if (!packed.set_all(api, given + 1, &device, std::index_sequence_for<Parameters...>()) ||
      api.launch(site, device, cost, &Packed::run, &packed, sizeof(packed)) != 0) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

// The runtime's functions; null with a Python error where there is no runtime that fits.
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
