// SPDX-License-Identifier: BSD-3-Clause
#include "python/csrc/graphs.h"

#include <ATen/core/GraphImplInterface.h>
#include <c10/util/Exception.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "runtime/c10/device.h"
#include "runtime/c10/graph.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

namespace py = pybind11;

using PoolId = std::pair<uint64_t, uint64_t>;

at::GraphCaptureMode capture_mode(const std::string& name) {
  if (name == "global" || name == "default") {
    return at::GraphCaptureMode::Global;
  }
  if (name == "thread_local") {
    return at::GraphCaptureMode::ThreadLocal;
  }
  TORCH_CHECK_VALUE(
      name == "relaxed",
      "capture_error_mode must be \"global\", \"thread_local\" or \"relaxed\", but got "
      "\"",
      name, "\"");
  return at::GraphCaptureMode::Relaxed;
}

at::Generator generator_of(const py::object& object) {
  TORCH_CHECK_TYPE(THPGenerator_Check(object.ptr()),
                   "register_generator_state takes a torch.Generator, but got ",
                   Py_TYPE(object.ptr())->tp_name);
  return THPGenerator_Unwrap(object.ptr());
}

}  // namespace

void bind_graphs(py::module_& module) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;

  py::class_<Graph, std::shared_ptr<Graph>>(module, "_Graph")
      .def(py::init([](bool keep_graph) {
             return std::make_shared<Graph>(at::GraphImplArgs{keep_graph});
           }),
           py::arg("keep_graph") = false)
      .def("register_generator_state",
           wrap_pybind_function([](Graph& self, const py::object& object) {
             self.register_generator(generator_of(object));
           }),
           py::arg("generator"))
      .def("capture_begin",
           wrap_pybind_function_no_gil(
               [](Graph& self, std::optional<PoolId> pool, const std::string& mode) {
                 const PoolId id = pool.value_or(PoolId{0, 0});
                 self.capture_begin({id.first, id.second}, capture_mode(mode));
               }),
           py::arg("pool") = py::none(), py::arg("capture_error_mode") = "global")
      .def("capture_end", wrap_pybind_function_no_gil(&Graph::capture_end))
      .def("instantiate", wrap_pybind_function_no_gil(&Graph::instantiate))
      .def("replay", wrap_pybind_function_no_gil(&Graph::replay))
      .def("reset", wrap_pybind_function_no_gil(&Graph::reset))
      .def("pool", wrap_pybind_function([](const Graph& self) {
             const c10::MempoolId_t id = self.pool();
             return PoolId{id.first, id.second};
           }))
      .def("enable_debug_mode", wrap_pybind_function(&Graph::enable_debug_mode))
      .def("debug_dump", wrap_pybind_function_no_gil(&Graph::debug_dump), py::arg("path"))
      .def("node_count", wrap_pybind_function(&Graph::node_count));

  module.def("is_current_stream_capturing", wrap_pybind_function([] {
               return is_initialized() && is_capturing(current_native_stream(current_device()));
             }));
}

}  // namespace openreg
