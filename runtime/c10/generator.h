// SPDX-License-Identifier: BSD-3-Clause
//
// Random numbers: one counter-based generator per device.
//
// The state is (seed, offset), 16 bytes in two little-endian words, as DTensor's tracker expects.
// A random operator reserves a range of offsets when it is launched; its kernel makes its random
// numbers from that PhiloxState alone, on any thread and at any time. So results depend on the seed
// and on the order of the launches, never on time or threads. Kernels of the CPU take a Mersenne
// twister: they get one whose whole state is drawn from Philox (make_cpu_generator), and the CPU's
// own default generator is never touched.
//
// While a graph captures random operators, the sequence does not advance: captured launches reserve
// offsets that begin at 0, and each replay takes as many from the sequence (graph.h).
//
// Threads: as with every generator of torch, hold mutex() while using one; reserve() takes it
// itself. A state has a lock of its own, because generators and graphs share it.
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

// Where the replay that runs begins in the sequence of one generator. Written and read in stream
// order.
struct ReplayedNumbers {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

// The random numbers of a launch: those from `offset` on in the sequence of `seed`. For a captured
// launch, `offset` counts from the beginning of the replay.
struct PhiloxState {
  uint64_t seed = 0;
  uint64_t offset = 0;
  std::shared_ptr<const ReplayedNumbers> replayed = nullptr;
};

// Shared between generators by graphsafe_set_state, and with the graphs that draw from it.
class OPENREG_API GeneratorState : public c10::intrusive_ptr_target {
 public:
  // The position in the sequence. Both throw while a graph is captured that draws from it.
  PhiloxState position() const;
  void move(uint64_t seed, uint64_t offset);

  // Takes `count` random numbers (rounded up to 4). `capture` is that of the current stream, or 0;
  // throws if this state is not part of that capture, or is part of another one.
  PhiloxState advance(uint64_t count, uint64_t capture);

  // From now on launches of this capture reserve offsets from 0; throws during another capture.
  void begin_capture(uint64_t capture, std::shared_ptr<const ReplayedNumbers> replayed);
  // Returns how many random numbers a replay takes. Does nothing if not part of this capture.
  uint64_t end_capture(uint64_t capture);

 private:
  void check_not_captured() const;

  mutable std::mutex mutex_;
  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
  // In a capture:
  uint64_t capture_ = 0;
  uint64_t drawn_ = 0;
  std::shared_ptr<const ReplayedNumbers> replayed_;
};

class OPENREG_API GeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit GeneratorImpl(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;  // and offset 0
  void set_offset(uint64_t offset) override;      // a multiple of 4
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;  // from the system's entropy
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

// The default generator of a device. Making it touches no device.
OPENREG_API const at::Generator& default_generator(c10::DeviceIndex device);

// Takes `count` random numbers from `generator`, or from the default one of `device`. Throws if the
// generator is of another device.
OPENREG_API PhiloxState reserve(const std::optional<at::Generator>& generator,
                                c10::DeviceIndex device, uint64_t count);

// How many random numbers the whole state of a Mersenne twister takes.
constexpr uint64_t kCpuGeneratorNumbers = 624;

// A generator of the CPU in a state that is a function of `state` alone. May be called on any
// thread, also on a worker.
OPENREG_API at::Generator make_cpu_generator(const PhiloxState& state);

}  // namespace openreg

#endif  // RUNTIME_C10_GENERATOR_H_
