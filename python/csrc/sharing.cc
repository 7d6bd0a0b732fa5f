// SPDX-License-Identifier: BSD-3-Clause
#include "python/csrc/sharing.h"

#include <c10/core/Storage.h>
#include <c10/util/Exception.h>
#include <torch/csrc/Event.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Storage.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/c10/device.h"
#include "runtime/c10/error.h"
#include "runtime/c10/event.h"
#include "runtime/c10/sharing.h"

namespace py = pybind11;

namespace openreg {
namespace {

template <class Handle>
py::bytes to_bytes(const Handle& handle) {
  return {reinterpret_cast<const char*>(handle.reserved), sizeof(handle.reserved)};
}

template <class Handle>
Handle from_bytes(const std::string& bytes) {
  Handle handle;
  TORCH_CHECK_VALUE(bytes.size() == sizeof(handle.reserved), "expected a handle of ",
                    sizeof(handle.reserved), " bytes, but got ", bytes.size(), " bytes");
  std::memcpy(handle.reserved, bytes.data(), bytes.size());
  return handle;
}

py::bytes export_bytes(const py::object& object) {
  TORCH_CHECK_TYPE(THPStorage_Check(object.ptr()),
                   "export_storage takes a torch.UntypedStorage, but got ",
                   Py_TYPE(object.ptr())->tp_name);
  const c10::Storage storage = THPStorage_Unpack(object.ptr());
  orIpcMemoryHandle handle;
  {
    const py::gil_scoped_release no_gil;
    handle = export_storage(storage);
  }
  return to_bytes(handle);
}

py::object import_bytes(const std::string& bytes, size_t size, int64_t device) {
  const auto handle = from_bytes<orIpcMemoryHandle>(bytes);
  c10::Storage storage;
  {
    const py::gil_scoped_release no_gil;
    storage = import_storage(handle, size, resolve_device(device));
  }
  PyObject* const wrapped = THPStorage_Wrap(std::move(storage));
  if (wrapped == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(wrapped);
}

c10::Event& event_of(const py::object& object) {
  TORCH_CHECK_TYPE(THPEvent_Check(object.ptr()), "expected a torch.Event, but got ",
                   Py_TYPE(object.ptr())->tp_name);
  return reinterpret_cast<THPEvent*>(object.ptr())->event;
}

void make_interprocess(const py::object& event, int64_t device) {
  const c10::DeviceIndex index = resolve_device(device);
  initialize();
  const DeviceScope scope(index);
  orEvent_t native = nullptr;
  OPENREG_CHECK(orEventCreateWithFlags(&native, orEventInterprocess));
  adopt_event(event_of(event), native, index);
}

void open_event(const py::object& event, int64_t device, const std::string& bytes) {
  const c10::DeviceIndex index = resolve_device(device);
  const auto handle = from_bytes<orIpcEventHandle>(bytes);
  orEvent_t native = nullptr;
  OPENREG_CHECK(orIpcOpenEventHandle(&native, &handle));
  int found = 0;
  OPENREG_CHECK(orEventGetDevice(native, &found));
  if (found != index) {
    (void)orEventDestroy(native);
    TORCH_CHECK_VALUE(false, "the event belongs to device openreg:", found,
                      ", but was opened for device openreg:", static_cast<int>(index),
                      "; pass device openreg:", found);
  }
  adopt_event(event_of(event), native, index);
}

py::bytes event_handle(const py::object& event) {
  orIpcEventHandle handle;
  OPENREG_CHECK(orIpcGetEventHandle(&handle, static_cast<orEvent_t>(event_of(event).eventId())));
  return to_bytes(handle);
}

}  // namespace

void bind_sharing(py::module_& module) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;
  module.def("export_storage", wrap_pybind_function(&export_bytes), py::arg("storage"));
  module.def("import_storage", wrap_pybind_function(&import_bytes), py::arg("handle"),
             py::arg("size"), py::arg("device"));
  module.def("release_shared", wrap_pybind_function_no_gil(&release_shared));
  module.def("make_interprocess", wrap_pybind_function(&make_interprocess), py::arg("event"),
             py::arg("device"));
  module.def("open_event", wrap_pybind_function(&open_event), py::arg("event"), py::arg("device"),
             py::arg("handle"));
  module.def("event_handle", wrap_pybind_function(&event_handle), py::arg("event"));
}

}  // namespace openreg
