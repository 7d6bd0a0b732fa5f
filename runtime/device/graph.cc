// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/graph.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/device/arena.h"
#include "runtime/device/error.h"
#include "runtime/device/executor.h"
#include "runtime/device/host_wait.h"
#include "runtime/device/kernel_error.h"
#include "runtime/device/process.h"
#include "runtime/device/thread.h"

namespace openreg::device {
namespace {

// Number of short kernels of a graph that run before the stream's consumer checks for other work.
constexpr uint64_t kShortBatch = 64;

constexpr size_t kArgumentAlignment = 16;

std::atomic<int32_t> last_number{0};

// The arguments of a replay that runs within its launching call.
struct InlineReplay {
  Graph* graph;
  const orActivity* record;  // the replay's record; null if it is not recorded
};

}  // namespace

Graph::Graph(int device)
    : device_(device), number_(last_number.fetch_add(1, std::memory_order_relaxed) + 1) {}

Graph::~Graph() {
  for (Node& node : nodes_) {
    if (node.release != nullptr) {
      node.release(arguments_.data() + node.arguments);
    }
  }
}

void Graph::Release() {
  if (owners_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    delete this;  // called by the last owner: a handle or a queued command
  }
}

uint32_t Graph::Append(Node node, const Stream* stream, std::vector<uint32_t> after) {
  node.device = stream->device();
  node.stream = stream->index;
  node.after = std::move(after);
  nodes_.push_back(std::move(node));
  return static_cast<uint32_t>(nodes_.size() - 1);
}

uint32_t Graph::Add(const Work& work, const Stream* stream, std::vector<uint32_t> after) {
  Node node{};
  node.kind = work.kind;
  node.place = work.place;
  node.name = work.name;
  if (work.kind == Command::kHostFunction) {
    node.function = work.function;
    node.data = work.data;
  } else {
    if (work.copy != nullptr) {
      node.copy = *work.copy;
    }
    node.kernel = work.repeatable != nullptr ? work.repeatable->kernel : work.kernel;
    node.release = work.repeatable != nullptr ? work.repeatable->release : nullptr;
    node.arguments = arguments_.size();
    node.size = work.size;
    arguments_.resize(RoundUp(arguments_.size() + work.size, kArgumentAlignment));
    if (work.size != 0) {
      std::memcpy(arguments_.data() + node.arguments, work.arguments, work.size);
    }
  }
  runs_inline_ = runs_inline_ && work.may_inline;
  has_team_ = has_team_ || work.MayHaveTeam();
  work_ns_ += work.work_ns;
  return Append(std::move(node), stream, std::move(after));
}

uint32_t Graph::AddRecord(Event* event, uint64_t event_handle, const Stream* stream,
                          std::vector<uint32_t> after) {
  Node node{};
  node.kind = Command::kStep;
  node.place = Command::kAnywhere;
  node.event = event;
  node.event_handle = event_handle;
  timed_.push_back(static_cast<uint32_t>(nodes_.size()));
  return Append(std::move(node), stream, std::move(after));
}

uint32_t Graph::FindUnjoined(const std::vector<uint32_t>& heads) const {
  std::vector<bool> joined(nodes_.size(), false);
  for (const uint32_t head : heads) {
    joined[head] = true;
  }
  for (size_t index = nodes_.size(); index-- > 0;) {
    if (!joined[index]) {
      return static_cast<uint32_t>(index);  // only later nodes could depend on this node
    }
    for (const uint32_t before : nodes_[index].after) {
      joined[before] = true;
    }
  }
  return static_cast<uint32_t>(nodes_.size());
}

const char* Graph::NameOf(uint32_t index) const {
  const Node& node = nodes_[index];
  switch (node.kind) {
    case Command::kHostFunction:
      return "(host function)";
    case Command::kStep:
      return "(timed event)";
    default:
      return node.name != nullptr ? node.name : "(unnamed)";
  }
}

void Graph::Run(Node& node, Stream* stream, ErrorSink* sink, bool with_team) {
  switch (node.kind) {
    case Command::kKernel:
    case Command::kCopy: {
      alignas(kArgumentAlignment) unsigned char copy[OPENREG_MAX_ARGUMENT_BYTES];
      if (node.size != 0) {
        std::memcpy(copy, arguments_.data() + node.arguments, node.size);
      }
      stream->RunQueuedKernel(node.kind, node.kernel, copy, node.name, sink, with_team);
      break;
    }
    case Command::kHostFunction:
      stream->RunHostFunction(node.function, node.data, "(host function)", sink);
      break;
    case Command::kStep:
      if (node.event->handle.load(std::memory_order_acquire) == node.event_handle) {
        node.event->Stamp(std::atomic_ref(node.record).load(std::memory_order_relaxed));
      }
      break;
    case Command::kWait:
      break;  // waits are never added as nodes
  }
}

void Graph::RunRecorded(Node& node, Stream* stream, ErrorSink* sink, bool with_team,
                        const orActivity& replay) {
  if (node.kind == Command::kStep) {
    // Recording an event takes no time, so it is not recorded as activity.
    Run(node, stream, sink, with_team);
    return;
  }
  orActivity record = replay;
  DescribeWork(node.kind, node.name, node.copy ? &*node.copy : nullptr, &record);
  record.node = static_cast<int32_t>(&node - nodes_.data());
  record.start_ns = ActivityTime();
  Run(node, stream, sink, with_team);
  record.end_ns = ActivityTime();
  WriteActivity(record);
}

orError_t Graph::RunAll(void* arguments) {
  const auto& [graph, record] = *static_cast<InlineReplay*>(arguments);
  ThreadState& thread = thread_state;
  Stream* stream = thread.running;
  ErrorSink* sink = thread.sink;
  for (Node& node : graph->nodes_) {
    thread.device = node.device;
    if (record != nullptr) [[unlikely]] {
      graph->RunRecorded(node, stream, sink, /*with_team=*/false, *record);
    } else {
      graph->Run(node, stream, sink, /*with_team=*/false);
    }
  }
  return orSuccess;
}

bool Graph::RunSome(Stream* stream, Command* replay, bool with_team) {
  auto* const graph = static_cast<Graph*>(replay->data);
  std::vector<Node>& nodes = graph->nodes_;
  uint64_t index = replay->position;
  const uint64_t end = std::min<uint64_t>(
      index + (replay->place == Command::kAnywhere ? kShortBatch : 1), nodes.size());
  for (; index < end && nodes[index].place == replay->place; ++index) {
    thread_state.device = nodes[index].device;
    if (replay->recorded) [[unlikely]] {
      graph->RunRecorded(nodes[index], stream, replay->sink, with_team, stream->activity(*replay));
    } else {
      graph->Run(nodes[index], stream, replay->sink, with_team);
    }
  }
  replay->position = index;
  if (index < nodes.size()) {
    replay->place = nodes[index].place;
    return false;
  }
  if (replay->recorded) {
    EndPendingRecords();
  }
  // The release may free memory but must not wait: a wait for this stream would last forever.
  thread_state.releasing = true;
  stream->RunHostFunction([](void* over) { static_cast<Graph*>(over)->Release(); }, graph,
                          "(release of a graph)", replay->sink);
  thread_state.releasing = false;
  return true;
}

// Queues the command of the replay. The caller must hold launch_.
orError_t Graph::QueueReplay(const StreamQueue& queue, ErrorSink* sink, uint64_t* position,
                             const orActivity* record) {
  Retain();
  const orError_t error = queue.Enqueue(position, [&](Command& command) {
    command.kind = Command::kStep;
    command.place = nodes_[0].place;
    command.name = nullptr;
    command.step = &RunSome;
    command.data = this;
    command.position = 0;
    command.work_before = queue.stream()->AddWork(work_ns_);
    command.sink = sink;
    if (record != nullptr) {
      queue.stream()->Record(&command, *record);
    }
  });
  if (error != orSuccess) {
    Release();
  }
  return error;
}

orError_t Graph::Launch(const StreamQueue& queue) {
  Stream* const stream = queue.stream();
  CallActivity call("orGraphLaunch");
  call.SetStream(stream->device(), stream->index);
  call.SetGraph(number_);
  const uint32_t now = mode.load(std::memory_order_relaxed);
  const bool blocking = (now & kBlocking) != 0;
  if (has_team_) {
    if (const orError_t error = Executor::Get().Start(); error != orSuccess) {
      return error;
    }
  }
  std::unique_ptr<ErrorSink> own = blocking ? std::make_unique<ErrorSink>() : nullptr;
  ErrorSink* sink = blocking ? own.get() : &stream->sink();
  uint64_t position = stream->tail();
  {
    // The thread that holds launch_ may wait for room in the queue.
    const auto lock = LockForWait(launch_);
    if (nodes_.empty()) {
      return orSuccess;
    }
    if (last_stream_ != nullptr && last_stream_ != stream &&
        last_stream_->done() < last_position_) {
      if (const orError_t error = queue.EnqueueWait(last_stream_, last_position_);
          error != orSuccess) {
        return error;
      }
    }
    for (const uint32_t index : timed_) {
      Node& node = nodes_[index];
      if (node.event->handle.load(std::memory_order_acquire) == node.event_handle) {
        std::atomic_ref(node.record).store(node.event->NewRecord(), std::memory_order_relaxed);
      }
    }
    const std::optional<orActivity> record =
        call.active() ? std::optional(call.ForWork()) : std::nullopt;
    const InlineReplay self{this, record ? &*record : nullptr};
    const bool ran = runs_inline_ && (now & kInjecting) == 0 &&
                     queue.TryInline(RunAll, &self, sizeof(self), "(graph)", sink);
    if (!ran) {
      if (const orError_t error = QueueReplay(queue, sink, &position, self.record);
          error != orSuccess) {
        return error;
      }
    }
    last_stream_ = stream;
    last_position_ = position;
    for (const uint32_t index : timed_) {
      const Node& node = nodes_[index];
      if (node.event->handle.load(std::memory_order_acquire) == node.event_handle) {
        node.event->Note(stream, position);
      }
    }
    if (!blocking || ran) {
      return blocking ? ReportKernelError(*own) : orSuccess;
    }
  }
  if (!stream->WaitFor(position)) {
    (void)own.release();  // leaked, because a kernel may still be running while the process exits
    return Fail(orErrorShutdown,
                "orGraphLaunch: the graph was dropped because the process is exiting");
  }
  return ReportKernelError(*own);
}

orError_t Graph::Draw(const char* path) const {
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) {
    return Fail(orErrorSystem, "orGraphDebugDotPrint: cannot open %s for writing: %s", path,
                std::strerror(errno));
  }
  std::fprintf(file, "digraph openreg {\n  node [shape=box];\n");
  for (uint32_t index = 0; index < nodes_.size(); ++index) {
    std::fprintf(file, "  n%u [label=\"%u: %s\\ndevice %d, stream %u\"];\n", index, index,
                 NameOf(index), nodes_[index].device, nodes_[index].stream);
    for (const uint32_t before : nodes_[index].after) {
      std::fprintf(file, "  n%u -> n%u;\n", before, index);
    }
  }
  std::fprintf(file, "}\n");
  const bool written = std::ferror(file) == 0;
  if (std::fclose(file) != 0 || !written) {
    return Fail(orErrorSystem, "orGraphDebugDotPrint: %s was not written completely: %s", path,
                std::strerror(errno));
  }
  return orSuccess;
}

