// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/allocator_settings.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/util/Exception.h>

#include <array>
#include <charconv>
#include <optional>
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

// An option that exists only for other devices, its neutral value, and the reason why other values
// are rejected.
struct Unsupported {
  std::string_view key;
  std::string_view neutral;
  std::string_view reason;
};
constexpr std::array kUnsupported = {
    Unsupported{"expandable_segments", "False", "segments of this device cannot grow in place"},
    Unsupported{"backend", "native", "there is only one allocator"},
    Unsupported{"release_lock_on_cudamalloc", "False", "it concerns CUDA's allocation function"},
    Unsupported{"pinned_use_cuda_host_register", "False",
                "pinned memory is not registered with CUDA"},
    Unsupported{"pinned_num_register_threads", "1", "pinning needs no threads here"},
    Unsupported{"pinned_reserve_segment_size_mb", "0", "pinned memory has no segments here"},
    Unsupported{"pinned_free_catch_all", "False", "it concerns CUDA's functions for pinned memory"},
    Unsupported{"throw_on_cudamalloc_oom", "False", "it concerns CUDA's allocation function"},
    Unsupported{"graph_capture_record_stream_reuse", "False",
                "it concerns captures of CUDA graphs"},
};

double parse_fraction(const std::string& text) {
  double fraction = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fraction);
  TORCH_CHECK_VALUE(
      error == std::errc() && end == text.data() + text.size() && fraction >= 0 && fraction <= 1,
      "openreg: PYTORCH_ALLOC_CONF: ", kFraction, " is the share of a device's memory that this ",
      "process may allocate: it must be between 0 and 1, but is '", text, "'");
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
    for (const Unsupported& unsupported : kUnsupported) {
      TORCH_CHECK_VALUE(key != unsupported.key || tokens[value] == unsupported.neutral,
                        "openreg: PYTORCH_ALLOC_CONF: ", key, ":", tokens[value],
                        " is not supported on device openreg, because ", unsupported.reason,
                        ": remove it or set it to ", unsupported.neutral,
                        ". Supported options: ", kKnown);
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

void on_allocator_settings(std::function<bool()> in_use,
                           std::function<void(const AllocatorSettings&)> apply) {
  // Register the keys, because torch rejects unknown keys. Another device in this process may
  // already have registered some of them.
  auto& keys = AcceleratorAllocatorConfig::getMutableKeys();
  keys.emplace(kFraction);
  for (const Unsupported& unsupported : kUnsupported) {
    keys.emplace(unsupported.key);
  }
  auto& hook = AcceleratorAllocatorConfig::getConfigParserHook();
  hook = [others = std::move(hook), in_use = std::move(in_use),
          apply = std::move(apply)](const std::string& text) {
    // Parse the text before the other device's parser does. CUDA's parser reports an invalid
    // fraction as "stod", and a change of the allocator as an internal error.
    std::optional<AllocatorSettings> settings;
    if (in_use()) {
      settings = parse(text);
    }
    if (others) {
      others(text);
    }
    if (settings.has_value()) {
      apply(*settings);
    }
  };
}

}  // namespace openreg
