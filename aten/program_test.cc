// SPDX-License-Identifier: BSD-3-Clause
//
// Random programs, on the CPU and on the device side by side: those of tests/program_test.py
// without Python, so that asan, ubsan and tsan can watch.
//
// A program is text, one step a line:
//
//     new 2x3 float32 0         a tensor of random numbers on openreg:0
//     view 0 transpose 1
//     switch_stream 0 2 1
//     change 1 0 add_
//
// kGrammar below lists the steps, and tests/program_test.py has a method of the same name for each.
// A number that stands for a tensor counts modulo those that there are, and a step that finds no
// tensor does nothing: any sequence of steps is a program, so one that fails is made shorter by
// leaving steps out. Values are small integers, whatever the dtype: they must be the CPU's, bit for
// bit. A call that fails must fail alike.
//
//     bazelw test //aten:program_test --test_arg=--programs=2000 --test_arg=--seed=7
//     .bazel/bin/aten/program_test --show --programs=3       prints programs and what they computed
//     .bazel/bin/aten/program_test --show --replay=FILE      those in FILE, divided by blank lines
//
// --steps=N says how long programs are, --threads=N how many run at the same time.
#include <ATen/TensorIndexing.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceType.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "aten/launch/sleep.h"
#include "runtime/c10/device.h"
#include "runtime/c10/generator.h"
#include "runtime/c10/stream.h"

// A sanitizer calls back before it ends the process. Without one there is no such function.
// NOLINTNEXTLINE(bugprone-reserved-identifier): the sanitizers give the names.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

// tsan asks for its options here. PyTorch's own libraries are not built with it: of what orders
// their threads it sees mutexes, but no atomics, as those of reference counts. So it is told to
// leave out what they read, write and free; of the code of this project it leaves out nothing.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" __attribute__((used, visibility("default"))) const char* __tsan_default_options() {
  return "ignore_noninstrumented_modules=1";
}

