// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/host_wait.h"

#include <atomic>

namespace {

std::atomic<const orHostWaitHooks*> host_wait_hooks{nullptr};

}  // namespace

void orSetHostWaitHooks(const orHostWaitHooks* hooks) {
  host_wait_hooks.store(hooks, std::memory_order_release);
}

const orHostWaitHooks* orGetHostWaitHooks(void) {
  return host_wait_hooks.load(std::memory_order_acquire);
}
