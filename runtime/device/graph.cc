// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/graph.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "runtime/device/error.h"
#include "runtime/device/executor.h"
#include "runtime/device/host_wait.h"
#include "runtime/device/injected_fault.h"
#include "runtime/device/kernel_error.h"
#include "runtime/device/thread.h"

namespace openreg::device {
namespace {

// So many short kernels of a graph run before the stream's consumer looks around.
constexpr uint64_t kTogether = 64;

constexpr size_t kArgumentAlignment = 16;

}  // namespace

// --------------------------------------------------------------------------------------- the graph

Graph::~Graph() {
  for (Node& node : nodes_) {
    if (node.release != nullptr) {
      node.release(arguments_.data() + node.arguments);
    }
  }
}

void Graph::Release() {
  if (owners_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    delete this;  // handles and queued commands own it, which destroy nothing by themselves
  }
}

uint32_t Graph::Add(const CapturedCommand& command, const Stream* stream,
                    std::vector<uint32_t> after) {
  Node node{};
  node.kind = command.kind;
  node.place = command.place;
  node.device = stream->device();
  node.name = command.name;
  node.kernel = command.kernel;
  node.arguments = arguments_.size();
  node.size = command.size;
  node.release = command.release;
  node.function = command.function;
  node.data = command.data;
  node.event = command.event;
  node.event_handle = command.event_handle;
  node.stream = stream->index;
  node.after = std::move(after);
  arguments_.resize((arguments_.size() + command.size + kArgumentAlignment - 1) /
                    kArgumentAlignment * kArgumentAlignment);
  if (command.size != 0) {
    std::memcpy(arguments_.data() + node.arguments, command.arguments, command.size);
  }
  runs_inline_ = runs_inline_ && command.runs_inline;
  has_team_ =
      has_team_ || command.place == Command::kOnExecutor || command.place == Command::kMoldable;
  work_ns_ += command.work_ns;
  const auto index = static_cast<uint32_t>(nodes_.size());
  if (command.event != nullptr) {
    timed_.push_back(index);
  }
  nodes_.push_back(std::move(node));
  return index;
}

uint32_t Graph::FindUnjoined(const std::vector<uint32_t>& heads) const {
  std::vector<bool> joined(nodes_.size(), false);
  for (const uint32_t head : heads) {
    joined[head] = true;
  }
  for (size_t index = nodes_.size(); index-- > 0;) {
    if (!joined[index]) {
      return static_cast<uint32_t>(index);  // all that could depend on it stands behind it
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
    case Command::kTimestamp:
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
      stream->RunHostFunction(node.function, node.data, sink);
      break;
    case Command::kTimestamp:
      if (node.event->handle.load(std::memory_order_acquire) == node.event_handle) {
        node.event->Stamp(std::atomic_ref(node.record).load(std::memory_order_relaxed));
      }
      break;
    case Command::kWait:
    case Command::kReplay:
      break;  // never captured
  }
}

orError_t Graph::RunAll(void* arguments) {
  auto* graph = *static_cast<Graph**>(arguments);
  ThreadState& thread = thread_state;
  Stream* stream = thread.running;
  ErrorSink* sink = thread.sink;
  for (Node& node : graph->nodes_) {
    thread.device = node.device;
    graph->Run(node, stream, sink, /*with_team=*/false);
  }
  return orSuccess;
}

bool Graph::RunSome(Stream* stream, Command* replay, bool with_team) {
  uint64_t index = replay->position;
  const uint64_t end = std::min<uint64_t>(
      index + (replay->place == Command::kAnywhere ? kTogether : 1), nodes_.size());
  for (; index < end && nodes_[index].place == replay->place; ++index) {
    thread_state.device = nodes_[index].device;
    Run(nodes_[index], stream, replay->sink, with_team);
  }
  replay->position = index;
  if (index < nodes_.size()) {
    replay->place = nodes_[index].place;
    return false;
  }
  return true;
}

// Called with launch_ held.
orError_t Graph::QueueReplay(Stream* stream, uint64_t expected, ErrorSink* sink,
                             uint64_t* position) {
  Retain();
  const orError_t error = stream->Enqueue(expected, position, [&](Command& command) {
    command.kind = Command::kReplay;
    command.place = nodes_[0].place;
    command.name = nullptr;
    command.graph = this;
    command.position = 0;
    command.work_before = stream->AddWork(work_ns_);
    command.sink = sink;
  });
  if (error != orSuccess) {
    Release();
  }
  return error;
}

orError_t Graph::Launch(Stream* stream, uint64_t expected) {
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
    const auto lock = LockForWait(launch_);  // the holder may wait for room in the queue
    if (nodes_.empty()) {
      return orSuccess;
    }
    if (last_stream_ != nullptr && last_stream_ != stream &&
        last_stream_->done() < last_position_) {
      if (const orError_t error = stream->EnqueueWait(expected, last_stream_, last_position_);
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
    Graph* self = this;
    const bool ran = runs_inline_ && (now & kInjecting) == 0 &&
                     stream->TryInline(expected, RunAll, &self, sizeof(self), "(graph)", sink);
    if (!ran) {
      if (const orError_t error = QueueReplay(stream, expected, sink, &position);
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
    (void)own.release();  // a kernel may be running still, and the process ends anyway
    return Fail(orErrorShutdown, "orGraphLaunch: the graph was dropped: the process exits");
  }
  return ReportKernelError(*own);
}

orError_t Graph::Draw(const char* path) const {
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) {
    return Fail(orErrorSystem, "orGraphDebugDotPrint: %s can not be written: %s", path,
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
    return Fail(orErrorSystem, "orGraphDebugDotPrint: %s was not written as a whole: %s", path,
                std::strerror(errno));
  }
  return orSuccess;
}

Graphs& Graphs::Get() {
  static Graphs& graphs = *new Graphs;  // never destroyed, as the streams
  return graphs;
}

orError_t Graphs::Create(Graph* graph, orGraph_t* handle) {
  GraphSlot* slot = table_.Take();
  if (slot == nullptr) {
    return Fail(orErrorSystem, "a graph can not be kept: %u exist already; destroy some",
                table_.kCapacity);
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
      return Fail(orErrorInvalidHandle, "orGraphDestroy: %p is not a graph, or it was destroyed",
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
      (void)Destroy(reinterpret_cast<orGraph_t>(handle));  // fails if another thread was faster
    }
  }
}

// ------------------------------------------------------------------------------------- the
// captures

class Capture {
 public:
  struct Branch {
    Stream* stream;
    std::vector<uint32_t> heads;  // what its next command depends on
  };

  Branch& Of(const Stream* stream) {
    return *std::find_if(branches.begin(), branches.end(),
                         [&](const Branch& branch) { return branch.stream == stream; });
  }

  // Keeps the first reason, and fails with it or with what became of it.
  [[gnu::format(printf, 3, 4)]] orError_t Invalidate(orError_t error, const char* format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (valid()) {
      invalid = error;
      reason = text;
    }
    return Fail(error, "%s. The capture is invalid now; end it (orStreamEndCapture)", text);
  }

  // For a call that would go on with the capture.
  orError_t CheckValid(const char* function) const {
    return valid() ? orSuccess
                   : Fail(orErrorCaptureInvalidated,
                          "%s: the capture of this stream is invalid; end it "
                          "(orStreamEndCapture). The reason was: %s",
                          function, reason.c_str());
  }

  bool valid() const { return invalid == orSuccess; }

  uint64_t id = 0;
  orStreamCaptureMode mode = orStreamCaptureModeGlobal;
  const ThreadState* owner = nullptr;
  Stream* origin = nullptr;
  std::vector<Branch> branches;                                // the origin first
  std::unordered_map<uint64_t, std::vector<uint32_t>> events;  // what each captured
  orError_t invalid = orSuccess;
  std::string reason;
  Graph* graph = nullptr;
};

namespace {

void Merge(std::vector<uint32_t>* heads, const std::vector<uint32_t>& more) {
  for (const uint32_t head : more) {
    if (std::find(heads->begin(), heads->end(), head) == heads->end()) {
      heads->push_back(head);
    }
  }
}

const void* HandleOf(const Stream* stream) {
  return reinterpret_cast<const void*>(stream->handle.load(std::memory_order_relaxed));
}

}  // namespace

Captures& Captures::Get() {
  static Captures& captures = *new Captures;  // never destroyed, as the streams
  return captures;
}

Capture* Captures::OfEvent(uint64_t handle) const {
  for (const std::unique_ptr<Capture>& capture : captures_) {
    if (capture->events.contains(handle)) {
      return capture.get();
    }
  }
  return nullptr;
}

orError_t Captures::Begin(Stream* stream, uint64_t expected, orStreamCaptureMode capture_mode) {
  auto capture = std::make_unique<Capture>();
  std::lock_guard lock(mutex_);
  if (stream->capture() != nullptr) {
    return Fail(orErrorInvalidValue,
                "orStreamBeginCapture: stream %p is part of a capture already; end that first",
                HandleOf(stream));
  }
  if (stream->handle.load(std::memory_order_relaxed) != expected) {
    return Fail(orErrorInvalidHandle, "orStreamBeginCapture: stream %p was destroyed meanwhile",
                reinterpret_cast<void*>(expected));
  }
  capture->id = ++last_id_;
  capture->mode = capture_mode;
  capture->owner = &thread_state;
  capture->origin = stream;
  capture->graph = new Graph(stream->device());  // deleted by Release
  capture->branches.push_back({stream, {}});
  stream->set_capture(capture.get());
  captures_.push_back(std::move(capture));
  mode.fetch_or(kCapturing, std::memory_order_seq_cst);
  return orSuccess;
}

void Captures::Drop(Capture* capture) {
  for (const Capture::Branch& branch : capture->branches) {
    branch.stream->set_capture(nullptr);
  }
  std::erase_if(captures_, [&](const auto& owned) { return owned.get() == capture; });
  if (captures_.empty()) {
    mode.fetch_and(~uint32_t{kCapturing}, std::memory_order_seq_cst);
  }
}

orError_t Captures::End(Stream* stream, orGraph_t* handle) {
  *handle = nullptr;
  Graph* graph = nullptr;
  orError_t error = orSuccess;
  {
    std::lock_guard lock(mutex_);
    Capture* capture = stream->capture();
    if (capture == nullptr) {
      return Fail(orErrorInvalidValue, "orStreamEndCapture: stream %p is not captured",
                  HandleOf(stream));
    }
    if (capture->origin != stream) {
      return Fail(orErrorInvalidValue,
                  "orStreamEndCapture: stream %p has joined the capture of stream %p; end it there",
                  HandleOf(stream), HandleOf(capture->origin));
    }
    if (capture->mode != orStreamCaptureModeRelaxed && capture->owner != &thread_state) {
      return Fail(orErrorCaptureWrongThread,
                  "orStreamEndCapture: another thread began the capture of stream %p, and has to "
                  "end it, unless it is relaxed",
                  HandleOf(stream));
    }
    graph = capture->graph;
    if (capture->valid()) {
      const uint32_t node = graph->FindUnjoined(capture->Of(stream).heads);
      if (node < graph->size()) {
        error = Fail(
            orErrorCaptureUnjoined,
            "orStreamEndCapture: the work of stream %p was not joined, its last command is %s: "
            "before the end, record an event on it and have stream %p wait for that",
            HandleOf(Streams::Get().At(graph->StreamOf(node))), graph->NameOf(node),
            HandleOf(stream));
      }
    } else {
      error = Fail(orErrorCaptureInvalidated,
                   "orStreamEndCapture: the capture is invalid, and gives no graph. The reason "
                   "was: %s",
                   capture->reason.c_str());
    }
    Drop(capture);
  }
  if (error == orSuccess) {
    error = Graphs::Get().Create(graph, handle);
  }
  if (error != orSuccess) {
    graph->Release();
  }
  return error;
}

void Captures::Describe(const Stream* stream, orStreamCaptureStatus* status, uint64_t* id) {
  std::lock_guard lock(mutex_);
  const Capture* capture = stream->capture();
  *status = capture == nullptr ? orStreamCaptureStatusNone
            : capture->valid() ? orStreamCaptureStatusActive
                               : orStreamCaptureStatusInvalidated;
  if (id != nullptr) {
    *id = capture != nullptr ? capture->id : 0;
  }
}

std::optional<orError_t> Captures::Add(const char* function, Stream* stream,
                                       const CapturedCommand& command) {
  std::lock_guard lock(mutex_);
  Capture* capture = stream->capture();
  if (capture == nullptr) {
    return std::nullopt;
  }
  if (const orError_t error = capture->CheckValid(function); error != orSuccess) {
    return error;
  }
  std::vector<uint32_t>& heads = capture->Of(stream).heads;
  const uint32_t node = capture->graph->Add(command, stream, heads);
  heads.assign(1, node);
  return orSuccess;
}

std::optional<orError_t> Captures::Record(const char* function, Event* event, uint64_t handle,
                                          Stream* stream) {
  std::lock_guard lock(mutex_);
  Capture* capture = stream->capture();
  if (capture == nullptr) {
    return std::nullopt;
  }
  if (const orError_t error = capture->CheckValid(function); error != orSuccess) {
    return error;
  }
  if (event->scope() != Event::Scope::kProcess) {
    return capture->Invalidate(orErrorCaptureUnsupported,
                               "%s: stream %p is captured, and an event between processes can not "
                               "be part of a graph: record it before or after the capture",
                               function, HandleOf(stream));
  }
  for (const std::unique_ptr<Capture>& other : captures_) {
    other->events.erase(handle);
  }
  std::vector<uint32_t>& heads = capture->Of(stream).heads;
  if (event->timed()) {
    CapturedCommand command{};
    command.kind = Command::kTimestamp;
    command.place = Command::kAnywhere;
    command.runs_inline = true;
    command.event = event;
    command.event_handle = handle;
    heads.assign(1, capture->graph->Add(command, stream, heads));
  }
  capture->events[handle] = heads;
  event->NoteCaptured();
  return orSuccess;
}

std::optional<orError_t> Captures::Wait(const char* function, Stream* stream, const Event* event,
                                        uint64_t handle, const Event::Capture& recorded_by) {
  std::lock_guard lock(mutex_);
  Capture* waiting = stream->capture();
  if (waiting != nullptr) {
    if (const orError_t error = waiting->CheckValid(function); error != orSuccess) {
      return error;
    }
  }
  if (waiting != nullptr && event->scope() == Event::Scope::kImported) {
    return waiting->Invalidate(orErrorCaptureIsolation,
                               "%s: stream %p is captured, and the event is another process's: a "
                               "replay could not wait for "
                               "it; wait for it before or after the capture",
                               function, HandleOf(stream));
  }
  if (!recorded_by.captured()) {
    if (waiting == nullptr || !recorded_by.recorded()) {
      return std::nullopt;
    }
    return waiting->Invalidate(
        orErrorCaptureIsolation,
        "%s: stream %p is captured, and the event was recorded outside of the capture: a replay "
        "could not wait for it; wait for it before the capture, or record it within",
        function, HandleOf(stream));
  }
  Capture* recorded = OfEvent(handle);
  if (recorded == nullptr) {
    static constexpr char kOver[] =
        "%s: the event was recorded in a capture that has ended, and stands for nothing outside of "
        "it; record it again, or synchronize with the stream that the graph is replayed on";
    return waiting != nullptr ? waiting->Invalidate(orErrorCaptureIsolation, kOver, function)
                              : Fail(orErrorCaptureIsolation, kOver, function);
  }
  if (const orError_t error = recorded->CheckValid(function); error != orSuccess) {
    return error;
  }
  const std::vector<uint32_t>& heads = recorded->events[handle];
  if (waiting == nullptr) {
    recorded->branches.push_back({stream, heads});
    stream->set_capture(recorded);
  } else if (waiting == recorded) {
    Merge(&waiting->Of(stream).heads, heads);
  } else {
    static constexpr char kTwo[] =
        "%s: the event was recorded in one capture, and stream %p is part of another: captures can "
        "not be merged";
    (void)recorded->Invalidate(orErrorCaptureIsolation, kTwo, function, HandleOf(stream));
    return waiting->Invalidate(orErrorCaptureIsolation, kTwo, function, HandleOf(stream));
  }
  return orSuccess;
}

std::optional<orError_t> Captures::RefuseStream(const char* function, const Stream* stream,
                                                const char* why) {
  std::lock_guard lock(mutex_);
  Capture* capture = stream->capture();
  if (capture == nullptr) {
    return std::nullopt;
  }
  return capture->Invalidate(orErrorCaptureUnsupported, "%s: stream %p is captured, %s", function,
                             HandleOf(stream), why);
}

std::optional<orError_t> Captures::RefuseDevice(const char* function, int device) {
  std::lock_guard lock(mutex_);
  std::optional<orError_t> refused;
  for (const std::unique_ptr<Capture>& capture : captures_) {
    for (const Capture::Branch& branch : capture->branches) {
      if (branch.stream->device() == device) {
        refused = capture->Invalidate(
            orErrorCaptureUnsupported,
            "%s: stream %p of device %d is captured, so the device can not be waited for: do it "
            "before or after the capture",
            function, HandleOf(branch.stream), device);
        break;
      }
    }
  }
  return refused;
}

std::optional<orError_t> Captures::RefuseUnsafe(const char* function) {
  const uint8_t own = thread_state.capture_mode;
  if (own == orStreamCaptureModeRelaxed) {
    return std::nullopt;
  }
  std::lock_guard lock(mutex_);
  std::optional<orError_t> refused;
  for (const std::unique_ptr<Capture>& capture : captures_) {
    const bool forbidden =
        capture->owner == &thread_state
            ? capture->mode != orStreamCaptureModeRelaxed
            : capture->mode == orStreamCaptureModeGlobal && own == orStreamCaptureModeGlobal;
    if (forbidden) {
      refused = capture->Invalidate(
          orErrorCaptureUnsupported,
          "%s: stream %p is captured in mode %s, which does not allow this call %s: do it before "
          "or "
          "after the capture, or begin that in another mode",
          function, HandleOf(capture->origin),
          capture->mode == orStreamCaptureModeGlobal ? "global" : "thread_local",
          capture->mode == orStreamCaptureModeGlobal ? "in any thread" : "in this thread");
    }
  }
  return refused;
}

orError_t Captures::RefuseEvent(const char* function, uint64_t handle) {
  std::lock_guard lock(mutex_);
  if (Capture* capture = OfEvent(handle); capture != nullptr) {
    return capture->Invalidate(
        orErrorCaptureUnsupported,
        "%s: the event was recorded in a capture, which runs nothing: there is nothing to wait for",
        function);
  }
  return Fail(
      orErrorCaptureUnsupported,
      "%s: the event was recorded in a capture, and no replay has recorded it since (replays "
      "record timed events)",
      function);
}

}  // namespace openreg::device

using openreg::device::Captures;
using openreg::device::Capturing;
using openreg::device::EnterQuery;
using openreg::device::EnterRelease;
using openreg::device::EnterStream;
using openreg::device::Fail;
using openreg::device::FindStream;
using openreg::device::Graph;
using openreg::device::Graphs;
using openreg::device::kAllowedInCapture;
using openreg::device::LeftBehind;
using openreg::device::Stream;
using openreg::device::thread_state;

namespace {

// The graph of a handle, for as long as the object lives.
class FoundGraph {
 public:
  explicit FoundGraph(orGraph_t handle) : graph_(Graphs::Get().Find(handle)) {}
  ~FoundGraph() {
    if (graph_ != nullptr) {
      graph_->Release();
    }
  }
  FoundGraph(const FoundGraph&) = delete;
  FoundGraph& operator=(const FoundGraph&) = delete;

  orError_t Check(const char* function, orGraph_t handle) const {
    return graph_ != nullptr
               ? orSuccess
               : Fail(orErrorInvalidHandle, "%s: %p is not a graph, or it was destroyed", function,
                      static_cast<void*>(handle));
  }
  Graph* operator->() const { return graph_; }

 private:
  Graph* const graph_;
};

bool IsMode(orStreamCaptureMode mode) {
  return mode >= orStreamCaptureModeGlobal && mode <= orStreamCaptureModeRelaxed;
}

}  // namespace

orError_t orThreadExchangeStreamCaptureMode(orStreamCaptureMode* mode) {
  if (mode == nullptr || !IsMode(*mode)) {
    return Fail(orErrorInvalidValue,
                "orThreadExchangeStreamCaptureMode: mode is null or none of orStreamCaptureMode");
  }
  const auto before = static_cast<orStreamCaptureMode>(thread_state.capture_mode);
  thread_state.capture_mode = static_cast<uint8_t>(*mode);
  *mode = before;
  return orSuccess;
}

orError_t orStreamBeginCapture(orStream_t handle, orStreamCaptureMode mode) {
  Stream* stream;
  uint64_t expected;
  if (const orError_t error =
          EnterStream("orStreamBeginCapture", handle, kAllowedInCapture, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  if (!IsMode(mode)) {
    return Fail(orErrorInvalidValue, "orStreamBeginCapture: mode %d is none of orStreamCaptureMode",
                static_cast<int>(mode));
  }
  return Captures::Get().Begin(stream, expected, mode);
}

orError_t orStreamEndCapture(orStream_t handle, orGraph_t* graph) {
  Stream* stream;
  uint64_t expected;
  if (const orError_t error =
          EnterStream("orStreamEndCapture", handle, kAllowedInCapture, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  if (graph == nullptr) {
    return Fail(orErrorInvalidValue,
                "orStreamEndCapture: graph is null: where should the handle go?");
  }
  return Captures::Get().End(stream, graph);
}

orError_t orStreamGetCaptureInfo(orStream_t handle, orStreamCaptureStatus* status, uint64_t* id) {
  Stream* stream;
  uint64_t expected;
  if (const orError_t error = EnterQuery("orStreamGetCaptureInfo"); error != orSuccess) {
    return error;
  }
  if (const orError_t error =
          FindStream("orStreamGetCaptureInfo", handle, kAllowedInCapture, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  if (status == nullptr) {
    return Fail(orErrorInvalidValue, "orStreamGetCaptureInfo: status is null");
  }
  if (Capturing() && stream->capture() != nullptr) {
    Captures::Get().Describe(stream, status, id);
    return orSuccess;
  }
  *status = orStreamCaptureStatusNone;
  if (id != nullptr) {
    *id = 0;
  }
  return orSuccess;
}

orError_t orGraphLaunch(orGraph_t handle, orStream_t stream_handle) {
  Stream* stream;
  uint64_t expected;
  constexpr openreg::device::WhenCaptured kNested{
      "and graphs do not nest: replay it after the capture"};
  if (const orError_t error =
          EnterStream("orGraphLaunch", stream_handle, kNested, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  const FoundGraph graph(handle);
  if (const orError_t error = graph.Check("orGraphLaunch", handle); error != orSuccess) {
    return error;
  }
  if (graph->device() != stream->device()) {
    return Fail(
        orErrorInvalidDevice,
        "orGraphLaunch: the graph was captured on device %d, the stream is one of device %d",
        graph->device(), stream->device());
  }
  return graph->Launch(stream, expected);
}

orError_t orGraphDestroy(orGraph_t graph) {
  if (LeftBehind()) {
    return orSuccess;
  }
  if (const orError_t error = EnterRelease("orGraphDestroy"); error != orSuccess) {
    return error;
  }
  return Graphs::Get().Destroy(graph);
}

orError_t orGraphGetNodeCount(orGraph_t handle, size_t* count) {
  if (const orError_t error = EnterQuery("orGraphGetNodeCount"); error != orSuccess) {
    return error;
  }
  const FoundGraph graph(handle);
  if (const orError_t error = graph.Check("orGraphGetNodeCount", handle); error != orSuccess) {
    return error;
  }
  if (count == nullptr) {
    return Fail(orErrorInvalidValue, "orGraphGetNodeCount: count is null");
  }
  *count = graph->size();
  return orSuccess;
}

orError_t orGraphDebugDotPrint(orGraph_t handle, const char* path) {
  if (const orError_t error = EnterQuery("orGraphDebugDotPrint"); error != orSuccess) {
    return error;
  }
  const FoundGraph graph(handle);
  if (const orError_t error = graph.Check("orGraphDebugDotPrint", handle); error != orSuccess) {
    return error;
  }
  if (path == nullptr) {
    return Fail(orErrorInvalidValue, "orGraphDebugDotPrint: path is null");
  }
  return graph->Draw(path);
}
