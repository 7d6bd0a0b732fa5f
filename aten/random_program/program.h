// SPDX-License-Identifier: BSD-3-Clause
//
// Runs a random program on the CPU and on the device in parallel. Values are small integers for all
// dtypes and must be bit-identical to the CPU's. A call that fails on one side must also fail on
// the other.
//
// A Program owns its tensors and threads. Its streams belong to the caller, and nothing else may
// use them while the Program exists. Used only on the thread that created it.
#ifndef ATEN_RANDOM_PROGRAM_PROGRAM_H_
#define ATEN_RANDOM_PROGRAM_PROGRAM_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "aten/random_program/grammar.h"
#include "runtime/c10/device.h"
#include "runtime/c10/stream.h"

namespace openreg::programs {

// Thrown if the device behaves differently from the CPU.
class Difference : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The result or the error of a call.
struct Outcome {
  at::Tensor value;
  std::optional<std::string> error;
};

template <class Function>
Outcome attempt(Function&& function) {
  try {
    return {function(), {}};
  } catch (const c10::Error& error) {
    return {{}, error.what_without_backtrace()};
  }
}

using DeviceStreams = std::array<c10::Stream, kStreams>;
// The streams of one thread. Other threads do not use them, because a kernel's error is thrown to
// the next caller that waits for its stream.
using Streams = std::array<DeviceStreams, kDevices>;

Streams own_streams();

// Returns the streams of the first thread, including the default streams.
Streams first_streams();

// Runs one program, on one thread. Throws Difference.
class Program {
 public:
  explicit Program(const Streams& streams);

  ~Program();

  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void run(const Steps& steps);

  // Returns the final CPU tensors, one line per tensor.
  std::string results() const;

 private:
  struct Pair {
    at::Tensor theirs;  // on the CPU
    at::Tensor ours;    // on the device
  };

  struct Action {
    void (Program::*function)();
    bool needs_tensor;
  };

  // The current step's arguments.

  const std::string& word(size_t index) const { return step_->at(index + 1); }

  int64_t number(size_t index) const { return std::stoll(word(index)); }

  Pair& pair(size_t index) { return pairs_[static_cast<size_t>(number(index)) % pairs_.size()]; }

  template <class Map>
  const auto& named(const Map& map, size_t index) const {
    const auto found = map.find(word(index));
    TORCH_CHECK_VALUE(found != map.end(), "step '", (*step_)[0], "': unknown word '", word(index),
                      "'");
    return found->second;
  }

  // Streams.

  size_t device_of(const at::Tensor& ours) const {
    return static_cast<size_t>(ours.device().index());
  }

  void make_current() const;

  // Comparing.

  [[noreturn]] void differ(const std::string& what) const;

  void compare(const Pair& pair) const;

  // Calls a function on the device. Some errors are thrown at the next synchronization, and there
  // may be two errors: one from queued work, and one from a later call in the same step.
  template <class Function>
  Outcome call(const Outcome& theirs, const at::Tensor& where, Function&& function) {
    Outcome ours = attempt(function);
    if (theirs.error.has_value()) {
      const Outcome late = attempt([&] {
        synchronize_stream(native_stream(current_[device_of(where)]));
        return at::Tensor();
      });
      if (!ours.error.has_value()) {
        ours.error = late.error;
      }
    }
    if (theirs.error.has_value() != ours.error.has_value()) {
      differ("the CPU: " + theirs.error.value_or("no error") +
             "\nthe device: " + ours.error.value_or("no error"));
    }
    return ours;
  }

  void keep(at::Tensor theirs, at::Tensor ours);

  // Compares function(CPU tensors...) with function(device tensors...), which return a new tensor.
  template <class Function, class... Pairs>
  void both(Function&& function, const Pair& first, const Pairs&... pairs) {
    const Outcome theirs = attempt([&] { return function(first.theirs, pairs.theirs...); });
    const Outcome ours =
        call(theirs, first.ours, [&] { return function(first.ours, pairs.ours...); });
    if (!theirs.error.has_value()) {
      keep(theirs.value, ours.value);
    }
  }

  // Calls a function that modifies its first argument on both sides, and compares the errors.
  template <class Function, class... Pairs>
  void in_place(Function&& function, const Pair& first, const Pairs&... pairs) {
    const Outcome theirs = attempt([&] { return function(first.theirs, pairs.theirs...); });
    call(theirs, first.ours, [&] { return function(first.ours, pairs.ours...); });
  }

  // Steps.

  void make();
  void view();
  void binary();
  void unary();
  void change();
  void change_by_number();

  // Replaces the storage of a tensor; queued work must keep the memory with which it was launched.
  void swap_storage();

  // Draws must be equal for equal seeds, regardless of queued work. (generator_test.cc checks the
  // values.)
  void draw();

  // Computes gradients of the sum of x * x * y, with the second product on another stream.
  void backward();

  void move();

  // Copies to pinned memory and back; its last reference is dropped while the copy back is queued.
  void round_trip();

  // Runs an operator, or drops a tensor, on a new thread with this thread's streams. Only a thread
  // that drops a tensor ("forget") may outlive the step.
  void elsewhere();

  // Switches to a stream, which continues after all work queued on both devices.
  void switch_stream();

  // Makes `stream` wait for `earlier`, with an event that is destroyed during the wait.
  static void wait(const c10::Stream& stream, const c10::Stream& earlier);

  void fall_behind();
  void forget();
  void read();

  // Simulates a wrong kernel, to test this test. The step is not in the grammar.
  void spoil();

  static const std::map<std::string, Action> kActions;

  const Streams& streams_;
  std::array<c10::Stream, kDevices> current_;
  std::array<c10::Event, kDevices> events_{c10::Event(kOpenRegType), c10::Event(kOpenRegType)};
  std::vector<Pair> pairs_;
  std::vector<std::thread> elsewhere_;
  const Step* step_ = nullptr;
  uint64_t made_ = 0;
};

}  // namespace openreg::programs

#endif  // ATEN_RANDOM_PROGRAM_PROGRAM_H_
