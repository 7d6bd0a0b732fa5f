// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/allocator_settings.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/util/Exception.h>

#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

namespace openreg {
namespace {

using c10::CachingAllocator::AcceleratorAllocatorConfig;
using c10::CachingAllocator::ConfigTokenizer;

constexpr std::string_view kKnown =
    "garbage_collection_threshold, large_segment_size_mb, max_non_split_rounding_mb, "
    "max_split_size_mb, per_process_memory_fraction, pinned_max_cached_size_mb, "
    "pinned_max_round_threshold_mb, pinned_use_background_threads, roundup_power2_divisions";

constexpr std::string_view kFraction = "per_process_memory_fraction";

// Options of other devices: the neutral value, and why no other one is possible.
struct Foreign {
  std::string_view key;
  std::string_view neutral;
  std::string_view reason;
};
constexpr std::array kForeign = {
    Foreign{"expandable_segments", "False", "a segment of this device cannot grow at its place"},
    Foreign{"backend", "native", "there is one allocator"},
    Foreign{"release_lock_on_cudamalloc", "False", "it is about CUDA's allocation function"},
    Foreign{"pinned_use_cuda_host_register", "False", "pinned memory is not registered with CUDA"},
    Foreign{"pinned_num_register_threads", "1", "pinning needs no threads here"},
    Foreign{"pinned_reserve_segment_size_mb", "0", "pinned memory has no segments here"},
};

double parse_fraction(const std::string& text) {
  double fraction = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fraction);
  TORCH_CHECK_VALUE(
      error == std::errc() && end == text.data() + text.size() && fraction >= 0 && fraction <= 1,
      "openreg: PYTORCH_ALLOC_CONF: ", kFraction, " is the part of a device's memory that this ",
      "process may take, from 0 to 1, but is '", text, "'");
  return fraction;
}

AllocatorSettings parse(const std::string& text) {
  AllocatorSettings settings;
  const ConfigTokenizer tokens(text);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string& key = tokens[i];
    if (key == ",") {
      continue;
    }
    const size_t value = tokens.skipKey(i);
    if (key == kFraction) {
      settings.memory_fraction = parse_fraction(tokens[value]);
    }
    for (const Foreign& foreign : kForeign) {
      TORCH_CHECK_VALUE(key != foreign.key || tokens[value] == foreign.neutral,
                        "openreg: PYTORCH_ALLOC_CONF: ", key, ":", tokens[value],
                        " has no meaning on device openreg, because ", foreign.reason,
                        ". Leave it out (or ", foreign.neutral, "). Options: ", kKnown);
    }
    i = value;
  }
  settings.core.split.largest = AcceleratorAllocatorConfig::max_split_size();
  settings.core.split.slack = AcceleratorAllocatorConfig::max_non_split_rounding_size();
  settings.core.divisions = AcceleratorAllocatorConfig::roundup_power2_divisions();
  settings.core.large_segment = AcceleratorAllocatorConfig::large_segment_size();
  settings.core.collect_above = AcceleratorAllocatorConfig::garbage_collection_threshold();
  return settings;
}

}  // namespace

AllocatorSettings allocator_settings() {
  return parse(AcceleratorAllocatorConfig::instance().last_allocator_settings());
}

void on_allocator_settings(std::function<void(const AllocatorSettings&)> apply) {
  // torch refuses unregistered keys. Another device of this process may have registered some of
  // these.
  auto& keys = AcceleratorAllocatorConfig::getMutableKeys();
  keys.emplace(kFraction);
  for (const Foreign& foreign : kForeign) {
    keys.emplace(foreign.key);
  }
  auto& hook = AcceleratorAllocatorConfig::getConfigParserHook();
  hook = [others = std::move(hook), apply = std::move(apply)](const std::string& text) {
    if (others) {
      others(text);
    }
    apply(parse(text));
  };
}

}  // namespace openreg
