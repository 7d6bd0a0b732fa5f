// SPDX-License-Identifier: BSD-3-Clause
#include "aten/random_program/program.h"

#include <ATen/core/Formatting.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aten/random_program/grammar.h"
#include "aten/random_program/operators.h"
#include "runtime/c10/device.h"
#include "runtime/c10/stream.h"

namespace openreg::programs {
namespace {

using at::Tensor;

constexpr int64_t kMaxElements = 4096;

std::string shape_of(const Tensor& tensor) {
  std::string shape;
  for (const int64_t size : tensor.sizes()) {
    shape += (shape.empty() ? "" : "x") + std::to_string(size);
  }
  return shape.empty() ? "number" : shape;
}

// Returns the strides of those dimensions that have more than one element.
std::vector<int64_t> strides_of(const Tensor& tensor) {
  std::vector<int64_t> strides;
  for (int64_t dimension = 0; dimension < tensor.dim() && tensor.numel() > 0; ++dimension) {
    if (tensor.size(dimension) > 1) {
      strides.push_back(tensor.stride(dimension));
    }
  }
  return strides;
}

}  // namespace

Streams own_streams() {
  const auto of_device = [](c10::DeviceIndex device) {
    return DeviceStreams{pooled_stream(device, 0), pooled_stream(device, 0),
                         pooled_stream(device, -1)};
  };
  return {of_device(0), of_device(1)};
}

Streams first_streams() {
  Streams streams = own_streams();
  for (size_t device = 0; device < kDevices; ++device) {
    streams[device].back() = default_stream(static_cast<c10::DeviceIndex>(device));
  }
  return streams;
}

Program::Program(const Streams& streams)
    : streams_(streams), current_{streams[0].back(), streams[1].back()} {
  make_current();
}

Program::~Program() {
  for (std::thread& thread : elsewhere_) {
    thread.join();
  }
  pairs_.clear();
  for (size_t device = 0; device < kDevices; ++device) {
    for (const c10::Stream& stream : streams_[device]) {
      // Discard the errors, which belong to this program. The next program must start without
      // errors.
      (void)attempt([&stream] { return synchronize_stream(native_stream(stream)), Tensor(); });
    }
    exchange_stream(default_stream(static_cast<c10::DeviceIndex>(device)));
  }
}

void Program::run(const Steps& steps) {
  for (const Step& step : steps) {
    const auto action = kActions.find(step.at(0));
    TORCH_CHECK_VALUE(action != kActions.end(), "unknown step '", step[0],
                      "': grammar() in grammar.cc lists the steps");
    step_ = &step;
    if (!action->second.needs_tensor || !pairs_.empty()) {
      std::invoke(action->second.function, *this);
    }
  }
  for (const Pair& pair : pairs_) {
    compare(pair);
  }
}

std::string Program::results() const {
  std::string text;
  for (const Pair& pair : pairs_) {
    const auto dtype =
        std::ranges::find(dtypes(), pair.theirs.scalar_type(), &Dtypes::value_type::second);
    text += "= " + (dtype != dtypes().end() ? dtype->first : "?") + " " + shape_of(pair.theirs);
    const Tensor values = pair.theirs.to(at::kLong).contiguous();
    for (const int64_t value : std::span(values.const_data_ptr<int64_t>(), values.numel())) {
      text += " " + std::to_string(value);
    }
    text += '\n';
  }
  return text;
}

void Program::make_current() const {
  for (const c10::Stream& stream : current_) {
    exchange_stream(stream);
  }
}

void Program::differ(const std::string& what) const {
  throw Difference("at '" + text_of({*step_}).substr(0, text_of({*step_}).size() - 1) +
                   "': " + what);
}

void Program::compare(const Pair& pair) const {
  const Tensor found = pair.ours.cpu();
  if (!found.equal(pair.theirs)) {
    differ(c10::str("expected\n", pair.theirs, "\nfound\n", found));
  }
}

void Program::keep(Tensor theirs, Tensor ours) {
  if (ours.scalar_type() != theirs.scalar_type() || ours.sizes() != theirs.sizes() ||
      strides_of(ours) != strides_of(theirs)) {
    differ(c10::str("expected ", theirs.toString(), theirs.sizes(), theirs.strides(), ", found ",
                    ours.toString(), ours.sizes(), ours.strides()));
  }
  if (theirs.numel() <= kMaxElements) {
    pairs_.push_back({std::move(theirs), std::move(ours)});
  }
  if (pairs_.size() > kTensors) {
    pairs_.erase(pairs_.begin());  // frees a tensor even if queued work uses it
  }
}

}  // namespace openreg::programs