namespace openreg {
namespace {

using at::Tensor;

constexpr size_t kDevices = 2;
constexpr size_t kStreams = 3;   // of a device
constexpr size_t kTensors = 12;  // at a time
constexpr int64_t kMostElements = 4096;

using Step = std::vector<std::string>;
using Steps = std::vector<Step>;

// ------------------------------------------------------------------------------------- operators

template <class... Arguments>
using Table = std::map<std::string, Tensor (*)(Arguments...)>;

// Keeps numbers small, so that floating-point arithmetic is exact.
Tensor wrap(const Tensor& tensor) { return tensor.remainder(97); }

// As Python's x[index], which takes masks of numbers, as the operator does not.
Tensor index(const Tensor& x, const Tensor& index) {
  return at::indexing::get_item(x, {at::indexing::TensorIndex(index)});
}

// The operator, as Python's index_put_.
Tensor set(const Tensor& x, const Tensor& index, const Tensor& values) {
  return x.index_put_(c10::List<std::optional<Tensor>>({index}), values);
}

Tensor rows(const Tensor& like) {
  return at::zeros({like.size(0)}, like.options().dtype(at::kLong));
}

const Table<const Tensor&, int64_t> kViews{
    {"transpose", [](const Tensor& x, int64_t) { return x.transpose(0, -1); }},
    {"select", [](const Tensor& x, int64_t n) { return x.select(0, n); }},
    {"narrow", [](const Tensor& x, int64_t n) { return x.slice(0, n); }},
    {"step",
     [](const Tensor& x, int64_t n) { return x.slice(-1, std::nullopt, std::nullopt, n + 1); }},
    {"flatten", [](const Tensor& x, int64_t) { return x.view(-1); }},
    {"expand",
     [](const Tensor& x, int64_t n) {
       std::vector<int64_t> sizes = x.sizes().vec();
       sizes.insert(sizes.begin(), n + 1);
       return x.unsqueeze(0).expand(sizes);
     }},
    {"unsqueeze", [](const Tensor& x, int64_t) { return x.unsqueeze(-1); }},
    {"diagonal", [](const Tensor& x, int64_t) { return x.diagonal(); }},
    {"squeeze", [](const Tensor& x, int64_t) { return x.squeeze(); }},
    {"unfold", [](const Tensor& x, int64_t) { return x.unfold(0, 2, 1); }},
    {"detach", [](const Tensor& x, int64_t) { return x.detach(); }},
};

const Table<const Tensor&, const Tensor&> kBinary{
    {"add", [](const Tensor& x, const Tensor& y) { return wrap(x.add(y)); }},
    {"sub", [](const Tensor& x, const Tensor& y) { return wrap(x.sub(y)); }},
    {"mul", [](const Tensor& x, const Tensor& y) { return wrap(x.mul(y)); }},
    {"max", [](const Tensor& x, const Tensor& y) { return at::maximum(x, y); }},
    {"cat", [](const Tensor& x, const Tensor& y) { return at::cat({x, y}); }},
    {"stack", [](const Tensor& x, const Tensor& y) { return at::stack({x, y}); }},
    {"where", [](const Tensor& x, const Tensor& y) { return at::where(x.gt(y), x, y); }},
    {"matmul", [](const Tensor& x, const Tensor& y) { return wrap(x.matmul(y)); }},
};

const Table<const Tensor&> kUnary{
    {"sum", [](const Tensor& x) { return wrap(x.sum(0)); }},
    {"cumsum", [](const Tensor& x) { return wrap(x.cumsum(-1)); }},
    {"flip", [](const Tensor& x) { return x.flip(0); }},
    {"sort",
     [](const Tensor& x) { return std::get<0>(x.sort(/*stable=*/std::optional(true), -1)); }},
    {"clone", [](const Tensor& x) { return x.clone(); }},
    {"double", [](const Tensor& x) { return x.to(at::kDouble); }},
    {"int", [](const Tensor& x) { return x.to(at::kInt); }},
    {"contiguous", [](const Tensor& x) { return x.contiguous(); }},
    {"amax", [](const Tensor& x) { return x.amax(-1, /*keepdim=*/true); }},
    {"nonzero", [](const Tensor& x) { return x.nonzero(); }},
    {"unique", [](const Tensor& x) { return std::get<0>(at::_unique2(x)); }},
    {"roll", [](const Tensor& x) { return x.roll(1, 0); }},
    {"tril", [](const Tensor& x) { return x.tril(); }},
    {"square", [](const Tensor& x) { return wrap(x.mul(x)); }},
    {"index",
     [](const Tensor& x) { return index(x, at::tensor({0, 0, 1}, at::kLong).to(x.device())); }},
    {"mask", [](const Tensor& x) { return index(x, x.gt(0)); }},
    {"mode", [](const Tensor& x) { return std::get<0>(x.mode(-1)); }},
    // Sparse, quantized and nested tensors.
    {"sparse", [](const Tensor& x) { return x.to_sparse().coalesce().to_dense(); }},
    {"csr", [](const Tensor& x) { return x.to_sparse_csr().to_dense(); }},
    {"quantize",
     [](const Tensor& x) {
       return at::quantize_per_tensor(x.to(at::kFloat), 1, 0, at::kQInt32).dequantize();
     }},
    // For a team of threads; the sum still fits the 24 bits of a float.
    {"large",
     [](const Tensor& x) {
       return wrap(wrap(at::arange(1 << 17, x.options()).add(wrap(x.sum()))).sum());
     }},
};

const Table<const Tensor&, const Tensor&> kChanges{
    {"copy_", [](const Tensor& x, const Tensor& y) { return x.copy_(y); }},
    {"add_", [](const Tensor& x, const Tensor& y) { return x.add_(y).remainder_(97); }},
    {"sub_", [](const Tensor& x, const Tensor& y) { return x.sub_(y).remainder_(97); }},
    {"mul_", [](const Tensor& x, const Tensor& y) { return x.mul_(y).remainder_(97); }},
    {"out",
     [](const Tensor& x, const Tensor& y) {
       Tensor out = x;
       // torch warns and resizes where the shapes differ: views of x would then lie outside.
       return x.sizes() == y.sizes() ? at::neg_out(out, y) : out;
     }},
    {"index_add_",
     [](const Tensor& x, const Tensor& y) { return x.index_add_(0, rows(y), y).remainder_(97); }},
    {"clamp_",
     [](const Tensor& x, const Tensor& y) {
       return x.clamp_(/*min=*/std::optional<Tensor>(), /*max=*/y);
     }},
    {"foreach",
     [](const Tensor& x, const Tensor& y) {
       at::_foreach_add_(at::TensorList(x), at::TensorList(y));
       return x.remainder_(97);
     }},
};

const Table<const Tensor&, int64_t> kChangesByNumber{
    {"fill_", [](const Tensor& x, int64_t n) { return x.fill_(n); }},
    {"zero_", [](const Tensor& x, int64_t) { return x.zero_(); }},
    {"neg_", [](const Tensor& x, int64_t) { return x.neg_(); }},
    {"add", [](const Tensor& x, int64_t n) { return x.add_(n).remainder_(97); }},
    {"set",
     [](const Tensor& x, int64_t n) { return set(x, x.gt(n), at::full({}, n, x.options())); }},
    {"shrink",
     [](const Tensor& x, int64_t) { return x.is_contiguous() ? x.resize_({x.numel() / 2}) : x; }},
};

const Table<const Tensor&, const Tensor&> kSwaps{
    // A new tensor: a larger one has elements that nobody wrote.
    {"resize_", [](const Tensor& x, const Tensor&) { return x.clone().resize_({x.numel() / 2}); }},
    {"set_",
     [](const Tensor&, const Tensor& y) {
       const Tensor empty = at::empty({0}, y.options());
       return empty.set_(y);
     }},
    {"data",
     [](const Tensor& x, const Tensor& y) {
       const Tensor copy = x.clone();
       copy.set_data(y);
       return copy;
     }},
};

const Table<const Tensor&, const at::Generator&> kDraws{
    {"random_",
     [](const Tensor& x, const at::Generator& g) { return at::empty_like(x).random_(-9, 10, g); }},
    {"bernoulli_",
     [](const Tensor& x, const at::Generator& g) { return at::empty_like(x).bernoulli_(0.5, g); }},
    {"geometric_",
     [](const Tensor& x, const at::Generator& g) { return at::empty_like(x).geometric_(0.5, g); }},
    {"randperm",
     [](const Tensor& x, const at::Generator& g) {
       return wrap(at::randperm(x.numel(), g, x.options().dtype(at::kLong)));
     }},
};

const std::map<std::string, at::ScalarType> kDtypes{
    {"int64", at::kLong},
    {"float32", at::kFloat},
    {"float64", at::kDouble},
    {"int32", at::kInt},
};

// --------------------------------------------------------------------------------------- grammar

using Choices = std::vector<std::string>;

template <class Map>
Choices names(const Map& map) {
  Choices words;
  for (const auto& entry : map) {
    words.push_back(entry.first);
  }
  return words;
}

Choices numbers(int first, int last) {
  Choices words;
  for (int number = first; number <= last; ++number) {
    words.push_back(std::to_string(number));
  }
  return words;
}

// Sizes as in 2x3; a tensor without dimensions is a "number".
Choices shapes() {
  Choices all{"number"};
  size_t begin = 0;
  for (int dimensions = 1; dimensions <= 3; ++dimensions) {
    const size_t end = all.size();
    for (size_t shorter = begin; shorter < end; ++shorter) {
      for (const std::string& size : numbers(0, 4)) {
        all.push_back(dimensions == 1 ? size : all[shorter] + "x" + size);
      }
    }
    begin = end;
  }
  return all;
}

struct Rule {
  std::string name;
  std::vector<Choices> arguments;
};

const Choices kTensor = numbers(0, kTensors - 1);
const Choices kDevice = numbers(0, kDevices - 1);
const Choices kStream = numbers(0, kStreams - 1);
const Choices kFlag = numbers(0, 1);

const std::vector<Rule> kGrammar{
    {"new", {shapes(), names(kDtypes), kDevice}},
    {"view", {kTensor, names(kViews), numbers(0, 3)}},
    {"binary", {kTensor, kTensor, names(kBinary)}},
    {"unary", {kTensor, names(kUnary)}},
    {"change", {kTensor, kTensor, names(kChanges)}},
    {"change_by_number", {kTensor, numbers(-3, 3), names(kChangesByNumber)}},
    {"swap_storage", {kTensor, kTensor, names(kSwaps)}},
    {"draw", {kTensor, names(kDraws), numbers(0, 9)}},
    {"backward", {kTensor, kTensor, kStream}},
    {"move", {kTensor, kDevice, kFlag}},
    {"round_trip", {kTensor, {"stream", "event", "query"}}},
    {"elsewhere", {kTensor, {"clone", "square", "nonzero", "sum", "forget"}}},
    {"switch_stream", {kDevice, kStream, kFlag}},
    {"fall_behind", {kDevice}},
    {"forget", {kTensor}},
    {"read", {kTensor}},
};

// The program of a seed.
Steps generate(uint64_t seed, size_t length) {
  std::mt19937_64 random(seed);
  const auto pick = [&random](const auto& from) -> const auto& {
    return from[random() % from.size()];
  };
  Steps steps;
  while (steps.size() < length) {
    const Rule& rule = steps.empty() ? kGrammar.front() : pick(kGrammar);
    Step step{rule.name};
    for (const Choices& choices : rule.arguments) {
      step.push_back(pick(choices));
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

std::string text_of(const Steps& steps) {
  std::string text;
  for (const Step& step : steps) {
    for (const std::string& word : step) {
      text += (&word == step.data() ? "" : " ") + word;
    }
    text += '\n';
  }
  return text;
}

// The programs of a text; lines that start with = are results.
std::vector<Steps> parse(std::istream& text) {
  std::vector<Steps> programs(1);
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    Step step{std::istream_iterator<std::string>(words), {}};
    if (step.empty()) {
      programs.emplace_back();
    } else if (step[0] != "=") {
      programs.back().push_back(std::move(step));
    }
  }
  std::erase_if(programs, [](const Steps& steps) { return steps.empty(); });
  return programs;
}

// --------------------------------------------------------------------------------------- program

// The device is not like the CPU.
class Difference : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a call returned or threw.
struct Outcome {
  Tensor value;
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

c10::Device device_at(size_t index) { return {kOpenRegType, static_cast<c10::DeviceIndex>(index)}; }

using DeviceStreams = std::array<c10::Stream, kStreams>;
// Nobody else's: an error of a kernel is thrown to who waits for its stream next.
using Streams = std::array<DeviceStreams, kDevices>;

Streams own_streams() {
  const auto of_device = [](c10::DeviceIndex device) {
    return DeviceStreams{pooled_stream(device, 0), pooled_stream(device, 0),
                         pooled_stream(device, -1)};
  };
  return {of_device(0), of_device(1)};
}

// Those of the first thread: the default streams among them.
Streams first_streams() {
  Streams streams = own_streams();
  for (size_t device = 0; device < kDevices; ++device) {
    streams[device].back() = default_stream(static_cast<c10::DeviceIndex>(device));
  }
  return streams;
}

// Runs one program, on one thread. Throws Difference.
class Program {
 public:
  explicit Program(const Streams& streams)
      : streams_(streams), current_{streams[0].back(), streams[1].back()} {
    make_current();
  }

  ~Program() {
    for (std::thread& thread : elsewhere_) {
      thread.join();
    }
    pairs_.clear();
    for (size_t device = 0; device < kDevices; ++device) {
      for (const c10::Stream& stream : streams_[device]) {
        // Errors belong to this program: the next one starts without.
        (void)attempt([&stream] { return synchronize_stream(native_stream(stream)), Tensor(); });
      }
      exchange_stream(default_stream(static_cast<c10::DeviceIndex>(device)));
    }
  }

  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void run(const Steps& steps) {
    for (const Step& step : steps) {
      const auto action = kActions.find(step.at(0));
      TORCH_CHECK_VALUE(action != kActions.end(), "there is no step '", step[0], "'");
      step_ = &step;
      if (!action->second.needs_tensor || !pairs_.empty()) {
        std::invoke(action->second.function, *this);
      }
    }
    for (const Pair& pair : pairs_) {
      compare(pair);
    }
  }

  // What the CPU has at the end: a line for each tensor.
  std::string results() const {
    std::string text;
    for (const Pair& pair : pairs_) {
      const auto dtype = std::ranges::find(kDtypes, pair.theirs.scalar_type(),
                                           &decltype(kDtypes)::value_type::second);
      text += "= " + (dtype != kDtypes.end() ? dtype->first : "?") + " " + shape_of(pair.theirs);
      const Tensor values = pair.theirs.to(at::kLong).contiguous();
      for (const int64_t value : std::span(values.const_data_ptr<int64_t>(), values.numel())) {
        text += " " + std::to_string(value);
      }
      text += '\n';
    }
    return text;
  }

 private:
  struct Pair {
    Tensor theirs;  // of the CPU
    Tensor ours;    // of the device
  };

  struct Action {
    void (Program::*function)();
    bool needs_tensor;
  };

  static std::string shape_of(const Tensor& tensor) {
    std::string shape;
    for (const int64_t size : tensor.sizes()) {
      shape += (shape.empty() ? "" : "x") + std::to_string(size);
    }
    return shape.empty() ? "number" : shape;
  }

  // Those that the shape gives a meaning.
  static std::vector<int64_t> strides_of(const Tensor& tensor) {
    std::vector<int64_t> strides;
    for (int64_t dimension = 0; dimension < tensor.dim() && tensor.numel() > 0; ++dimension) {
      if (tensor.size(dimension) > 1) {
        strides.push_back(tensor.stride(dimension));
      }
    }
    return strides;
  }

  // Arguments of the present step.

  const std::string& word(size_t index) const { return step_->at(index + 1); }

  int64_t number(size_t index) const { return std::stoll(word(index)); }

  Pair& pair(size_t index) { return pairs_[static_cast<size_t>(number(index)) % pairs_.size()]; }

  template <class Map>
  const auto& named(const Map& map, size_t index) const {
    const auto found = map.find(word(index));
    TORCH_CHECK_VALUE(found != map.end(), "step '", (*step_)[0], "' knows no '", word(index), "'");
    return found->second;
  }

  // Streams.

  size_t device_of(const Tensor& ours) const { return static_cast<size_t>(ours.device().index()); }

  void make_current() const {
    for (const c10::Stream& stream : current_) {
      exchange_stream(stream);
    }
  }

  // Comparing.

  [[noreturn]] void differ(const std::string& what) const {
    throw Difference("at '" + text_of({*step_}).substr(0, text_of({*step_}).size() - 1) +
                     "': " + what);
  }

  void compare(const Pair& pair) const {
    const Tensor found = pair.ours.cpu();
    if (!found.equal(pair.theirs)) {
      differ(c10::str("expected\n", pair.theirs, "\nfound\n", found));
    }
  }

  // Calls it on the device. Some errors come with the next synchronization, even a second one: what
  // was queued may fail, and then what the same step calls next.
  template <class Function>
  Outcome call(const Outcome& theirs, const Tensor& where, Function&& function) {
    Outcome ours = attempt(function);
    if (theirs.error.has_value()) {
      const Outcome late = attempt([&] {
        synchronize_stream(native_stream(current_[device_of(where)]));
        return Tensor();
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

  void keep(Tensor theirs, Tensor ours) {
    if (ours.scalar_type() != theirs.scalar_type() || ours.sizes() != theirs.sizes() ||
        strides_of(ours) != strides_of(theirs)) {
      differ(c10::str("expected ", theirs.toString(), theirs.sizes(), theirs.strides(), ", found ",
                      ours.toString(), ours.sizes(), ours.strides()));
    }
    if (theirs.numel() <= kMostElements) {
      pairs_.push_back({std::move(theirs), std::move(ours)});
    }
    if (pairs_.size() > kTensors) {
      pairs_.erase(pairs_.begin());  // freed, whatever is still queued
    }
  }

  // function(CPU tensors...) against function(device tensors...), whose result is a new tensor.
  template <class Function, class... Pairs>
  void both(Function&& function, const Pair& first, const Pairs&... pairs) {
    const Outcome theirs = attempt([&] { return function(first.theirs, pairs.theirs...); });
    const Outcome ours =
        call(theirs, first.ours, [&] { return function(first.ours, pairs.ours...); });
    if (!theirs.error.has_value()) {
      keep(theirs.value, ours.value);
    }
  }

  // The same for a function that changes its first argument.
  template <class Function, class... Pairs>
  void in_place(Function&& function, const Pair& first, const Pairs&... pairs) {
    const Outcome theirs = attempt([&] { return function(first.theirs, pairs.theirs...); });
    call(theirs, first.ours, [&] { return function(first.ours, pairs.ours...); });
  }

  // Steps.

  void make() {
    std::vector<int64_t> sizes;
    if (word(0) != "number") {
      std::istringstream shape(word(0));
      for (std::string size; std::getline(shape, size, 'x');) {
        sizes.push_back(std::stoll(size));
      }
    }
    at::Generator generator = at::detail::createCPUGenerator(++made_);
    const Tensor theirs =
        at::randint(-9, 10, sizes, generator, at::TensorOptions(at::kLong)).to(named(kDtypes, 1));
    keep(theirs, theirs.to(device_at(static_cast<size_t>(number(2)))));
  }

  void view() {
    both([&](const Tensor& x) { return named(kViews, 1)(x, number(2)); }, pair(0));
  }

  void binary() {
    if (pair(0).ours.device() == pair(1).ours.device()) {
      both(named(kBinary, 2), pair(0), pair(1));
    }
  }

  void unary() { both(named(kUnary, 1), pair(0)); }

  void change() {
    if (pair(0).ours.device() == pair(1).ours.device()) {
      in_place(named(kChanges, 2), pair(0), pair(1));
    }
  }

  void change_by_number() {
    in_place([&](const Tensor& x) { return named(kChangesByNumber, 2)(x, number(1)); }, pair(0));
  }

  // What is queued keeps the memory that it was launched with.
  void swap_storage() {
    if (pair(0).ours.device() == pair(1).ours.device()) {
      both(named(kSwaps, 2), pair(0), pair(1));
    }
  }

  // The same numbers for the same seed, whatever is queued. (Which ones: generator_test.cc.)
  void draw() {
    const Tensor like = pair(0).ours;
    at::Generator generator = at::make_generator<GeneratorImpl>(like.device().index());
    const auto sample = [&] {
      generator.set_current_seed(static_cast<uint64_t>(number(2)));
      return named(kDraws, 1)(like, generator);
    };
    const Tensor first = sample();
    const Tensor second = sample();
    keep(first.cpu(), second);
  }

  // Gradients of the sum of x * x * y, the second product on another stream.
  void backward() {
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

  void move() {
    const Pair from = pair(0);
    keep(from.theirs.clone(), from.ours.to(device_at(static_cast<size_t>(number(1))),
                                           from.ours.scalar_type(), number(2) != 0,
                                           /*copy=*/true));
  }

  // Through pinned memory, whose last reference goes while the copy back is queued.
  void round_trip() {
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

  // On a thread that starts with this one's streams. It may outlast the step only to forget.
  void elsewhere() {
    if (word(1) == "forget") {
      const auto at = pairs_.begin() + number(0) % static_cast<int64_t>(pairs_.size());
      elsewhere_.emplace_back([ours = std::move(at->ours)]() mutable { ours.reset(); });
      pairs_.erase(at);
      return;
    }
    both(
        [&](const Tensor& x) {
          if (x.is_cpu()) {
            return named(kUnary, 1)(x);
          }
          Outcome outcome;
          std::thread([&] {
            make_current();
            outcome = attempt([&] { return named(kUnary, 1)(x); });
          }).join();
          TORCH_CHECK(!outcome.error.has_value(), *outcome.error);
          return outcome.value;
        },
        pair(0));
  }

  // The new stream goes on behind all that was queued, on both devices.
  void switch_stream() {
    const auto device = static_cast<size_t>(number(0));
    const c10::Stream stream = streams_[device][static_cast<size_t>(number(1))];
    for (size_t other = 0; other < kDevices; ++other) {
      if (number(2) != 0) {
        // Again, while streams wait for what it recorded before.
        events_[other].record(current_[other]);
        events_[other].block(stream);
      } else {
        wait(stream, current_[other]);
      }
    }
    wait(current_[1 - device], stream);
    current_[device] = stream;
    make_current();
    // Memory is used on another stream than the one that it was allocated on.
    for (const Pair& pair : pairs_) {
      if (device_of(pair.ours) == device) {
        pair.ours.record_stream(stream);
      }
    }
  }

  // With an event that goes while it is waited for.
  static void wait(const c10::Stream& stream, const c10::Stream& earlier) {
    c10::Event event(kOpenRegType);
    event.record(earlier);
    event.block(stream);
  }

  void fall_behind() {
    const DeviceScope scope(static_cast<c10::DeviceIndex>(number(0)));
    launch_sleep(200'000);
  }

  void forget() { pairs_.erase(pairs_.begin() + number(0) % static_cast<int64_t>(pairs_.size())); }

  void read() { compare(pair(0)); }

  // Not in the grammar: what a wrong kernel would do, for the test of the test.
  void spoil() { pair(0).ours.add_(1); }

  static const std::map<std::string, Action> kActions;

  const Streams& streams_;
  std::array<c10::Stream, kDevices> current_;
  std::array<c10::Event, kDevices> events_{c10::Event(kOpenRegType), c10::Event(kOpenRegType)};
  std::vector<Pair> pairs_;
  std::vector<std::thread> elsewhere_;
  const Step* step_ = nullptr;
  uint64_t made_ = 0;
};

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

// What was different, if anything was.
std::optional<std::string> failure_of(const Steps& steps, const Streams& streams) {
  try {
    Program(streams).run(steps);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return std::nullopt;
}

// Leaves out as many steps as it can so that it still fails.
Steps shrink(Steps steps, const Streams& streams) {
  for (size_t count = steps.size() / 2; count > 0; count /= 2) {
    for (size_t at = 0; at + count <= steps.size();) {
      Steps fewer = steps;
      const auto from = fewer.begin() + static_cast<std::ptrdiff_t>(at);
      fewer.erase(from, from + static_cast<std::ptrdiff_t>(count));
      if (failure_of(fewer, streams).has_value()) {
        steps = std::move(fewer);
      } else {
        at += count;
      }
    }
  }
  return steps;
}

// ----------------------------------------------------------------------------------------- tests

struct Flags {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  uint64_t programs = 100;
#else
  uint64_t programs = 400;
#endif
  uint64_t seed = 1;
  size_t steps = 40;
  size_t threads = 4;
  bool show = false;
  std::string replay;
};

Flags flags;

// Seeds of the programs that run now, for who looks at a process that was ended; 0 for none.
std::array<std::atomic<uint64_t>, 64> running;

void tell_what_runs() {
  for (const std::atomic<uint64_t>& seed : running) {
    if (seed != 0) {
      std::fprintf(stderr, "It ran --programs=1 --seed=%llu --steps=%zu\n",
                   static_cast<unsigned long long>(seed), flags.steps);
    }
  }
}

// Runs the programs of flags.programs seeds on so many threads, and says what was different.
std::string run_programs(size_t threads) {
  const Streams streams = first_streams();
  std::atomic<uint64_t> next{flags.seed};
  std::mutex mutex;
  std::string report;
  const auto work = [&](size_t slot, const Streams& its_streams) {
    while (true) {
      const uint64_t seed = next++;
      if (seed >= flags.seed + flags.programs) {
        break;
      }
      running[slot] = seed;
      const Steps steps = generate(seed, flags.steps);
      const std::optional<std::string> failure = failure_of(steps, its_streams);
      if (failure.has_value()) {
        const std::lock_guard lock(mutex);
        next = flags.seed + flags.programs;
        report += c10::str("program of seed ", seed, ": ", *failure, "\n", text_of(steps));
        const Steps fewer = shrink(steps, its_streams);
        if (const auto again = failure_of(fewer, its_streams)) {
          report += c10::str("shrunk: ", *again, "\n", text_of(fewer));
        }
      }
    }
    running[slot] = 0;
  };
  if (threads == 1) {
    work(0, streams);
  } else {
    std::vector<std::thread> workers;
    for (size_t slot = 0; slot < std::min(threads, running.size()); ++slot) {
      workers.emplace_back([&work, slot] { work(slot, own_streams()); });
    }
    for (std::thread& worker : workers) {
      worker.join();
    }
  }
  return report;
}

TEST(ProgramTest, ComputesWhatTheCpuComputes) { EXPECT_EQ(run_programs(1), ""); }

TEST(ProgramTest, SeveralAtATimeDoSoToo) { EXPECT_EQ(run_programs(flags.threads), ""); }

TEST(ProgramTest, ADifferenceIsFoundAndShrunk) {
  const Streams streams = first_streams();
  Steps steps = generate(1, 40);
  ASSERT_EQ(failure_of(steps, streams), std::nullopt);
  steps.insert(steps.begin() + 20, {{"new", "2x3", "int64", "1"}, {"spoil", "11"}, {"read", "11"}});
  steps.insert(steps.begin(), 12, {"new", "4", "float32", "0"});
  EXPECT_NE(failure_of(steps, streams), std::nullopt);
  const Steps fewer = shrink(steps, streams);
  ASSERT_EQ(fewer.size(), 2U) << text_of(fewer);
  EXPECT_EQ(fewer[0][0], "new");
  EXPECT_EQ(fewer[1][0], "spoil");
}

TEST(ProgramTest, IsReadAsItIsWritten) {
  const Steps one = generate(1, 40);
  const Steps other = generate(2, 40);
  std::istringstream text(text_of(one) + "= int64 2 1 1\n\n" + text_of(other));
  EXPECT_EQ(parse(text), (std::vector<Steps>{one, other}));
}

// Prints each program and its results. The exit status is 1 if any is different on the device.
int show() {
  std::vector<Steps> programs;
  if (flags.replay.empty()) {
    for (uint64_t seed = flags.seed; seed < flags.seed + flags.programs; ++seed) {
      programs.push_back(generate(seed, flags.steps));
    }
  } else {
    std::ifstream file(flags.replay);
    programs = parse(file);
  }
  const Streams streams = first_streams();
  int status = 0;
  for (const Steps& steps : programs) {
    std::cout << text_of(steps) << std::flush;
    try {
      Program program(streams);
      program.run(steps);
      std::cout << program.results() << '\n';
    } catch (const std::exception& error) {
      std::cout << "= different " << error.what() << "\n\n";
      status = 1;
    }
  }
  return status;
}

// Sets the flag that an argument (--name=value) names.
void set_flag(std::string_view argument) {
  const size_t equals = std::min(argument.find('='), argument.size());
  const std::string_view name = argument.substr(0, equals);
  const std::string_view value = argument.substr(std::min(equals + 1, argument.size()));
  const auto read = [&](auto& number) {
    const auto result = std::from_chars(value.data(), value.data() + value.size(), number);
    TORCH_CHECK_VALUE(result.ec == std::errc() && result.ptr == value.data() + value.size(),
                      argument, ": expected a number");
  };
  if (name == "--show") {
    flags.show = true;
  } else if (name == "--replay") {
    flags.replay = value;
    flags.show = true;
  } else if (name == "--programs") {
    read(flags.programs);
  } else if (name == "--seed") {
    read(flags.seed);
  } else if (name == "--steps") {
    read(flags.steps);
  } else if (name == "--threads") {
    read(flags.threads);
  } else {
    TORCH_CHECK_VALUE(false, argument,
                      ": expected --programs --seed --steps --threads --show "
                      "--replay");
  }
}

}  // namespace
}  // namespace openreg

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // Until the device has a name (in Python the package gives it) torch knows of no accelerator.
  c10::register_privateuse1_backend("openreg");
  for (const char* argument : std::span(argv, static_cast<size_t>(argc)).subspan(1)) {
    openreg::set_flag(argument);
  }
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(&openreg::tell_what_runs);
  }
  return openreg::flags.show ? openreg::show() : RUN_ALL_TESTS();
}
