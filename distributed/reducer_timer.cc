// SPDX-License-Identifier: BSD-3-Clause
//
// reducer_timer.cc - measures the forward, backward and communication times of
// DistributedDataParallel on this device. Like torch's timer for CUDA, it uses events on the
// current stream. Only the thread that runs the model uses it.
#include <c10/core/Event.h>

#include <array>
#include <optional>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "runtime/c10/device.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

class ReducerTimer final : public c10d::Timer {
 public:
  explicit ReducerTimer(c10::Device device) : device_(device) {}

  void record(Event event) override {
    Timer::record(event);
    std::optional<c10::Event>& mark = marks_[static_cast<size_t>(event)];
    if (!mark.has_value()) {
      mark.emplace(kOpenRegType, c10::EventFlag::BACKEND_DEFAULT);
    }
    mark->record(current_stream(device_.index()));
  }

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const std::optional<c10::Event>& from = marks_[static_cast<size_t>(start)];
    const std::optional<c10::Event>& to = marks_[static_cast<size_t>(end)];
    if (!from.has_value() || !to.has_value()) {
      return std::nullopt;
    }
    from->synchronize();
    to->synchronize();
    const double milliseconds = from->elapsedTime(*to);
    // A negative time means that the end event was not recorded in this iteration but in an earlier
    // one.
    return milliseconds < 0 ? std::nullopt
                            : std::optional(static_cast<int64_t>(milliseconds * 1e6));
  }

 private:
  const c10::Device device_;
  std::array<std::optional<c10::Event>, 5> marks_;
};

}  // namespace
}  // namespace openreg

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kPrivateUse1, openreg::ReducerTimer)
}  // namespace c10d
