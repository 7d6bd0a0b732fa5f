// SPDX-License-Identifier: BSD-3-Clause
#include "python/csrc/tensor_meta.h"

#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <string>

#include "runtime/c10/tensor_meta.h"

namespace py = pybind11;

namespace openreg {
namespace {

const at::Tensor& unpack(const py::handle& object) {
  TORCH_CHECK_TYPE(THPVariable_Check(object.ptr()), "expected a tensor, but got ",
                   Py_TYPE(object.ptr())->tp_name);
  return THPVariable_Unpack(object.ptr());
}

// Returns a tensor's metadata as (version, format, data), or None if it has none.
py::object get_meta(const py::object& tensor) {
  const TensorMetaPtr meta = tensor_meta(unpack(tensor));
  if (meta == nullptr) {
    return py::none();
  }
  return py::make_tuple(meta->version, meta->format, py::bytes(meta->data));
}

}  // namespace

void bind_storage(py::module_& module) {
  using torch::wrap_pybind_function;
  module.def("tensor_meta", wrap_pybind_function(&get_meta), py::arg("tensor"));
  module.def("set_tensor_meta",
             wrap_pybind_function([](const py::object& tensor, int64_t version, int64_t format,
                                     const py::bytes& data) {
               set_tensor_meta(unpack(tensor), make_tensor_meta(version, format, data));
             }),
             py::arg("tensor"), py::arg("version"), py::arg("format"), py::arg("data"));
  module.def("clear_tensor_meta", wrap_pybind_function([](const py::object& tensor) {
               set_tensor_meta(unpack(tensor), nullptr);
             }),
             py::arg("tensor"));
  module.def("copy_tensor_meta",
             wrap_pybind_function([](const py::object& source, const py::object& target) {
               copy_tensor_meta(unpack(source), unpack(target));
             }),
             py::arg("source"), py::arg("target"));
}

}  // namespace openreg
