// SPDX-License-Identifier: BSD-3-Clause
//
// torch_openreg._C: the bindings that torch.openreg needs in addition to torch's own.
//
// This layer is thin: each function checks its arguments and calls runtime/c10,
// runtime/diagnostics, aten, compile, distributed or profiler. Loading the module loads these
// libraries, which register the device with torch. Waits release the GIL
// (runtime/device/host_wait.h). Functions that are slow, or that acquire a lock which a waiting
// thread may hold, release the GIL themselves. As in torch, c10::Error, its subclasses, and
// warnings during a call are translated to Python.
#include <ATen/core/Generator.h>
#include <c10/core/Stream.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/device_lazy_init.h>
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "aten/fallback/fallback.h"
#include "aten/launch/sleep.h"
#include "compile/csrc/graph_replay.h"
#include "distributed/occl/window.h"
#include "profiler/recording.h"
#include "python/csrc/autograd_threads.h"
#include "python/csrc/compiled_kernels.h"
#include "python/csrc/distributed.h"
#include "python/csrc/graphs.h"
#include "python/csrc/memory.h"
#include "python/csrc/memory_history.h"
#include "python/csrc/sharing.h"
#include "python/csrc/tensor_meta.h"
#include "runtime/c10/device.h"
#include "runtime/c10/error.h"
#include "runtime/c10/generator.h"
#include "runtime/c10/graph.h"
#include "runtime/c10/shutdown.h"
#include "runtime/c10/stream.h"
#include "runtime/device/host_wait.h"
#include "runtime/device/openreg.h"
#include "runtime/diagnostics/call_stack.h"
#include "runtime/diagnostics/environment.h"
#include "runtime/diagnostics/implicit_wait.h"
#include "runtime/diagnostics/launch_site.h"
#include "runtime/diagnostics/memcheck.h"
#include "runtime/diagnostics/stream_sanitizer.h"

namespace py = pybind11;

