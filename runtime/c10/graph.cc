// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/graph.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>

#include "runtime/c10/device.h"
#include "runtime/c10/device_allocator.h"
#include "runtime/c10/diagnostic_hooks.h"
#include "runtime/c10/error.h"
#include "runtime/c10/host_allocator.h"
#include "runtime/c10/stream.h"
#include "runtime/device/host_wait.h"

namespace openreg {
namespace {

constexpr c10::MempoolId_t kNoPool{0, 0};

std::atomic<bool> process_ends{false};
std::atomic<LaunchReplayFunction> launch_replay_function{nullptr};

orStreamCaptureMode native_mode(at::GraphCaptureMode mode) {
  switch (mode) {
    case at::GraphCaptureMode::ThreadLocal:
      return orStreamCaptureModeThreadLocal;
    case at::GraphCaptureMode::Relaxed:
      return orStreamCaptureModeRelaxed;
    case at::GraphCaptureMode::Default:
    case at::GraphCaptureMode::Global:
      break;
  }
  return orStreamCaptureModeGlobal;
}

// Returns whether a stream is part of the capture with this id.
bool belongs(orStream_t stream, uint64_t capture) {
  orStreamCaptureStatus status = orStreamCaptureStatusNone;
  uint64_t id = 0;
  return orStreamGetCaptureInfo(stream, &status, &id) == orSuccess && id == capture;
}

}  // namespace

// A queue with the start positions of each queued replay in the generators' sequences. replay()
// pushes an entry, and the first command of the replay pops it. Replays of one graph run in the
// order in which they were queued.
class Graph::Replays final : public c10::intrusive_ptr_target {
 public:
  using Numbers = std::vector<ReplayedNumbers>;  // one per element of `targets_`

  void set_targets(std::vector<std::shared_ptr<ReplayedNumbers>> targets) {
    targets_ = std::move(targets);
  }
  // Adds an entry and returns its position for take_back().
  uint64_t push(Numbers numbers) {
    const std::lock_guard lock(mutex_);
    queued_.push_back(std::move(numbers));
    return taken_ + queued_.size();
  }
  // Removes the entry of a replay that failed, unless its first command has already run.
  void take_back(uint64_t place) {
    const std::lock_guard lock(mutex_);
    if (place > taken_) {
      queued_.erase(queued_.begin() + static_cast<ptrdiff_t>(place - taken_ - 1));
    }
  }

  static void begin(void* replays) {
    Replays& self = *static_cast<Replays*>(replays);
    const std::lock_guard lock(self.mutex_);
    if (!self.queued_.empty()) {
      const Numbers& numbers = self.queued_.front();
      for (size_t i = 0; i < numbers.size(); ++i) {
        *self.targets_[i] = numbers[i];
      }
      self.queued_.pop_front();
      ++self.taken_;
    }
  }
  static void release(void* replays) {
    c10::intrusive_ptr<Replays>::reclaim(static_cast<Replays*>(replays)).reset();
  }

