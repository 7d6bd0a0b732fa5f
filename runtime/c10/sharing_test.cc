// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/sharing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "runtime/c10/device_allocator.h"
#include "runtime/c10/stream.h"
#include "runtime/device/ipc_peer.h"

namespace openreg {
namespace {

constexpr size_t kBytes = 4096;

class Lender {
 public:
  Lender() { EXPECT_EQ(peer_.Ask("new " + std::to_string(kBytes) + " 7"), "ok 0"); }

  // Of the same block each time.
  orIpcLoan lend() { return peer_.Give<orIpcLoan>("lend 0 0 " + std::to_string(kBytes)); }

 private:
  device::PeerProcess peer_;
};

// A defect shows with --config=tsan only.
TEST(SharingTest, StreamsMayBeRecordedWhileThreadsBorrow) {
  constexpr int kRounds = 100;
  Lender lender;
  std::vector<orIpcLoan> loans;
  for (int round = 0; round < kRounds; ++round) {
    loans.push_back(lender.lend());
  }
  const c10::Storage borrowed = borrow_storage(lender.lend(), kBytes, 0);
  const c10::Stream streams[] = {pooled_stream(0, 0), pooled_stream(0, 0)};
  std::atomic<bool> begun{false};
  std::atomic<bool> done{false};
  std::thread recorder([&] {
    const c10::Storage lent(c10::Storage::use_byte_size_t(), kBytes, allocate_on(0, kBytes),
                            device_allocator(), /*resizable=*/true);
    (void)lend_storage(lent);
    for (size_t round = 0; !done.load(std::memory_order_relaxed); ++round) {
      device_allocator()->recordStream(borrowed.data_ptr(), streams[round % 2]);
      device_allocator()->recordStream(lent.data_ptr(), streams[round % 2]);
      begun.store(true, std::memory_order_relaxed);
    }
  });
  while (!begun.load(std::memory_order_relaxed)) {
    std::this_thread::yield();
  }
  for (const orIpcLoan& loan : loans) {
    const c10::Storage again = borrow_storage(loan, kBytes, 0);
    EXPECT_EQ(again.unsafeGetStorageImpl(), borrowed.unsafeGetStorageImpl());
    const c10::Storage other(c10::Storage::use_byte_size_t(), kBytes, allocate_on(0, kBytes),
                             device_allocator(), /*resizable=*/true);
    (void)lend_storage(other);
    (void)release_shared();
  }
  done.store(true, std::memory_order_relaxed);
  recorder.join();
}

}  // namespace
}  // namespace openreg
