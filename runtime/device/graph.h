// SPDX-License-Identifier: BSD-3-Clause
//
// graph.h - the work that one capture recorded, and its replays.
//
// Nodes are stored in the order in which they were captured. Every node comes after the nodes that
// it depends on, so a single stream can run them in that order. A replay is one command of its
// stream. Each time the stream's consumer reaches this command, it runs some of the nodes
// (RunSome). The command is done after the last node. The dependencies are stored for two purposes:
// the check that all branches were joined, and the DOT output.
//
// A Graph is owned jointly by its handle and by each queued replay. Its nodes do not change after
// the capture (capture.h) has ended. Any thread may call any function except Add and AddRecord,
// which require the lock of Captures.
#ifndef RUNTIME_DEVICE_GRAPH_H_
#define RUNTIME_DEVICE_GRAPH_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/device/event.h"
#include "runtime/device/handle.h"
#include "runtime/device/openreg_emulation.h"
#include "runtime/device/stream.h"
#include "runtime/device/work.h"

namespace openreg::device {

class Graph {
 public:
  explicit Graph(int device);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  int device() const { return device_; }
  size_t size() const { return nodes_.size(); }

  void Retain() { owners_.fetch_add(1, std::memory_order_relaxed); }
  void Release();

  // Add a node that depends on the nodes `after`. The node is a piece of work (Add) or the record
  // of a timed event (AddRecord).
  uint32_t Add(const Work& work, const Stream* stream, std::vector<uint32_t> after);
  uint32_t AddRecord(Event* event, uint64_t event_handle, const Stream* stream,
                     std::vector<uint32_t> after);
  // Returns a node on which no node in `heads` depends, directly or indirectly. Returns size() if
  // there is no such node.
  uint32_t FindUnjoined(const std::vector<uint32_t>& heads) const;
  uint32_t StreamOf(uint32_t node) const { return nodes_[node].stream; }
  const char* NameOf(uint32_t node) const;

  orError_t Launch(const StreamQueue& queue);

  orError_t Draw(const char* path) const;

 private:
  struct Node {
    Command::Kind kind;
    Command::Place place;
    int device;
    const char* name;
    orKernelFunction_t kernel;
    size_t arguments;  // offset in arguments_
    size_t size;
    void (*release)(void*);
    orHostFn_t function;
    void* data;
    std::optional<orCopyDescription> copy;
    Event* event;  // if not null, the node records this event
    uint64_t event_handle;
    uint64_t record;  // number of the event's record in the most recent replay
    uint32_t stream;  // index of the stream that captured the node
    std::vector<uint32_t> after;
  };

  ~Graph();
  uint32_t Append(Node node, const Stream* stream, std::vector<uint32_t> after);
  static orError_t RunAll(void* graph);
  // Runs the next nodes of a replay. Returns true when the replay is done.
  static bool RunSome(Stream* stream, Command* replay, bool with_team);
  void Run(Node& node, Stream* stream, ErrorSink* sink, bool with_team);
  // Runs a node and writes its activity record. The activity record starts as a copy of the
  // replay's activity record.
  [[gnu::cold, gnu::noinline]] void RunRecorded(Node& node, Stream* stream, ErrorSink* sink,
                                                bool with_team, const orActivity& replay);
  orError_t QueueReplay(const StreamQueue& queue, ErrorSink* sink, uint64_t* position,
                        const orActivity* record);

  const int device_;
  const int32_t number_;  // identifies the graph in activity records
  std::vector<Node> nodes_;
  std::vector<unsigned char> arguments_;  // the arguments of each node start at a multiple of 16
  bool runs_inline_ = true;               // whether all nodes may run inline
  bool has_team_ = false;                 // whether any node uses a team
  uint64_t work_ns_ = 0;
  std::vector<uint32_t> timed_;  // nodes that record an event
  std::atomic<uint32_t> owners_{1};

  std::mutex launch_;  // serializes the queueing of replays
  Stream* last_stream_ = nullptr;
  uint64_t last_position_ = 0;
};

// The entry of a graph in the handle table.
struct GraphSlot : HandleSlot {
  Graph* graph = nullptr;
};

class Graphs {
 public:
  static Graphs& Get();
  orError_t Create(Graph* graph, orGraph_t* handle);  // takes ownership of the graph on success
  // Returns the graph and adds an owner, or returns null if there is no graph with this handle.
  Graph* Find(orGraph_t handle);
  orError_t Destroy(orGraph_t handle);
  void DestroyAll(int device);

 private:
  std::mutex mutex_;  // guards the graphs in the slots
  HandleTable<GraphSlot, 16, 3> table_;
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_GRAPH_H_
