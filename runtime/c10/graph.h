// SPDX-License-Identifier: BSD-3-Clause
//
// A captured graph as torch knows it: at::GraphImplInterface, behind torch.accelerator.Graph and
// torch.openreg.OpenRegGraph.
//
// The driver keeps and replays the commands (openreg.h). A Graph adds what torch expects of it:
//   - memory that is allocated on captured streams comes from a private pool, so that nobody else
//     has it while the graph lives; graphs that never run at the same time may share one. Pinned
//     memory of a capture has a pool of its own. Both go back when the graph is reset;
//   - each replay takes its random numbers out of the generators' sequences. The graph's first
//     command tells the captured kernels where they begin (GeneratorState, generator.h);
//   - operators that would wait for the device fail with their name (implicit_wait.h).
//
// The Graph owns the driver's graph and its use of the pools. capture_begin() and capture_end() are
// called by one thread on one stream; replay() by any thread, for the current stream of the graph's
// device; reset() by whoever knows that nobody else uses the Graph.
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

// To be called when the process begins to end, which drops queued work: from now on a graph whose
// replays are queued does not wait for them, and keeps its memory.
OPENREG_API void leave_replays_to_exit();

// How a function of the host becomes part of a graph: queues it on a stream that is captured, so
// that `run(data)` comes at its place in each replay, and `release(data)` once, when the graph and
// all its replays are over, on any thread; `release` does not wait. After an error neither is
// called. Registered by the driver's package
// (runtime/emulation). Without it nothing can be captured.
using LaunchReplayFunction = orError_t (*)(orStream_t stream, void (*run)(void* data),
                                           void (*release)(void* data), void* data);
OPENREG_API void set_replay_function_launcher(LaunchReplayFunction launch);

class OPENREG_API Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs& arguments = {});
  ~Graph() override;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Captured random operators may draw from this generator. The default one of the device is known
  // already. Before or during the capture.
  void register_generator(const at::Generator& generator);

  // Of the current device and its current stream, which may be the default one. `pool` {0, 0} is a
  // new one.
  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) override;
  // If the capture turns out to be invalid, throws with the reason, and the Graph is as before it.
  void capture_end() override;
  void instantiate() override;
  void replay() override;
  // Waits for replays that are queued: their memory goes back.
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
    uint64_t count = 0;  // of numbers that a replay takes
  };

  void add_generator(const at::Generator& generator);
  void leave_capture() noexcept;
  void release_pools() noexcept;
  // False: they are left to the end of the process.
  bool wait_for_replays() noexcept;

  const bool keep_graph_;
  bool debug_ = false;
  bool instantiated_ = false;
  State state_ = State::kEmpty;
  c10::DeviceIndex device_ = -1;
  orStream_t stream_ = nullptr;  // that is captured
  uint64_t capture_ = 0;         // the driver's number of the capture
  orGraph_t graph_ = nullptr;
  c10::MempoolId_t pool_{0, 0};
  c10::MempoolId_t host_pool_{0, 0};
  std::vector<Drawn> generators_;
  bool draws_ = false;  // some generator gives numbers to a replay

  std::mutex replaying_;  // replays take their numbers in the order in which they are queued
  c10::intrusive_ptr<Replays> replays_;
  orEvent_t replayed_ = nullptr;  // the latest replay
};

}  // namespace openreg

#endif  // RUNTIME_C10_GRAPH_H_