 private:
  std::mutex mutex_;
  std::deque<Numbers> queued_;
  uint64_t taken_ = 0;  // number of entries that replays have popped
  std::vector<std::shared_ptr<ReplayedNumbers>> targets_;
};

void set_replay_function_launcher(LaunchReplayFunction launch) {
  launch_replay_function.store(launch, std::memory_order_release);
}

Graph::Graph(const at::GraphImplArgs& arguments) : keep_graph_(arguments.keep_graph) {}

Graph::~Graph() {
  try {
    reset();
  } catch (const std::exception& error) {
    TORCH_WARN("openreg: error while destroying a graph: ", error.what());
  }
  if (replayed_ != nullptr) {
    (void)orEventDestroy(replayed_);
  }
}

void Graph::add_generator(const at::Generator& generator) {
  TORCH_CHECK(generator.defined() && generator.device().type() == kOpenRegType,
              "openreg: a graph can use only generators of device openreg: pass one from "
              "torch.Generator(\"openreg\")");
  const auto& state = generator.get<GeneratorImpl>()->state();
  const bool known = std::any_of(generators_.begin(), generators_.end(),
                                 [&](const Drawn& drawn) { return drawn.state == state; });
  if (known) {
    return;
  }
  Drawn drawn{state, std::make_shared<ReplayedNumbers>()};
  if (state_ == State::kCapturing) {
    state->begin_capture(capture_, drawn.replayed);
  }
  generators_.push_back(std::move(drawn));
}

void Graph::register_generator(const at::Generator& generator) {
  TORCH_CHECK(state_ != State::kCaptured,
              "openreg: the graph is already captured: register generators before the capture");
  add_generator(generator);
}

void Graph::capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) {
  TORCH_CHECK(state_ == State::kEmpty,
              "openreg: this graph already contains a capture: call reset() or use another graph");
  device_ = current_device();
  stream_ = current_native_stream(device_);
  const c10::MempoolId_t used = pool == kNoPool ? new_pool_id() : pool;
  add_generator(default_generator(device_));
  OPENREG_CHECK(orStreamBeginCapture(stream_, native_mode(mode)));
  state_ = State::kCapturing;
  diagnostic_hooks().on_capture_begin();
  try {
    orStreamCaptureStatus status = orStreamCaptureStatusNone;
    OPENREG_CHECK(orStreamGetCaptureInfo(stream_, &status, &capture_));
    const uint64_t capture = capture_;
    begin_allocate_to_pool(device_, used,
                           [capture](orStream_t stream) { return belongs(stream, capture); });
    pool_ = used;
    // Always use a new pool: torch's host allocator cannot begin a pool again after its release.
    const c10::MempoolId_t host = new_pool_id();
    at::getHostAllocator(kOpenRegType)->begin_allocate_to_pool(host, [capture](c10::Stream stream) {
      return stream.device_type() == kOpenRegType && belongs(native_stream(stream), capture);
    });
    host_pool_ = host;
    for (const Drawn& drawn : generators_) {
      drawn.state->begin_capture(capture_, drawn.replayed);
    }
    const LaunchReplayFunction launch = launch_replay_function.load(std::memory_order_acquire);
    TORCH_CHECK_NOT_IMPLEMENTED(launch != nullptr,
                                "openreg: this device does not implement graphs "
                                "(set_replay_function_launcher)");
    replays_ = c10::make_intrusive<Replays>();
    // The command has its own reference.
    Replays* argument = c10::intrusive_ptr<Replays>(replays_).release();
    const orError_t error = launch(stream_, &Replays::begin, &Replays::release, argument);
    if (error != orSuccess) {
      Replays::release(argument);
    }
    OPENREG_CHECK(error);
  } catch (...) {
    orGraph_t graph = nullptr;
    if (orStreamEndCapture(stream_, &graph) == orSuccess) {
      (void)orGraphDestroy(graph);
    }
    leave_capture();
    release_pools();
    state_ = State::kEmpty;
    throw;
  }
}

// Undoes capture_begin(), for a valid or an invalid capture.
void Graph::leave_capture() noexcept {
  diagnostic_hooks().on_capture_end();
  try {
    if (pool_ != kNoPool) {
      end_allocate_to_pool(device_, pool_);
    }
    if (host_pool_ != kNoPool) {
      at::getHostAllocator(kOpenRegType)->end_allocate_to_pool(host_pool_);
    }
  } catch (const std::exception& error) {
    TORCH_WARN("openreg: error at the end of a capture: ", error.what());
  }
  draws_ = false;
  for (Drawn& drawn : generators_) {
    drawn.count = drawn.state->end_capture(capture_);
    draws_ = draws_ || drawn.count != 0;
  }
}

void Graph::capture_end() {
  TORCH_CHECK(
      state_ == State::kCapturing,
      "openreg: capture_end() needs a capture that this graph began: call capture_begin() first");
  TORCH_CHECK(
      current_native_stream(device_) == stream_,
      "openreg: capture_end() was called on a different stream from capture_begin(): make the "
      "stream of capture_begin() current");
  const orError_t error = orStreamEndCapture(stream_, &graph_);
  const std::string detail = error != orSuccess ? orGetLastErrorDetail() : "";
  TORCH_CHECK(error != orErrorCaptureWrongThread, detail);
  leave_capture();
  if (error != orSuccess) {
    (void)orGetLastError();
    release_pools();
    replays_.reset();
    state_ = State::kEmpty;
    TORCH_CHECK(false, detail);
  }
  std::vector<std::shared_ptr<ReplayedNumbers>> targets;
  for (const Drawn& drawn : generators_) {
    targets.push_back(drawn.replayed);
  }
  replays_->set_targets(std::move(targets));
  state_ = State::kCaptured;
  instantiated_ = !keep_graph_;
}

void Graph::instantiate() {
  TORCH_CHECK(state_ == State::kCaptured,
              "openreg: instantiate() needs a captured graph: capture one first");
  TORCH_CHECK(keep_graph_,
              "openreg: instantiate() is for graphs with keep_graph=True; other graphs are "
              "instantiated when their capture ends");
  instantiated_ = true;  // the driver's graphs need no instantiation
}

