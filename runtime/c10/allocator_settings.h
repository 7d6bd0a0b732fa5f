// SPDX-License-Identifier: BSD-3-Clause
//
// The settings of the device allocator: PYTORCH_ALLOC_CONF, and what a program sets at run time.
//
// torch reads the options that all devices share (c10/core/AllocatorConfig.h) and calls us with the
// whole text for the rest. Here an option that the device has no use for is an error, unless its
// value asks for nothing. Stateless but for torch's own; threads: any.
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

// What is set now. Throws c10::ValueError for an option that does not fit.
AllocatorSettings allocator_settings();

// `apply` gets the settings whenever they have changed. To be called once, before the first use.
void on_allocator_settings(std::function<void(const AllocatorSettings&)> apply);

}  // namespace openreg

#endif  // RUNTIME_C10_ALLOCATOR_SETTINGS_H_
