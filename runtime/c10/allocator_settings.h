// SPDX-License-Identifier: BSD-3-Clause
//
// allocator_settings.h - the device allocator's settings: PYTORCH_ALLOC_CONF and the values that a
// program sets at run time.
//
// torch parses the options that all devices share (c10/core/AllocatorConfig.h). It then passes on
// the whole text, and this file parses the other options. An option that has no meaning on this
// device causes an error, unless it has its neutral value. torch stores the settings; this file
// keeps no state. Any thread may call these functions.
#ifndef RUNTIME_C10_ALLOCATOR_SETTINGS_H_
#define RUNTIME_C10_ALLOCATOR_SETTINGS_H_

#include <functional>
#include <optional>

#include "runtime/allocator/settings.h"

namespace openreg {

struct AllocatorSettings {
  allocator::Settings core;
  std::optional<double> memory_fraction;  // fraction of each device's memory, if specified
};

// Returns the current settings. Throws c10::ValueError for an unsupported option or value.
AllocatorSettings allocator_settings();

// Makes torch call `apply` with the settings if they change while `in_use()` is true. Before the
// first use of device memory, a change must not cause an error, because it may be meant for CUDA:
// all devices share the settings. Must be called exactly once, before the settings are first used.
void on_allocator_settings(std::function<bool()> in_use,
                           std::function<void(const AllocatorSettings&)> apply);

}  // namespace openreg

#endif  // RUNTIME_C10_ALLOCATOR_SETTINGS_H_
