// SPDX-License-Identifier: BSD-3-Clause
//
// graph.h - a captured graph in torch's terms: at::GraphImplInterface, behind
// torch.accelerator.Graph and torch.openreg.OpenRegGraph.
//
// The driver stores and replays the commands (openreg.h). A Graph adds what torch expects:
//   - memory that is allocated on captured streams comes from a private pool, so no other code gets
//     it while the graph lives; graphs that never run at the same time may share a pool. Pinned
//     memory used in a capture has its own pool. reset() releases both;
//   - each replay reserves its random numbers from the generators' sequences. The graph's first
//     command writes where they start, for the captured kernels (GeneratorState, generator.h).
//
// The Graph owns the driver's graph and its use of the pools. One thread calls capture_begin() and
// capture_end() on one stream. Any thread may call replay(), which uses the current stream of the
// graph's device. The caller of reset() must ensure that no other thread uses the Graph.
#ifndef RUNTIME_C10_GRAPH_H_
#define RUNTIME_C10_GRAPH_H_

#include <ATen/core/Generator.h>
#include <ATen/core/GraphImplInterface.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/c10/generator.h"
#include "runtime/device/openreg.h"

namespace openreg {

// Tells graphs that the process is about to exit, which drops queued work. From then on, a graph
// keeps its memory and does not wait for its queued replays.
OPENREG_API void leave_replays_to_exit();

// A function that queues a host function on a captured stream, so that each replay calls
// `run(data)` at this position. `release(data)` is called once, on any thread, when the graph and
// all its replays have ended; it must not block. After an error, neither function is called. The
// driver's package registers it. Without it, no graph can be captured.
using LaunchReplayFunction = orError_t (*)(orStream_t stream, void (*run)(void* data),
                                           void (*release)(void* data), void* data);
OPENREG_API void set_replay_function_launcher(LaunchReplayFunction launch);

class OPENREG_API Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs& arguments = {});
  ~Graph() override;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Lets captured random operators use this generator in addition to the device's default one. Call
  // it before or during the capture.
  void register_generator(const at::Generator& generator);

  // Captures the current device's current stream, which may be the default stream. If `pool` is {0,
  // 0}, the graph creates a pool.
  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) override;
  // Ends the capture. If the capture is invalid, throws the reason and leaves the Graph as it was
  // before the capture.
  void capture_end() override;
  void instantiate() override;
  void replay() override;
  // Drops the capture. Waits for queued replays before releasing their memory.
  void reset() override;
  c10::MempoolId_t pool() const override;
  void enable_debug_mode() override { debug_ = true; }
  void debug_dump(const std::string& path) override;
  size_t node_count() const;

 private:
  enum class State : uint8_t { kEmpty, kCapturing, kCaptured };
  class Replays;
  struct Drawn {
    c10::intrusive_ptr<GeneratorState> state;
    std::shared_ptr<ReplayedNumbers> replayed;
    uint64_t count = 0;  // number of random numbers per replay
  };

  void add_generator(const at::Generator& generator);
  void leave_capture() noexcept;
  void release_pools() noexcept;
  // Waits for all queued replays. Returns false if the process is exiting and the wait was
  // abandoned.
  bool wait_for_replays() noexcept;

  const bool keep_graph_;
  bool debug_ = false;
  bool instantiated_ = false;
  State state_ = State::kEmpty;
  c10::DeviceIndex device_ = -1;
  orStream_t stream_ = nullptr;  // the stream that began the capture
  uint64_t capture_ = 0;         // the driver's id of the capture
  orGraph_t graph_ = nullptr;
  c10::MempoolId_t pool_{0, 0};
  c10::MempoolId_t host_pool_{0, 0};
  std::vector<Drawn> generators_;
  bool draws_ = false;  // whether a replay uses random numbers

  std::mutex replaying_;  // replays reserve random numbers in the order in which they are queued
  c10::intrusive_ptr<Replays> replays_;
  orEvent_t replayed_ = nullptr;  // recorded after the latest replay
};

}  // namespace openreg

#endif  // RUNTIME_C10_GRAPH_H_
