// SPDX-License-Identifier: BSD-3-Clause
#include "python/csrc/distributed.h"

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>

#include "distributed/completion_thread.h"
#include "distributed/flight_recorder.h"
#include "distributed/network.h"
#include "distributed/occl/occl.h"
#include "distributed/process_group.h"

namespace py = pybind11;

namespace openreg {
namespace {

c10::intrusive_ptr<c10d::Backend> make_python_gloo(c10::intrusive_ptr<c10d::Store> store, int rank,
                                                   int size, std::chrono::milliseconds timeout) {
  const py::gil_scoped_acquire gil;
  const py::object made = py::module_::import("torch.distributed")
                              .attr("ProcessGroupGloo")(std::move(store), rank, size, timeout);
  return made.cast<c10::intrusive_ptr<c10d::Backend>>();
}

}  // namespace

void bind_distributed(py::module_& module) {
  // This import registers the base classes and their holder types with pybind11.
  const py::module_ c10d = py::module_::import("torch._C._distributed_c10d");
  if (py::hasattr(c10d, "ProcessGroupGloo")) {
    register_gloo(&make_python_gloo);
  }
  py::class_<ProcessGroupOCCL, c10d::Backend, c10::intrusive_ptr<ProcessGroupOCCL>> group(
      module, "ProcessGroupOCCL");
  py::class_<ProcessGroupOCCL::Options, c10d::Backend::Options,
             c10::intrusive_ptr<ProcessGroupOCCL::Options>>(group, "Options")
      .def(py::init([](std::chrono::milliseconds timeout) {
             return c10::make_intrusive<ProcessGroupOCCL::Options>(timeout);
           }),
           py::arg("timeout") = kBackendDefaultTimeout)
      .def("__deepcopy__",
           [](const ProcessGroupOCCL::Options& options, const py::dict&) {
             return c10::make_intrusive<ProcessGroupOCCL::Options>(options);
           })
      .def_readwrite("is_high_priority_stream",
                     &ProcessGroupOCCL::Options::is_high_priority_stream);
  group
      .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                       const c10::intrusive_ptr<ProcessGroupOCCL::Options>& options) {
             const py::gil_scoped_release release;
             return c10::make_intrusive<ProcessGroupOCCL>(store, rank, size, options);
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"))
      .def_property_readonly("options", &ProcessGroupOCCL::getBackendOptions);
  module.def("supports_collectives", [] {
    int version = 0;
    return occlGetVersion(&version) == occlSuccess;
  });
  module.def("end_completion_threads", &CompletionThread::end_all,
             py::call_guard<py::gil_scoped_release>());
  module.def(
      "dump_flight_recorder",
      [](bool stacks, bool only_active) {
        return py::bytes(dump_flight_recorder(stacks, only_active));
      },
      py::arg("stacks"), py::arg("only_active"));
}

}  // namespace openreg