namespace openreg {
namespace {

py::dict get_device_properties(int64_t device) {
  orDeviceProperties properties{};
  OPENREG_CHECK(orGetDeviceProperties(&properties, resolve_device(device)));
  py::dict result;
  result["name"] = properties.name;
  result["total_memory"] = properties.total_memory;
  result["allocation_granularity"] = properties.allocation_granularity;
  result["major"] = properties.major;
  result["minor"] = properties.minor;
  result["multi_processor_count"] = properties.multi_processor_count;
  result["max_threads_per_multi_processor"] = properties.max_threads_per_multi_processor;
  result["warp_size"] = properties.warp_size;
  result["L2_cache_size"] = properties.l2_cache_size;
  result["uuid"] = py::module_::import("uuid").attr("UUID")(
      py::arg("bytes") =
          py::bytes(reinterpret_cast<const char*>(properties.uuid), sizeof(properties.uuid)));
  return result;
}

py::object get_default_generator(int64_t device) {
  // torch keeps one Python object per generator and always returns the same one.
  PyObject* wrapped = THPGenerator_Wrap(default_generator(resolve_device(device)));
  if (wrapped == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(wrapped);
}

py::tuple stream_priority_range() {
  int least = 0;
  int greatest = 0;
  OPENREG_CHECK(orDeviceGetStreamPriorityRange(&least, &greatest));
  return py::make_tuple(least, greatest);
}

int stream_priority(int64_t stream_id, int64_t device) {
  const c10::Device where(kOpenRegType, resolve_device(device));
  int priority = 0;
  OPENREG_CHECK(orStreamGetPriority(
      native_stream(c10::Stream(c10::Stream::UNSAFE, where, stream_id)), &priority));
  return priority;
}

int64_t external_stream_id(uintptr_t handle, int64_t device) {
  return external_stream(reinterpret_cast<orStream_t>(handle), resolve_device(device)).id();
}

py::dict race_side(const Race::Side& side) {
  py::dict result;
  result["operator"] = side.launch->name;
  result["access"] = side.kind == UseKind::kRead    ? "read"
                     : side.kind == UseKind::kWrite ? "write"
                                                    : "allocation";
  result["device"] = side.launch->stream.device;
  result["stream"] = side.launch->stream.handle;
  result["stack"] = to_text(side.launch->stack);
  return result;
}

py::list stream_sanitizer_races() {
  py::list result;
  for (const Race& race : found_races()) {
    py::dict entry;
    entry["earlier"] = race_side(race.earlier);
    entry["later"] = race_side(race.later);
    entry["pointer"] = race.block;
    entry["bytes"] = race.bytes;
    result.append(entry);
  }
  return result;
}

// Synchronizes all devices. Each device checks its memory when it is synchronized.
void check_all_memory() {
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    synchronize_device(device);
  }
}

py::list get_held_memory() {
  py::list result;
  for (const HeldMemory& held : held_memory()) {
    py::dict entry;
    entry["device"] = static_cast<int>(held.device);
    entry["blocks"] = held.blocks;
    entry["bytes"] = held.bytes;
    entry["stack"] = held.stack;
    result.append(entry);
  }
  return result;
}

// Must be called before the interpreter is finalized. Reports on stderr the memory faults that no
// call has thrown, and stops capturing call stacks. The later leak report omits the blocks at the
// addresses `reachable`.
void report_memory_at_exit(const std::vector<uintptr_t>& reachable) {
  report_memory_faults_at_exit(reachable);
  stop_capturing_call_stacks();
}

// Returns whether the error is a KeyboardInterrupt or SystemExit, which do not derive from
// Exception. Python code that the dispatcher calls raises error_already_set, pybind11's exception;
// other torch code raises python_error.
bool is_interrupt(const std::exception& error) {
  const py::gil_scoped_acquire gil;
  PyObject* type = nullptr;
  if (const auto* const raised = dynamic_cast<const py::error_already_set*>(&error)) {
    type = raised->type().ptr();
  } else if (const auto* const kept = dynamic_cast<const python_error*>(&error)) {
    type = kept->type;
  }
  return type != nullptr && PyErr_GivenExceptionMatches(type, PyExc_Exception) == 0;
}

py::dict get_fallback_stats() {
  py::dict result;
  for (const FallbackRecord& record : fallback_stats()) {
    py::dict entry;
    entry["calls"] = record.calls;
    entry["asynchronous"] = record.asynchronous;
    entry["synchronous"] = record.synchronous;
    entry["bytes_in"] = record.bytes_in;
    entry["bytes_out"] = record.bytes_out;
    entry["ns"] = record.ns;
    result[py::str(record.name)] = entry;
  }
  return result;
}

// Waits release the GIL here, because many torch bindings do not release it, and destructors never
// do. During finalization the GIL is kept, because a thread that releases it then may never acquire
// it again.
void* release_gil() {
  return Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr;
}

bool is_finalizing() {
#if PY_VERSION_HEX < 0x030D0000  // Python 3.13 made it public
  return _Py_IsFinalizing() != 0;
#else
  return Py_IsFinalizing() != 0;
#endif
}

void reacquire_gil(void* thread) {
  if (thread == nullptr) {
    return;
  }
  while (is_finalizing()) {
    (void)::pause();  // returns only when the process exits (see shutdown.h)
  }
  PyEval_RestoreThread(static_cast<PyThreadState*>(thread));
}

// Shuts the device down when the process exits. The device must live until the interpreter has
// cleared its modules, because Python objects own tensors, streams and events until then. The
// interpreter calls this function last. At this point, the process has not yet run C++ destructors,
// which destroy objects that libtorch's kernels may use. Kernels that are still queued do not run
// any more. If Py_AtExit has no free slot, the driver itself shuts the device down slightly later.
void shut_down_at_exit() {
  (void)Py_AtExit([] {
    report_leaks_at_exit();
    // shut_down() waits for running kernels, so first end the kernels' waits for other processes.
    occlWindowEndWaits();
    shut_down();
  });
}

int driver_version() {
  int version = 0;
  OPENREG_CHECK(orGetVersion(&version));
  return version;
}

// Throws unless the loaded driver has a compatible version (openreg.h). The loader has already
// resolved every function of the driver, but only the version shows whether their semantics still
// match.
void require_driver() {
  const int found = driver_version();
  if (found / 10000 != OPENREG_VERSION / 10000 || found / 100 < OPENREG_VERSION / 100) {
    const auto text = [](int version) {
      return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100);
    };
    throw py::import_error("torch_openreg was built for version " + text(OPENREG_VERSION) +
                           " of the driver's interface (openreg.h), but the loaded libopenreg.so "
                           "has version " +
                           text(found) + ": reinstall torch_openreg, which contains the right one");
  }
}

}  // namespace
}  // namespace openreg

