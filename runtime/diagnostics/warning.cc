// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnostics/warning.h"

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/diagnostics/watcher.h"

namespace openreg {
namespace {

// Stores kernel warnings. Its watcher bit is set while it stores any. The bit needs no additional
// memory ordering: a thread that has waited for a kernel sees all writes of the kernel.
class KernelWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    kept_.push_back(warning);
    stream_watchers.set(kKernelWarnings, true);
  }

  std::vector<c10::Warning> take() {
    if (!stream_watchers.contains(kKernelWarnings)) {
      return {};
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    stream_watchers.set(kKernelWarnings, false);
    return std::exchange(kept_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<c10::Warning> kept_;
};

// Returns the stored warnings. They are never destroyed, because kernels may run while the process
// exits.
KernelWarnings& kernel_warnings() {
  static auto* const warnings = std::make_unique<KernelWarnings>().release();
  return *warnings;
}

}  // namespace

c10::WarningHandler* kernel_warning_handler() noexcept { return &kernel_warnings(); }

void deliver_warnings() {
  for (const c10::Warning& warning : kernel_warnings().take()) {
    c10::warn(warning);
  }
}

}  // namespace openreg
