// SPDX-License-Identifier: BSD-3-Clause
//
// graph.h - a captured graph in torch's terms: at::GraphImplInterface, which
// torch.accelerator.Graph and torch.openreg.OpenRegGraph use.
//
// The driver stores and replays the commands (openreg.h). A Graph adds the features that torch
// expects:
//   - Memory allocated on captured streams comes from a private pool, so no other code receives
//     this memory while the graph exists. Graphs that never run at the same time may share a pool.
//     Pinned memory used in a capture comes from a separate pool. reset() releases both pools.
//   - Each replay reserves its random numbers from the generators' sequences. The graph's first
//     command writes the positions at which these numbers start, for the captured kernels
//     (GeneratorState, generator.h).
//
// The Graph owns the driver's graph and its use of the pools. The same thread must call
// capture_begin() and capture_end(), on one stream. Any thread may call replay(), which uses the
// current stream of the graph's device. The caller of reset() must ensure that no other thread uses
// the Graph.
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

// Must be called before the process exits, because the exit drops queued work. From then on, a
// graph keeps its memory and does not wait for its queued replays.
OPENREG_API void leave_replays_to_exit();

// A function that queues a host function on a captured stream, so that each replay calls
// `run(data)` at this position. `release(data)` is called once, on any thread, when the graph and
// all its replays have ended; it must not block. If the launch returns an error, neither function
// is called. The driver's package registers a LaunchReplayFunction. Otherwise, no graph can be
// captured.
using LaunchReplayFunction = orError_t (*)(orStream_t stream, void (*run)(void* data),
                                           void (*release)(void* data), void* data);
OPENREG_API void set_replay_function_launcher(LaunchReplayFunction launch);

class OPENREG_API Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs& arguments = {});
  ~Graph() override;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Allows captured random operators to use this generator, in addition to the device's default
  // generator. Must be called before or during the capture.
  void register_generator(const at::Generator& generator);

  // Captures the current stream of the current device, which may be the default stream. If `pool`
  // is {0, 0}, the graph creates a pool.
  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) override;
  // Ends the capture. If the capture is invalid, throws an exception with the reason and restores
  // the state that the Graph had before the capture.
  void capture_end() override;
  void instantiate() override;
  void replay() override;
  // Discards the captured graph. Waits for queued replays before it releases their memory.
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
  // Waits for all queued replays. Returns false if it abandoned the wait because the process is
  // exiting.
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

  // Held so that replays reserve random numbers in the order in which they are queued.
  std::mutex replaying_;
  c10::intrusive_ptr<Replays> replays_;
  orEvent_t replayed_ = nullptr;  // recorded after the latest replay
};

}  // namespace openreg

#endif  // RUNTIME_C10_GRAPH_H_