PYBIND11_MODULE(_C, module) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;

  openreg::require_driver();
  module.doc() = "Bindings of device openreg; the public interface is torch.openreg.";

  module.def("driver_version", wrap_pybind_function(&openreg::driver_version));
  module.def("init", wrap_pybind_function_no_gil(&openreg::initialize));
  module.def("is_initialized", &openreg::is_initialized);
  module.def("is_in_bad_fork", &openreg::in_forked_child);
  module.def("device_count", [] { return static_cast<int>(openreg::device_count()); });
  module.def("resolve_device", wrap_pybind_function([](int64_t device) {
               return static_cast<int>(openreg::resolve_device(device));
             }),
             py::arg("device"));
  module.def("get_device",
             wrap_pybind_function([]() { return static_cast<int>(openreg::current_device()); }));
  module.def("set_device", wrap_pybind_function([](int64_t device) {
               openreg::set_device(openreg::resolve_device(device));
             }),
             py::arg("device"));
  module.def("exchange_device", wrap_pybind_function([](int64_t device) {
               return static_cast<int>(openreg::exchange_device(
                   device < 0 ? c10::DeviceIndex{-1} : openreg::resolve_device(device)));
             }),
             py::arg("device"));
  module.def("synchronize_device", wrap_pybind_function_no_gil([](int64_t device) {
               openreg::synchronize_device(openreg::resolve_device(device));
             }),
             py::arg("device"));
  module.def("get_device_properties", wrap_pybind_function(&openreg::get_device_properties),
             py::arg("device"));

  module.def("default_generator", wrap_pybind_function(&openreg::get_default_generator),
             py::arg("device"));

  module.def("stream_priority_range", wrap_pybind_function(&openreg::stream_priority_range));
  module.def("stream_priority", wrap_pybind_function(&openreg::stream_priority),
             py::arg("stream_id"), py::arg("device"));
  module.def("external_stream_id", wrap_pybind_function(&openreg::external_stream_id),
             py::arg("handle"), py::arg("device"));
  module.def("sleep", wrap_pybind_function_no_gil(&openreg::launch_sleep), py::arg("ns"));

  module.def("resume_recording", wrap_pybind_function(&openreg::resume_recording));
  module.def("pause_recording", wrap_pybind_function(&openreg::pause_recording));
  module.def("sync_debug_mode",
             wrap_pybind_function([] { return static_cast<int>(openreg::sync_debug_mode()); }));
  module.def("set_sync_debug_mode", wrap_pybind_function([](int mode) {
               openreg::set_sync_debug_mode(static_cast<openreg::SyncDebugMode>(mode));
             }),
             py::arg("mode"));
  module.def("launch_sites", wrap_pybind_function(&openreg::launch_sites));
  module.def("set_launch_sites", wrap_pybind_function(&openreg::set_launch_sites), py::arg("on"));
  module.def("launch_blocking", wrap_pybind_function([] {
               int blocking = 0;
               OPENREG_CHECK(orGetLaunchBlocking(&blocking));
               return blocking != 0;
             }));
  module.def("set_launch_blocking",
             wrap_pybind_function([](bool on) { OPENREG_CHECK(orSetLaunchBlocking(on ? 1 : 0)); }),
             py::arg("on"));
  module.def("stream_sanitizer", wrap_pybind_function([] {
               openreg::read_environment();
               return static_cast<int>(openreg::stream_sanitizer_action());
             }));
  module.def("set_stream_sanitizer", wrap_pybind_function([](int action) {
               openreg::read_environment();
               openreg::start_stream_sanitizer(static_cast<openreg::RaceAction>(action));
             }),
             py::arg("action"));
  module.def("stream_sanitizer_races", wrap_pybind_function(&openreg::stream_sanitizer_races));

  module.def("checks_memory", wrap_pybind_function([] {
               openreg::read_environment();
               return openreg::checks_memory();
             }));
  module.def("check_memory", wrap_pybind_function_no_gil(&openreg::check_all_memory));
  module.def("held_memory", wrap_pybind_function(&openreg::get_held_memory));
  module.def("report_memory_at_exit", wrap_pybind_function_no_gil(&openreg::report_memory_at_exit),
             py::arg("reachable"));
  openreg::bind_memory_history(module);

  openreg::set_interrupt_filter(&openreg::is_interrupt);
  module.def("fallback_stats", wrap_pybind_function(&openreg::get_fallback_stats));
  module.def("fallback_reset", wrap_pybind_function_no_gil(&openreg::fallback_reset));
  module.def("fallback_policy",
             wrap_pybind_function([] { return static_cast<int>(openreg::fallback_policy()); }));
  module.def("set_fallback_policy", wrap_pybind_function([](int policy) {
               openreg::set_fallback_policy(static_cast<openreg::FallbackPolicy>(policy));
             }),
             py::arg("policy"));
  module.def("irreplaceable_operators", wrap_pybind_function(&openreg::irreplaceable_operators));

  module.def("wait_for_autograd_threads",
             wrap_pybind_function_no_gil(&openreg::wait_for_autograd_threads));
  module.def("leave_replays_to_exit", wrap_pybind_function(&openreg::leave_replays_to_exit));
  openreg::bind_compiled_kernels(module);
  openreg::bind_distributed(module);
  openreg::bind_graphs(module);
  openreg::bind_memory(module);
  openreg::bind_recordings(module);
  openreg::bind_storage(module);
  openreg::bind_sharing(module);

  static constexpr orHostWaitHooks kReleaseGil{&openreg::release_gil, &openreg::reacquire_gil};
  orSetHostWaitHooks(&kReleaseGil);
  // By default, torch initializes the device only in its own functions and considers it unused
  // until then. As a result, torch.accelerator.synchronize() would not wait. Here every use
  // initializes the device.
  torch::utils::set_requires_device_init(openreg::kOpenRegType, false);
  openreg::shut_down_at_exit();
}
