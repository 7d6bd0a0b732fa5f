// SPDX-License-Identifier: BSD-3-Clause
//
// The settings of the device allocator: PYTORCH_ALLOC_CONF, and what a program sets at run time.
//
// torch reads the options that all devices share (c10/core/AllocatorConfig.h) and passes the whole
// text on for the rest. An option that means nothing on this device is an error here, unless its
// value is the neutral one. No state except torch's own. Threads: any.
#ifndef RUNTIME_C10_ALLOCATOR_SETTINGS_H_
#define RUNTIME_C10_ALLOCATOR_SETTINGS_H_

#include <functional>
#include <optional>

#include "runtime/allocator/settings.h"

namespace openreg {

struct AllocatorSettings {
  allocator::Settings core;
  std::optional<double> memory_fraction;  // of each device, if the text says so
};

// The current settings. Throws c10::ValueError for an option that does not fit.
AllocatorSettings allocator_settings();

// `apply` gets the settings whenever they have changed. Call this once, before the first use.
void on_allocator_settings(std::function<void(const AllocatorSettings&)> apply);

}  // namespace openreg

#endif  // RUNTIME_C10_ALLOCATOR_SETTINGS_H_
