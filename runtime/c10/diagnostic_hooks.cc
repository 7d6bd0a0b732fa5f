// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/diagnostic_hooks.h"

namespace openreg {
namespace {

constexpr DiagnosticHooks kNoDiagnostics{};

constinit std::atomic<const DiagnosticHooks*> registered_hooks{&kNoDiagnostics};

}  // namespace

constinit Watchers memory_watchers;
constinit Watchers stream_watchers;

void set_diagnostic_hooks(const DiagnosticHooks* hooks) noexcept {
  registered_hooks.store(hooks, std::memory_order_release);
}

const DiagnosticHooks& diagnostic_hooks() noexcept {
  return *registered_hooks.load(std::memory_order_acquire);
}

}  // namespace openreg
