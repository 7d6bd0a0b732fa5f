// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/warning.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace openreg {
namespace {

class Keeper final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    kept_.push_back(warning);
    any_.store(true, std::memory_order_release);
  }

  std::vector<c10::Warning> take() {
    if (!any_.load(std::memory_order_acquire)) {
      return {};
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(kept_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<c10::Warning> kept_;
  std::atomic<bool> any_{false};
};

// Never destroyed: kernels may run while the process exits.
Keeper& keeper() {
  static auto* const keeper = std::make_unique<Keeper>().release();
  return *keeper;
}

}  // namespace

c10::WarningHandler* keep_warnings() noexcept { return &keeper(); }

void deliver_warnings() {
  for (const c10::Warning& warning : keeper().take()) {
    c10::warn(warning);
  }
}

}  // namespace openreg
