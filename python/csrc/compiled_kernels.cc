// SPDX-License-Identifier: BSD-3-Clause
#include "python/csrc/compiled_kernels.h"

#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstdint>
#include <cstring>

#include "aten/launch/compiled_kernel.h"
#include "compile/torch_openreg_compile/kernel_launch.h"
#include "runtime/c10/device.h"

namespace py = pybind11;

namespace openreg {
namespace {

using openreg_generated::KernelApi;
using openreg_generated::KernelSite;

int launch_generated(const KernelSite& site, int64_t device, int64_t cost, void (*run)(void*),
                     const void* arguments, size_t bytes) {
  HANDLE_TH_ERRORS
  const py::gil_scoped_release no_gil;
  launch_compiled({site.name, site.parallel, site.pointwise, run},
                  resolve_device(static_cast<c10::DeviceIndex>(device)), cost, arguments, bytes);
  return 0;
  END_HANDLE_TH_ERRORS_RET(-1)
}

int read_operand(PyObject* object, size_t bytes, bool written, uint64_t* word, int64_t* device) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(THPVariable_Check(object), "a compiled kernel takes tensors, but got ",
                   Py_TYPE(object)->tp_name);
  const at::Tensor& tensor = THPVariable_Unpack(object);
  auto index = static_cast<c10::DeviceIndex>(*device);
  const void* const elements = compiled_operand(tensor, written, index);
  *device = index;
  if (elements != nullptr || tensor.numel() == 0) {
    *word = reinterpret_cast<uint64_t>(elements);
    return 1;
  }
  TORCH_CHECK(tensor.element_size() == static_cast<int64_t>(bytes) && bytes <= sizeof(*word),
              "a compiled kernel expected a CPU scalar of ", bytes, " bytes, but got one of ",
              tensor.element_size(), " bytes (", tensor.dtype(), ")");
  std::memcpy(word, tensor.const_data_ptr(), bytes);
  return 0;
  END_HANDLE_TH_ERRORS_RET(-1)
}

constexpr KernelApi kKernelApi{
    .version = KernelApi::kVersion, .operand = &read_operand, .launch = &launch_generated};

using Integers = c10::SmallVector<int64_t, 8>;

Integers unpack_integers(PyObject* tuple) {
  TORCH_CHECK_TYPE(PyTuple_Check(tuple), "empty_strided takes tuples of integers, but got ",
                   Py_TYPE(tuple)->tp_name);
  Integers numbers(static_cast<size_t>(PyTuple_GET_SIZE(tuple)));
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i)));
    if (numbers[i] == -1 && PyErr_Occurred() != nullptr) {
      throw python_error();
    }
  }
  return numbers;
}

// Implements empty_strided(sizes, strides, dtype, device index). Only generated code calls this
// function, so it supports neither default values nor keyword arguments.
PyObject* empty_strided(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 4 && THPDtype_Check(arguments[2]) && PyLong_Check(arguments[3]),
                   "empty_strided takes sizes, strides, a dtype and a device index");
  const Integers sizes = unpack_integers(arguments[0]);
  const Integers strides = unpack_integers(arguments[1]);
  const auto dtype = reinterpret_cast<THPDtype*>(arguments[2])->scalar_type;
  const auto device = static_cast<c10::DeviceIndex>(PyLong_AsLong(arguments[3]));
  at::Tensor result;
  {
    const py::gil_scoped_release no_gil;  // if memory is full, the allocation waits for streams
    result = compiled_result(device, sizes, strides, dtype);
  }
  return THPVariable_Wrap(std::move(result));
  END_HANDLE_TH_ERRORS
}

}  // namespace

void bind_compiled_kernels(py::module_& module) {
  module.attr("kernel_api") =
      py::capsule(static_cast<const void*>(&kKernelApi), KernelApi::kCapsule);
  static PyMethodDef methods[] = {
      {"empty_strided", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&empty_strided)),
       METH_FASTCALL, nullptr},
      {nullptr, nullptr, 0, nullptr}};
  if (PyModule_AddFunctions(module.ptr(), methods) != 0) {
    throw py::error_already_set();
  }
}

}  // namespace openreg
