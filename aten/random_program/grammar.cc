// SPDX-License-Identifier: BSD-3-Clause
#include "aten/random_program/grammar.h"

#include <cstddef>
#include <cstdint>
#include <istream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "aten/random_program/operators.h"

namespace openreg::programs {
namespace {

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

// Returns the possible shapes of new tensors, such as "2x3". A 0-dim tensor has the shape "number".
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

// Returns the rules for steps: their names and the possible values of their arguments.
const std::vector<Rule>& grammar() {
  const Choices tensor = numbers(0, kTensors - 1);
  const Choices device = numbers(0, kDevices - 1);
  const Choices stream = numbers(0, kStreams - 1);
  const Choices flag = numbers(0, 1);
  static const std::vector<Rule> rules{
      {"new", {shapes(), names(dtypes()), device}},
      {"view", {tensor, names(views()), numbers(0, 3)}},
      {"binary", {tensor, tensor, names(binary_operators())}},
      {"unary", {tensor, names(unary_operators())}},
      {"change", {tensor, tensor, names(changes())}},
      {"change_by_number", {tensor, numbers(-3, 3), names(changes_by_number())}},
      {"swap_storage", {tensor, tensor, names(swaps())}},
      {"draw", {tensor, names(draws()), numbers(0, 9)}},
      {"backward", {tensor, tensor, stream}},
      {"move", {tensor, device, flag}},
      {"round_trip", {tensor, {"stream", "event", "query"}}},
      {"elsewhere", {tensor, {"clone", "square", "nonzero", "sum", "forget"}}},
      {"switch_stream", {device, stream, flag}},
      {"fall_behind", {device}},
      {"forget", {tensor}},
      {"read", {tensor}},
  };
  return rules;
}

}  // namespace

Steps generate(uint64_t seed, size_t length) {
  std::mt19937_64 random(seed);
  const auto pick = [&random](const auto& from) -> const auto& {
    return from[random() % from.size()];
  };
  Steps steps;
  while (steps.size() < length) {
    const Rule& rule = steps.empty() ? grammar().front() : pick(grammar());
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

}  // namespace openreg::programs
