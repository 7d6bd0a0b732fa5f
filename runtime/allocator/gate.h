// SPDX-License-Identifier: BSD-3-Clause
//
// gate.h - Gate blocks a stream with a kernel until the end of a scope. The destructor opens the
// gate. The kernel may outlive the Gate object, so the two share their state.
#ifndef RUNTIME_ALLOCATOR_GATE_H_
#define RUNTIME_ALLOCATOR_GATE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "runtime/device/openreg_emulation.h"

namespace openreg::allocator {

class Gate {
 public:
  explicit Gate(orStream_t stream) {
    EXPECT_EQ(orLaunchKernel(
                  stream,
                  [](const std::shared_ptr<std::atomic<bool>>& open) {
                    while (!*open) {
                      std::this_thread::yield();
                    }
                  },
                  open_),
              orSuccess);
  }
  ~Gate() { *open_ = true; }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

 private:
  std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_GATE_H_
