// SPDX-License-Identifier: BSD-3-Clause
#include "python/csrc/memory_history.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/allocator/segment_description.h"
#include "runtime/device/openreg.h"
#include "runtime/diagnostics/memory_history.h"

namespace py = pybind11;

namespace openreg {
namespace {

using allocator::Action;
using allocator::BlockState;
using allocator::Context;

// Maps the contexts of a snapshot to lists of Python frame entries. First call want() with each
// context, then find() once, which resolves every distinct stack. Afterwards, operator[] returns
// the lists.
class Frames {
 public:
  void want(const Context& context) {
    if (context != nullptr && places_.emplace(context.get(), stacks_.size()).second) {
      stacks_.push_back(stack_of(context));
    }
  }

  void find() {
    const CallFrames found = to_frames(stacks_);
    std::vector<py::dict> frames;
    for (const CallFrames::Frame& frame : found.frames) {
      py::dict entry;
      entry["filename"] = frame.file;
      entry["line"] = frame.line;
      entry["name"] = frame.function;
      frames.push_back(std::move(entry));
    }
    for (const std::vector<uint64_t>& stack : found.stacks) {
      py::list list;
      for (const uint64_t frame : stack) {
        list.append(frames.at(frame));
      }
      lists_.push_back(std::move(list));
    }
  }

  py::list operator[](const Context& context) const {
    return context != nullptr ? lists_.at(places_.at(context.get())) : py::list();
  }

 private:
  std::unordered_map<const void*, size_t> places_;
  std::vector<CallStack> stacks_;
  std::vector<py::list> lists_;
};

const char* name_of(Action action) {
  switch (action) {
    case Action::kAlloc:
      return "alloc";
    case Action::kFreeRequested:
      return "free_requested";
    case Action::kFreeCompleted:
      return "free_completed";
    case Action::kSegmentAlloc:
      return "segment_alloc";
    case Action::kSegmentFree:
      return "segment_free";
    case Action::kOutOfMemory:
      return "oom";
    case Action::kSnapshot:
      return "snapshot";
  }
  return "";
}

// Returns the stream's handle as an integer. As in torch's own snapshots, returns 0 for the
// device's default stream.
uintptr_t stream_number(orStream_t stream, int device) {
  orStream_t standard = nullptr;
  if (orGetDefaultStream(&standard, device) == orSuccess && standard == stream) {
    return 0;
  }
  return reinterpret_cast<uintptr_t>(stream);
}

Context find(const std::unordered_map<uintptr_t, Context>& contexts, const void* address) {
  const auto found = contexts.find(reinterpret_cast<uintptr_t>(address));
  return found != contexts.end() ? found->second : nullptr;
}

bool is_in_use(const allocator::BlockDescription& block) {
  return block.state == BlockState::kAllocated || block.state == BlockState::kPending;
}

const char* name_of(BlockState state) {
  return state == BlockState::kAllocated ? "active_allocated"
         : state == BlockState::kPending ? "active_awaiting_free"
                                         : "inactive";
}

py::dict segment_entry(const allocator::SegmentDescription& segment,
                       const allocator::History::Content& history, int device,
                       const Frames& frames) {
  size_t allocated = 0;
  size_t active = 0;
  size_t requested = 0;
  py::list blocks;
  for (const allocator::BlockDescription& block : segment.blocks) {
    allocated += block.state == BlockState::kAllocated ? block.size : 0;
    requested += block.state == BlockState::kAllocated ? block.requested : 0;
    active += is_in_use(block) ? block.size : 0;
    py::dict entry;
    entry["address"] = reinterpret_cast<uintptr_t>(block.base);
    entry["size"] = block.size;
    entry["requested_size"] = block.requested;
    entry["state"] = name_of(block.state);
    entry["frames"] = frames[is_in_use(block) ? find(history.blocks, block.base) : nullptr];
    blocks.append(std::move(entry));
  }
  py::dict entry;
  entry["device"] = device;
  entry["address"] = reinterpret_cast<uintptr_t>(segment.base);
  entry["total_size"] = segment.size;
  entry["allocated_size"] = allocated;
  entry["active_size"] = active;
  entry["requested_size"] = requested;
  entry["stream"] = stream_number(segment.stream, device);
  entry["segment_type"] = segment.type == allocator::kLargePool ? "large" : "small";
  entry["segment_pool_id"] = segment.pool;
  entry["is_expandable"] = false;
  entry["frames"] = frames[find(history.segments, segment.base)];
  entry["blocks"] = std::move(blocks);
  return entry;
}

py::dict trace_entry(const allocator::History::Entry& event, int device, const Frames& frames) {
  py::dict entry;
  const bool oom = event.event.action == Action::kOutOfMemory;
  entry["action"] = name_of(event.event.action);
  entry[oom ? "device_free" : "addr"] = event.event.address;
  entry["size"] = event.event.size;
  entry["stream"] =
      event.event.stream != nullptr ? stream_number(event.event.stream, device) : uintptr_t{0};
  entry["pool_id"] = event.event.pool;
  entry["time_us"] = event.time_us;
  entry["frames"] = frames[event.context];
  return entry;
}

// Returns {"segments": [...], "device_traces": [one list per device]}. If `events` is false, the
// traces are empty and their stacks are not resolved, which saves most of the work.
py::dict snapshot(bool events) {
  std::vector<MemorySnapshot> snapshots;
  {
    const py::gil_scoped_release released;  // acquires the allocators' locks
    snapshots = memory_snapshot();
    if (!events) {
      for (MemorySnapshot& of_device : snapshots) {
        of_device.history.entries.clear();
      }
    }
  }
  Frames frames;
  for (const MemorySnapshot& of_device : snapshots) {
    for (const allocator::History::Entry& entry : of_device.history.entries) {
      frames.want(entry.context);
    }
    for (const auto* held : {&of_device.history.blocks, &of_device.history.segments}) {
      for (const auto& [address, context] : *held) {
        frames.want(context);
      }
    }
  }
  frames.find();
  py::list segments;
  py::list traces;
  int device = 0;
  for (const MemorySnapshot& of_device : snapshots) {
    for (const allocator::SegmentDescription& segment : of_device.segments) {
      segments.append(segment_entry(segment, of_device.history, device, frames));
    }
    py::list trace;
    for (const allocator::History::Entry& entry : of_device.history.entries) {
      trace.append(trace_entry(entry, device, frames));
    }
    traces.append(std::move(trace));
    ++device;
  }
  py::dict result;
  result["segments"] = std::move(segments);
  result["device_traces"] = std::move(traces);
  return result;
}

void start(bool events, int contexts, bool cpp, size_t capacity, bool clear,
           const std::vector<int>& skipped) {
  MemoryHistorySettings settings;
  settings.history.events = events;
  settings.history.contexts = static_cast<allocator::ContextLevel>(contexts);
  settings.history.capacity = capacity;
  for (const int action : skipped) {
    settings.history.skipped |= 1U << action;
  }
  settings.stacks = cpp ? StackKind::kPythonAndCpp : StackKind::kPython;
  settings.clear = clear;
  start_memory_history(settings);
}

}  // namespace

void bind_memory_history(py::module& module) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;
  module.def("start_memory_history", wrap_pybind_function_no_gil(&start), py::arg("events"),
             py::arg("contexts"), py::arg("cpp"), py::arg("capacity"), py::arg("clear"),
             py::arg("skipped"));
  module.def("stop_memory_history", wrap_pybind_function_no_gil(&stop_memory_history));
  module.def("memory_snapshot", wrap_pybind_function(&snapshot), py::arg("events"));
}

}  // namespace openreg
