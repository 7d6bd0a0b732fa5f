// SPDX-License-Identifier: BSD-3-Clause
//
// Runs a random program on the CPU and on the device in parallel. Values of all dtypes are small
// integers, and those of the device must be bit-identical to the CPU's. A call that fails on one
// side must also fail on the other side.
//
// A Program owns its tensors and threads. Its streams belong to the caller; nothing else may use
// these streams while the Program exists. A Program may be used only on the thread that created it.
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

// Thrown if the device and the CPU behave differently.
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
// The streams of one thread. Other threads must not use them, because a kernel's error is thrown to
// whichever caller waits for the stream next.
using Streams = std::array<DeviceStreams, kDevices>;

Streams own_streams();

// Returns the streams of the first thread, including the default streams.
Streams first_streams();

// Runs one program on one thread. Throws Difference if the device and the CPU behave differently.
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
    at::Tensor theirs;  // the CPU tensor
    at::Tensor ours;    // the device tensor
  };

  struct Action {
    void (Program::*function)();
    bool needs_tensor;
  };

  // Arguments of the current step.

  const std::string& word(size_t index) const { return step_->at(index + 1); }

  int64_t number(size_t index) const { return std::stoll(word(index)); }

  Pair& pair(size_t index) { return pairs_[static_cast<size_t>(number(index)) % pairs_.size()]; }

  template <class Map>
  const auto& named(const Map& map, size_t index) const {
    const auto found = map.find(word(index));
    if (found == map.end()) {
      std::string known;
      for (const auto& entry : map) {
        known += (known.empty() ? "" : ", ") + std::string(entry.first);
      }
      TORCH_CHECK_VALUE(false, "step '", (*step_)[0], "' has the unknown word '", word(index),
                        "': expected one of ", known);
    }
    return found->second;
  }

  // Functions for streams.

  size_t device_of(const at::Tensor& ours) const {
    return static_cast<size_t>(ours.device().index());
  }

  void make_current() const;

  // Comparisons.

  [[noreturn]] void differ(const std::string& what) const;

  void compare(const Pair& pair) const;

  // Calls a function on the device. Some errors are thrown only at the next synchronization. There
  // may be two errors in one step: one from queued work, and one from a later call.
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

  // Calls a function that returns a new tensor, first with the CPU tensors and then with the device
  // tensors, and compares the outcomes.
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

  // The functions of the steps.

  void make();
  void view();
  void binary();
  void unary();
  void change();
  void change_by_number();

  // Replaces the storage of a tensor. Queued work must still use the memory with which it was
  // launched.
  void swap_storage();

  // Draws random numbers. They must be equal for equal seeds, regardless of queued work.
  // (generator_test.cc checks the values.)
  void draw();

  // Computes the gradients of the sum of x * x * y. The second product runs on another stream.
  void backward();

  void move();

  // Copies a tensor to pinned memory and back. The last reference to the pinned tensor is dropped
  // while the copy back is queued.
  void round_trip();

  // Runs an operator, or drops a tensor, on a new thread that uses this thread's streams. Only a
  // thread that drops a tensor ("forget") may outlive the step.
  void elsewhere();

  // Switches to another stream. Its next work starts after all work that is queued on both devices.
  void switch_stream();

  // Makes `stream` wait for `earlier` with an event. The event is destroyed while the wait is
  // queued.
  static void wait(const c10::Stream& stream, const c10::Stream& earlier);

  void fall_behind();
  void forget();
  void read();

  // Simulates a wrong kernel, to check that a Program detects it. This step is not in the grammar.
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
