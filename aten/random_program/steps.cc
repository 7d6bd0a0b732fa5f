// SPDX-License-Identifier: BSD-3-Clause
//
// Implements the steps of random programs (program.h).
#include <ATen/core/Formatting.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <c10/core/DeviceType.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aten/launch/sleep.h"
#include "aten/random_program/grammar.h"
#include "aten/random_program/operators.h"
#include "aten/random_program/program.h"
#include "runtime/c10/device.h"
#include "runtime/c10/generator.h"
#include "runtime/c10/stream.h"

namespace openreg::programs {
namespace {

using at::Tensor;

c10::Device device_at(size_t index) { return {kOpenRegType, static_cast<c10::DeviceIndex>(index)}; }

}  // namespace

void Program::make() {
  std::vector<int64_t> sizes;
  if (word(0) != "number") {
    std::istringstream shape(word(0));
    for (std::string size; std::getline(shape, size, 'x');) {
      sizes.push_back(std::stoll(size));
    }
  }
  at::Generator generator = at::detail::createCPUGenerator(++made_);
  const Tensor theirs =
      at::randint(-9, 10, sizes, generator, at::TensorOptions(at::kLong)).to(named(dtypes(), 1));
  keep(theirs, theirs.to(device_at(static_cast<size_t>(number(2)))));
}

void Program::view() {
  both([&](const Tensor& x) { return named(views(), 1)(x, number(2)); }, pair(0));
}

void Program::binary() {
  if (pair(0).ours.device() == pair(1).ours.device()) {
    both(named(binary_operators(), 2), pair(0), pair(1));
  }
}

void Program::unary() { both(named(unary_operators(), 1), pair(0)); }

void Program::change() {
  if (pair(0).ours.device() == pair(1).ours.device()) {
    in_place(named(changes(), 2), pair(0), pair(1));
  }
}

void Program::change_by_number() {
  in_place([&](const Tensor& x) { return named(changes_by_number(), 2)(x, number(1)); }, pair(0));
}

void Program::swap_storage() {
  if (pair(0).ours.device() == pair(1).ours.device()) {
    both(named(swaps(), 2), pair(0), pair(1));
  }
}

void Program::draw() {
  const Tensor like = pair(0).ours;
  at::Generator generator = at::make_generator<GeneratorImpl>(like.device().index());
  const auto sample = [&] {
    generator.set_current_seed(static_cast<uint64_t>(number(2)));
    return named(draws(), 1)(like, generator);
  };
  const Tensor first = sample();
  const Tensor second = sample();
  keep(first.cpu(), second);
}

void Program::backward() {
  if (pair(0).ours.device() != pair(1).ours.device()) {
    return;
  }
  const auto gradients = [&](const Tensor& a, const Tensor& b) {
    const auto leaf = [](const Tensor& tensor) {
      return tensor.detach()
          .to(at::kDouble, /*non_blocking=*/false, /*copy=*/true)
          .requires_grad_();
    };
    const Tensor x = leaf(a);
    const Tensor y = leaf(b);
    const Tensor square = x.mul(x);
    Tensor sum;
    if (a.is_cpu()) {
      sum = square.mul(y).sum();
    } else {
      const c10::Stream here = current_[device_of(a)];
      const c10::Stream there = streams_[device_of(a)][static_cast<size_t>(number(2))];
      wait(there, here);
      exchange_stream(there);
      const Outcome product = attempt([&] { return square.mul(y).sum(); });
      square.record_stream(there);
      y.record_stream(there);
      exchange_stream(here);
      wait(here, there);
      TORCH_CHECK(!product.error.has_value(), *product.error);
      sum = product.value;
    }
    sum.backward();
    return wrap(at::cat({x.grad().reshape(-1), y.grad().reshape(-1)}));
  };
  both(gradients, pair(0), pair(1));
}

void Program::move() {
  const Pair from = pair(0);
  keep(from.theirs.clone(), from.ours.to(device_at(static_cast<size_t>(number(1))),
                                         from.ours.scalar_type(), number(2) != 0,
                                         /*copy=*/true));
}

void Program::round_trip() {
  const Pair from = pair(0);
  const c10::Stream stream = current_[device_of(from.ours)];
  const Tensor pinned = at::empty(from.ours.sizes(), from.theirs.options().pinned_memory(true));
  pinned.copy_(from.ours, /*non_blocking=*/true);
  if (word(1) == "stream") {
    stream.synchronize();
  } else {
    c10::Event event(kOpenRegType);
    event.record(stream);
    if (word(1) == "event") {
      event.synchronize();
    }
    while (!event.query()) {
      std::this_thread::yield();
    }
  }
  if (!pinned.equal(from.theirs)) {
    differ(c10::str("expected\n", from.theirs, "\nfound in pinned memory\n", pinned));
  }
  keep(from.theirs.clone(at::MemoryFormat::Contiguous),
       pinned.to(from.ours.device(), pinned.scalar_type(), /*non_blocking=*/true));
}

void Program::elsewhere() {
  if (word(1) == "forget") {
    const auto at = pairs_.begin() + number(0) % static_cast<int64_t>(pairs_.size());
    elsewhere_.emplace_back([ours = std::move(at->ours)]() mutable { ours.reset(); });
    pairs_.erase(at);
    return;
  }
  both(
      [&](const Tensor& x) {
        if (x.is_cpu()) {
          return named(unary_operators(), 1)(x);
        }
        Outcome outcome;
        std::thread([&] {
          make_current();
          outcome = attempt([&] { return named(unary_operators(), 1)(x); });
        }).join();
        TORCH_CHECK(!outcome.error.has_value(), *outcome.error);
        return outcome.value;
      },
      pair(0));
}

void Program::switch_stream() {
  const auto device = static_cast<size_t>(number(0));
  const c10::Stream stream = streams_[device][static_cast<size_t>(number(1))];
  for (size_t other = 0; other < kDevices; ++other) {
    if (number(2) != 0) {
      // Record again while streams still wait for the previous record.
      events_[other].record(current_[other]);
      events_[other].block(stream);
    } else {
      wait(stream, current_[other]);
    }
  }
  wait(current_[1 - device], stream);
  current_[device] = stream;
  make_current();
  // The tensors were allocated on other streams. Record that this stream uses them, too.
  for (const Pair& pair : pairs_) {
    if (device_of(pair.ours) == device) {
      pair.ours.record_stream(stream);
    }
  }
}

void Program::wait(const c10::Stream& stream, const c10::Stream& earlier) {
  c10::Event event(kOpenRegType);
  event.record(earlier);
  event.block(stream);
}

void Program::fall_behind() {
  const DeviceScope scope(static_cast<c10::DeviceIndex>(number(0)));
  launch_sleep(200'000);
}

void Program::forget() {
  pairs_.erase(pairs_.begin() + number(0) % static_cast<int64_t>(pairs_.size()));
}

void Program::read() { compare(pair(0)); }

void Program::spoil() { pair(0).ours.add_(1); }

const std::map<std::string, Program::Action> Program::kActions{
    {"new", {&Program::make, false}},
    {"view", {&Program::view, true}},
    {"binary", {&Program::binary, true}},
    {"unary", {&Program::unary, true}},
    {"change", {&Program::change, true}},
    {"change_by_number", {&Program::change_by_number, true}},
    {"swap_storage", {&Program::swap_storage, true}},
    {"draw", {&Program::draw, true}},
    {"backward", {&Program::backward, true}},
    {"move", {&Program::move, true}},
    {"round_trip", {&Program::round_trip, true}},
    {"elsewhere", {&Program::elsewhere, true}},
    {"switch_stream", {&Program::switch_stream, false}},
    {"fall_behind", {&Program::fall_behind, false}},
    {"forget", {&Program::forget, true}},
    {"read", {&Program::read, true}},
    {"spoil", {&Program::spoil, true}},
};

}  // namespace openreg::programs