void Graph::replay() {
  TORCH_CHECK(state_ == State::kCaptured,
              "openreg: replay() needs a captured graph: capture one first");
  if (!instantiated_) {
    instantiate();
  }
  const DeviceScope scope(device_);
  const orStream_t stream = current_native_stream(device_);
  // The thread that holds the mutex may wait for space in the queue.
  const auto lock = LockForWait(replaying_);
  if (replayed_ == nullptr) {
    OPENREG_CHECK(orEventCreate(&replayed_));
  }
  // If the stream is being captured, the driver rejects the replay below.
  const bool draws = draws_ && !is_capturing(stream);
  uint64_t place = 0;
  if (draws) {
    Replays::Numbers numbers;
    for (const Drawn& drawn : generators_) {
      const PhiloxState begin = drawn.state->advance(drawn.count, 0);
      numbers.push_back({begin.seed, begin.offset});
    }
    place = replays_->push(std::move(numbers));
  }
  const orError_t error = orGraphLaunch(graph_, stream);
  if (error != orSuccess && draws) {
    replays_->take_back(place);
  }
  OPENREG_CHECK(error);
  OPENREG_CHECK(orEventRecord(replayed_, stream));
}

void leave_replays_to_exit() { process_ends.store(true, std::memory_order_relaxed); }

bool Graph::wait_for_replays() noexcept {
  // Poll: orEventSynchronize would consume a kernel error, which belongs to the program.
  if (replayed_ == nullptr) {
    return true;
  }
  const HostWait wait;
  constexpr std::chrono::microseconds kLongest{1000};
  for (std::chrono::microseconds pause{10}; orEventQuery(replayed_) == orErrorNotReady;
       pause = std::min(pause * 2, kLongest)) {
    if (process_ends.load(std::memory_order_relaxed)) {
      return false;
    }
    std::this_thread::sleep_for(pause);
  }
  return true;
}

void Graph::release_pools() noexcept {
  try {
    if (pool_ != kNoPool) {
      release_pool(device_, pool_);
    }
    if (host_pool_ != kNoPool) {
      at::getHostAllocator(kOpenRegType)->release_pool(host_pool_);
    }
  } catch (const std::exception& error) {
    TORCH_WARN("openreg: error while releasing the memory of a graph: ", error.what());
  }
  pool_ = kNoPool;
  host_pool_ = kNoPool;
}

void Graph::reset() {
  if (state_ == State::kCapturing) {
    orGraph_t graph = nullptr;
    const orError_t error = orStreamEndCapture(stream_, &graph);
    TORCH_CHECK(error != orErrorCaptureWrongThread, orGetLastErrorDetail());
    if (error == orSuccess) {
      (void)orGraphDestroy(graph);
    }
    leave_capture();
  } else if (state_ == State::kCaptured) {
    if (wait_for_replays()) {
      const orError_t error = orGraphDestroy(graph_);
      // After a device reset, the handle is invalid.
      TORCH_CHECK(error == orSuccess || error == orErrorInvalidHandle, orGetLastErrorDetail());
    } else {
      pool_ = kNoPool;
      host_pool_ = kNoPool;
    }
    graph_ = nullptr;
  }
  release_pools();
  generators_.clear();
  replays_.reset();
  draws_ = false;
  instantiated_ = false;
  state_ = State::kEmpty;
}

c10::MempoolId_t Graph::pool() const {
  TORCH_CHECK(pool_ != kNoPool, "openreg: pool() needs a captured graph: capture one first");
  return pool_;
}

void Graph::debug_dump(const std::string& path) {
  TORCH_CHECK(state_ == State::kCaptured,
              "openreg: debug_dump() needs a captured graph: capture one first");
  if (!debug_) {
    TORCH_WARN("openreg: debug_dump() writes nothing: call enable_debug_mode() first");
    return;
  }
  OPENREG_CHECK(orGraphDebugDotPrint(graph_, path.c_str()));
}

size_t Graph::node_count() const {
  TORCH_CHECK(state_ == State::kCaptured,
              "openreg: counting the nodes needs a captured graph: capture one first");
  size_t count = 0;
  OPENREG_CHECK(orGraphGetNodeCount(graph_, &count));
  return count;
}

}  // namespace openreg

namespace at {
REGISTER_GRAPH_IMPL(OPENREG, openreg::Graph)
}  // namespace at
