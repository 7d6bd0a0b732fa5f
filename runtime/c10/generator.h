// SPDX-License-Identifier: BSD-3-Clause
//
// generator.h - random numbers: one counter-based generator per device.
//
// The state is (seed, offset): 16 bytes in two little-endian words, as DTensor's tracker expects. A
// random operator reserves a range of offsets when it is launched. Its kernel computes its random
// numbers only from that PhiloxState, on any thread and at any time. Results therefore depend on
// the seed and the order of launches, but not on time or threads. CPU kernels need a Mersenne
// twister: they use one whose whole state is computed from Philox numbers (make_cpu_generator). The
// CPU's default generator is never used.
//
// During a capture, the sequence does not advance. Captured launches reserve offsets that begin at
// 0, and each replay reserves as many numbers from the sequence (graph.h).
//
// Threads: as for every torch generator, the caller must hold mutex() while it uses a generator.
// reserve() acquires this mutex itself. GeneratorState has its own lock, because generators and
// graphs share it.
#ifndef RUNTIME_C10_GENERATOR_H_
#define RUNTIME_C10_GENERATOR_H_

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "runtime/c10/device.h"

namespace openreg {

// The position in one generator's sequence at which the current replay begins. Written and read in
// stream order.
struct ReplayedNumbers {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

// A launch's random numbers: the sequence of `seed` from `offset` on. For a captured launch,
// `offset` is relative to the start of the replay.
struct PhiloxState {
  uint64_t seed = 0;
  uint64_t offset = 0;
  std::shared_ptr<const ReplayedNumbers> replayed = nullptr;
};

// The state of a generator. Several generators can share it (graphsafe_set_state()), and the graphs
// that use it share it, too.
class OPENREG_API GeneratorState : public c10::intrusive_ptr_target {
 public:
  // Get and set the position in the sequence. Both functions throw while a graph that uses this
  // state is being captured.
  PhiloxState position() const;
  void move(uint64_t seed, uint64_t offset);

  // Reserves `count` random numbers (rounded up to a multiple of 4). `capture` is the current
  // stream's capture, or 0 if there is none. Throws if `capture` is not the capture that this state
  // belongs to (0 if none).
  PhiloxState advance(uint64_t count, uint64_t capture);

  // Makes launches in this capture reserve offsets from 0. Throws during another capture.
  void begin_capture(uint64_t capture, std::shared_ptr<const ReplayedNumbers> replayed);
  // Ends the capture and returns the number of random numbers that a replay uses. Does nothing if
  // this state is not part of the capture.
  uint64_t end_capture(uint64_t capture);

 private:
  void check_not_captured() const;

  mutable std::mutex mutex_;
  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
  // The capture in progress (0 if none), the number of random numbers that it has reserved, and the
  // start of its replays.
  uint64_t capture_ = 0;
  uint64_t drawn_ = 0;
  std::shared_ptr<const ReplayedNumbers> replayed_;
};

class OPENREG_API GeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit GeneratorImpl(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;  // also sets the offset to 0
  void set_offset(uint64_t offset) override;      // must be a multiple of 4
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;  // sets a seed from the system's entropy source
  void set_state(const c10::TensorImpl& new_state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& new_state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

  const c10::intrusive_ptr<GeneratorState>& state() const { return state_; }

  static c10::DeviceType device_type() { return kOpenRegType; }

 private:
  GeneratorImpl* clone_impl() const override;

  c10::intrusive_ptr<GeneratorState> state_;
};

// Returns the default generator of a device. Creating it does not initialize the device.
OPENREG_API const at::Generator& default_generator(c10::DeviceIndex device);

// Reserves `count` random numbers from `generator`, or from the default generator of `device`.
// Throws if the generator belongs to another device.
OPENREG_API PhiloxState reserve(const std::optional<at::Generator>& generator,
                                c10::DeviceIndex device, uint64_t count);

// Number of random numbers that fill the whole state of a Mersenne twister.
constexpr uint64_t kCpuGeneratorNumbers = 624;

// Returns a CPU generator whose state depends only on `state`. May be called on any thread,
// including a stream's worker thread.
OPENREG_API at::Generator make_cpu_generator(const PhiloxState& state);

}  // namespace openreg

#endif  // RUNTIME_C10_GENERATOR_H_
