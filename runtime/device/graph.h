// SPDX-License-Identifier: BSD-3-Clause
//
// graph.h - captures and graphs.
//
// A capture keeps what is queued on its streams as the nodes of a graph. Nodes stand in the order
// of their capture. Every node comes after those it depends on, so that order is one in which a
// single stream can run them: a replay is one command of its stream, which runs some nodes each
// time the stream's consumer comes to it (RunSome) and is done after the last one. What depends on
// what is kept for the check that all branches were joined, and for the drawing.
//
// A Capture belongs to Captures, from Begin to End; one lock, of Captures, guards them all: a
// capture is not a hot path. Whether any capture goes on is a bit of the process's mode
// (kCapturing), and whether a stream is part of one a word of the stream, so that other launches
// pay nothing.
//
// A Graph is owned by its handle and by each replay that is queued, and is deleted with the last of
// them. Its nodes do not change once the capture has ended. All functions may be called from every
// thread; RunSome and RunAll only by who runs commands of the stream.
#ifndef RUNTIME_DEVICE_GRAPH_H_
#define RUNTIME_DEVICE_GRAPH_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/device/event.h"
#include "runtime/device/handle.h"
#include "runtime/device/openreg_emulation.h"
#include "runtime/device/process.h"
#include "runtime/device/stream.h"

namespace openreg::device {

// A command that is captured.
struct CapturedCommand {
  Command::Kind kind;
  Command::Place place;
  bool runs_inline;  // may run on the thread that launches the graph
  const char* name;
  orKernelFunction_t kernel = nullptr;
  const void* arguments = nullptr;
  size_t size = 0;
  void (*release)(void*) = nullptr;
  uint32_t work_ns = 0;
  orHostFn_t function = nullptr;
  void* data = nullptr;  // of the function
  Event* event = nullptr;
  uint64_t event_handle = 0;
};

class Graph {
 public:
  explicit Graph(int device) : device_(device) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  int device() const { return device_; }
  size_t size() const { return nodes_.size(); }

  void Retain() { owners_.fetch_add(1, std::memory_order_relaxed); }
  void Release();

  // Adds a node behind `after`. Only by the capture.
  uint32_t Add(const CapturedCommand& command, const Stream* stream, std::vector<uint32_t> after);
  // A node that nothing in `heads` depends on, neither directly nor through others; or size().
  uint32_t FindUnjoined(const std::vector<uint32_t>& heads) const;
  uint32_t StreamOf(uint32_t node) const { return nodes_[node].stream; }
  const char* NameOf(uint32_t node) const;

  orError_t Launch(Stream* stream, uint64_t expected);

  // Runs the next nodes of a replay. True when it is over.
  bool RunSome(Stream* stream, Command* replay, bool with_team);

  orError_t Draw(const char* path) const;

 private:
  struct Node {
    Command::Kind kind;
    Command::Place place;
    int device;
    const char* name;
    orKernelFunction_t kernel;
    size_t arguments;  // place in arguments_
    size_t size;
    void (*release)(void*);
    orHostFn_t function;
    void* data;
    Event* event;
    uint64_t event_handle;
    uint64_t record;  // of the event, by the latest replay
    uint32_t stream;  // index
    std::vector<uint32_t> after;
  };

  ~Graph();
  static orError_t RunAll(void* graph);
  void Run(Node& node, Stream* stream, ErrorSink* sink, bool with_team);
  orError_t QueueReplay(Stream* stream, uint64_t expected, ErrorSink* sink, uint64_t* position);

  const int device_;
  std::vector<Node> nodes_;
  std::vector<unsigned char> arguments_;  // each node's at a multiple of 16
  bool runs_inline_ = true;               // all nodes may
  bool has_team_ = false;                 // some node wants one
  uint64_t work_ns_ = 0;
  std::vector<uint32_t> timed_;  // nodes that record an event
  std::atomic<uint32_t> owners_{1};

  std::mutex launch_;  // replays are queued one after the other
  Stream* last_stream_ = nullptr;
  uint64_t last_position_ = 0;
};

// A graph as its handle knows it.
struct GraphSlot : HandleSlot {
  Graph* graph = nullptr;
};

class Graphs {
 public:
  static Graphs& Get();
  orError_t Create(Graph* graph, orGraph_t* handle);  // takes over the graph if it succeeds
  // The graph with one more owner; null if the handle names none.
  Graph* Find(orGraph_t handle);
  orError_t Destroy(orGraph_t handle);
  void DestroyAll(int device);

 private:
  std::mutex mutex_;  // of the graphs in the slots
  HandleTable<GraphSlot, 16, 3> table_;
};

class Capture;

class Captures {
 public:
  static Captures& Get();

  orError_t Begin(Stream* stream, uint64_t expected, orStreamCaptureMode mode);
  orError_t End(Stream* stream, orGraph_t* handle);
  void Describe(const Stream* stream, orStreamCaptureStatus* status, uint64_t* id);

  // Each returns nothing if no capture is concerned: then the caller goes on as usual. `function`
  // names the call.
  std::optional<orError_t> Add(const char* function, Stream* stream,
                               const CapturedCommand& command);
  std::optional<orError_t> Record(const char* function, Event* event, uint64_t handle,
                                  Stream* stream);
  // `recorded`: what the caller goes on with, if it is to go on.
  std::optional<orError_t> Wait(const char* function, Stream* stream, const Event* event,
                                uint64_t handle, const Event::Capture& recorded);
  // Calls that a capture does not allow. `why` ends the sentence "orX: stream S is captured, ".
  std::optional<orError_t> RefuseStream(const char* function, const Stream* stream,
                                        const char* why);
  std::optional<orError_t> RefuseDevice(const char* function, int device);
  std::optional<orError_t> RefuseUnsafe(const char* function);
  // Of an event that a capture has recorded.
  orError_t RefuseEvent(const char* function, uint64_t handle);

 private:
  void Drop(Capture* capture);  // its streams are free again, and it ends
  Capture* OfEvent(uint64_t handle) const;

  std::mutex mutex_;
  uint64_t last_id_ = 0;
  std::vector<std::unique_ptr<Capture>> captures_;
};

// Whether any capture goes on: one load. The functions of Captures need not be asked else.
inline bool Capturing() { return (mode.load(std::memory_order_relaxed) & kCapturing) != 0; }

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_GRAPH_H_
