// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/shutdown.h"

#include <atomic>
#include <thread>

namespace openreg {
namespace {

// The thread that shuts the device down, or id() if no thread has done so.
std::atomic<std::thread::id> ending_thread{};

}  // namespace

void shut_down() noexcept {
  ending_thread.store(std::this_thread::get_id(), std::memory_order_seq_cst);
  (void)orShutdown();
}

bool ends_on_another_thread() noexcept {
  const std::thread::id ending = ending_thread.load(std::memory_order_seq_cst);
  return ending != std::thread::id() && ending != std::this_thread::get_id();
}

}  // namespace openreg
