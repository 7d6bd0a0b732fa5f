// SPDX-License-Identifier: BSD-3-Clause
#include "python/csrc/memory.h"

#include <ATen/core/CachingHostAllocator.h>
#include <torch/csrc/Exceptions.h>

#include <cstdint>
#include <thread>
#include <utility>

#include "runtime/c10/device.h"
#include "runtime/c10/device_allocator.h"
#include "runtime/c10/raw_memory.h"

namespace openreg {
namespace {

namespace py = pybind11;

using PythonPoolId = std::pair<uint64_t, uint64_t>;

py::dict to_dict(const c10::CachingAllocator::Stat& stat) {
  py::dict result;
  result["current"] = stat.current;
  result["peak"] = stat.peak;
  result["allocated"] = stat.allocated;
  result["freed"] = stat.freed;
  return result;
}

py::dict to_dict(const c10::CachingAllocator::DurationStat& stat) {
  py::dict result;
  result["total"] = stat.total;
  result["max"] = stat.max;
  result["min"] = stat.min;
  result["count"] = stat.count;
  result["avg"] =
      stat.count != 0 ? static_cast<double>(stat.total) / static_cast<double>(stat.count) : 0;
  return result;
}

at::HostAllocator* host_allocator() { return at::getHostAllocator(kOpenRegType); }

py::dict host_memory_stats() {
  const at::HostStats stats = [] {
    const py::gil_scoped_release release;
    return host_allocator()->get_stats();
  }();
  py::dict result;
  result["allocations"] = to_dict(stats.allocations);
  result["allocated_bytes"] = to_dict(stats.allocated_bytes);
  result["active_requests"] = to_dict(stats.active_requests);
  result["active_bytes"] = to_dict(stats.active_bytes);
  result["host_alloc_time"] = to_dict(stats.host_alloc_time);
  result["host_free_time"] = to_dict(stats.host_free_time);
  result["num_host_alloc"] = stats.num_host_alloc;
  result["num_host_free"] = stats.num_host_free;
  return result;
}

}  // namespace

void bind_memory(py::module_& module) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;

  module.def("new_pool_id", wrap_pybind_function([] { return PythonPoolId(new_pool_id()); }));
  module.def("use_pool",
             wrap_pybind_function_no_gil([](int64_t device, PythonPoolId id, bool last_resort,
                                            bool whole) {
               use_pool(resolve_device(device), id, {.last_resort = last_resort, .whole = whole});
             }),
             py::arg("device"), py::arg("id"), py::arg("last_resort"), py::arg("whole"));
  module.def("begin_allocate_current_thread_to_pool",
             wrap_pybind_function_no_gil([](int64_t device, PythonPoolId id) {
               begin_allocate_to_pool(resolve_device(device), id,
                                      [thread = std::this_thread::get_id()](orStream_t /*stream*/) {
                                        return std::this_thread::get_id() == thread;
                                      });
             }),
             py::arg("device"), py::arg("id"));
  module.def("end_allocate_to_pool",
             wrap_pybind_function_no_gil([](int64_t device, PythonPoolId id) {
               end_allocate_to_pool(resolve_device(device), id);
             }),
             py::arg("device"), py::arg("id"));
  module.def("release_pool", wrap_pybind_function_no_gil([](int64_t device, PythonPoolId id) {
               release_pool(resolve_device(device), id);
             }),
             py::arg("device"), py::arg("id"));
  module.def("pool_exists", wrap_pybind_function_no_gil([](int64_t device, PythonPoolId id) {
               return pool_exists(resolve_device(device), id);
             }),
             py::arg("device"), py::arg("id"));
  module.def("pool_use_count", wrap_pybind_function_no_gil([](int64_t device, PythonPoolId id) {
               return pool_use_count(resolve_device(device), id);
             }),
             py::arg("device"), py::arg("id"));

  module.def("set_memory_fraction",
             wrap_pybind_function_no_gil([](int64_t device, double fraction) {
               set_memory_fraction(resolve_device(device), fraction);
             }),
             py::arg("device"), py::arg("fraction"));
  module.def("memory_fraction", wrap_pybind_function_no_gil([](int64_t device) {
               return memory_fraction(resolve_device(device));
             }),
             py::arg("device"));

  module.def("allocate_raw",
             wrap_pybind_function_no_gil([](int64_t bytes, int64_t device, uintptr_t stream) {
               return reinterpret_cast<uintptr_t>(allocate_raw(
                   bytes, resolve_device(device), reinterpret_cast<orStream_t>(stream)));
             }),
             py::arg("bytes"), py::arg("device"), py::arg("stream"));
  module.def("free_raw", wrap_pybind_function_no_gil([](uintptr_t pointer) {
               free_raw(reinterpret_cast<void*>(pointer));
             }),
             py::arg("pointer"));

  module.def("empty_host_cache",
             wrap_pybind_function_no_gil([] { host_allocator()->empty_cache(); }));
  module.def("host_memory_stats", wrap_pybind_function(&host_memory_stats));
  module.def("reset_accumulated_host_memory_stats",
             wrap_pybind_function_no_gil([] { host_allocator()->reset_accumulated_stats(); }));
  module.def("reset_peak_host_memory_stats",
             wrap_pybind_function_no_gil([] { host_allocator()->reset_peak_stats(); }));
}

}  // namespace openreg
