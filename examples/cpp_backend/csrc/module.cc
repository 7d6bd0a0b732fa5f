// SPDX-License-Identifier: BSD-3-Clause
//
// The extension module torch_acme._C. Importing it loads the library, whose static initializers
// register the guard, the allocator, the hooks and the operators. The functions require the GIL.
#include <ATen/Context.h>
#include <Python.h>
#include <torch/csrc/Generator.h>

#include "device.h"

namespace {

// Returns the default generator of a device, for which torch has no Python function.
PyObject* default_generator(PyObject* /*self*/, PyObject* index) {
  const long device = PyLong_AsLong(index);
  if (device == -1 && PyErr_Occurred() != nullptr) {
    return nullptr;
  }
  return THPGenerator_Wrap(
      at::globalContext().defaultGenerator({acme::kType, static_cast<c10::DeviceIndex>(device)}));
}

PyObject* device_count(PyObject* /*self*/, PyObject* /*none*/) {
  return PyLong_FromLong(acme::kDevices);
}

PyMethodDef methods[] = {{"default_generator", &default_generator, METH_O, nullptr},
                         {"device_count", &device_count, METH_NOARGS, nullptr},
                         {}};
PyModuleDef definition{
    PyModuleDef_HEAD_INIT, "_C", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

// Besides defining the function, PyMODINIT_FUNC exports it; -fvisibility=hidden hides all others.
// NOLINTNEXTLINE(readability-identifier-naming): Python requires this name.
PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&definition); }