Graphs& Graphs::Get() {
  static Graphs& graphs = *new Graphs;  // never destroyed, like the streams
  return graphs;
}

orError_t Graphs::Create(Graph* graph, orGraph_t* handle) {
  GraphSlot* slot = table_.Take();
  if (slot == nullptr) {
    return table_.FailTake("a graph", "graphs");
  }
  std::lock_guard lock(mutex_);
  slot->graph = graph;
  *handle = reinterpret_cast<orGraph_t>(table_.Publish(slot));
  return orSuccess;
}

Graph* Graphs::Find(orGraph_t handle) {
  std::lock_guard lock(mutex_);
  GraphSlot* slot = table_.Find(reinterpret_cast<uint64_t>(handle));
  if (slot == nullptr) {
    return nullptr;
  }
  slot->graph->Retain();
  return slot->graph;
}

orError_t Graphs::Destroy(orGraph_t handle) {
  Graph* graph = nullptr;
  {
    std::lock_guard lock(mutex_);
    GraphSlot* slot = table_.Find(reinterpret_cast<uint64_t>(handle));
    if (slot == nullptr || !table_.Retire(slot, reinterpret_cast<uint64_t>(handle))) {
      return Fail(orErrorInvalidHandle,
                  "orGraphDestroy: %p is not a valid graph; it may have been destroyed",
                  static_cast<void*>(handle));
    }
    graph = std::exchange(slot->graph, nullptr);
    table_.Recycle(slot);
  }
  graph->Release();
  return orSuccess;
}

void Graphs::DestroyAll(int device) {
  for (uint32_t index = 0; index < table_.size(); ++index) {
    uint64_t handle = 0;
    {
      std::lock_guard lock(mutex_);
      const GraphSlot* slot = table_.At(index);
      if (slot->graph != nullptr && slot->graph->device() == device) {
        handle = slot->handle.load(std::memory_order_acquire);
      }
    }
    if (handle != 0) {
      (void)Destroy(
          reinterpret_cast<orGraph_t>(handle));  // fails if another thread destroyed it first
    }
  }
}

}  // namespace openreg::device
