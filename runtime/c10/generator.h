// SPDX-License-Identifier: BSD-3-Clause
//
// Random numbers: one counter-based generator a device.
//
// The state is (seed, offset), 16 bytes in two little-endian words, as DTensor's tracker wants it.
// A random operator reserves a range of the offset when it is launched; its kernel, on whatever
// thread and whenever it runs, makes its numbers from that PhiloxState alone. So results depend on
// the seed and on the order of the launches, never on time or threads. Kernels of the CPU take a
// Mersenne twister: they get one whose whole state is drawn from Philox (seed_cpu_generator), and
// the CPU's own default generator is never touched.
//
// Threads: as with every generator of torch, hold mutex() while using one; reserve() takes it
// itself.
#ifndef RUNTIME_C10_GENERATOR_H_
#define RUNTIME_C10_GENERATOR_H_

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <optional>

#include "runtime/c10/device.h"

namespace openreg {

// What a launched kernel needs to know: numbers `offset` onwards of the sequence of `seed`.
struct PhiloxState {
  uint64_t seed;
  uint64_t offset;
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

  // Takes `count` numbers (rounded up to 4) out of the sequence. The caller holds mutex_.
  PhiloxState advance(uint64_t count);

  static c10::DeviceType device_type() { return kOpenRegType; }

 private:
  GeneratorImpl* clone_impl() const override;

  // Shared between generators by graphsafe_set_state.
  struct State : c10::intrusive_ptr_target {
    uint64_t seed = c10::default_rng_seed_val;
    uint64_t offset = 0;
  };
  c10::intrusive_ptr<State> state_;
};

// The default generator of a device. Making it touches no device.
OPENREG_API const at::Generator& default_generator(c10::DeviceIndex device);

// Takes `count` numbers from `generator`, or from the default one of `device`. Throws if the
// generator is of another device.
OPENREG_API PhiloxState reserve(const std::optional<at::Generator>& generator,
                                c10::DeviceIndex device, uint64_t count);

// How many numbers of the sequence the whole state of a Mersenne twister takes.
constexpr uint64_t kCpuGeneratorNumbers = 624;

// A generator of the CPU in a state that is a function of `state` alone. Runs anywhere, a worker
// too.
OPENREG_API at::Generator make_cpu_generator(const PhiloxState& state);

}  // namespace openreg

#endif  // RUNTIME_C10_GENERATOR_H_
