// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/sharing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "runtime/c10/device_allocator.h"
#include "runtime/c10/stream.h"
#include "runtime/device/remote_process.h"

namespace openreg {
namespace {

constexpr size_t kBytes = 4096;

class Exporter {
 public:
  Exporter() { EXPECT_EQ(remote_.Ask("new " + std::to_string(kBytes) + " 7"), "ok 0"); }

  // Makes the other process export its block, and returns the handle.
  orIpcMemoryHandle export_all() {
    return remote_.Give<orIpcMemoryHandle>("export 0 0 " + std::to_string(kBytes));
  }

 private:
  device::RemoteProcess remote_;
};

// Runs code that could contain a data race. Only a build with --config=tsan reports the race.
TEST(SharingTest, StreamsMayBeRecordedWhileThreadsImport) {
  constexpr int kRounds = 100;
  Exporter exporter;
  std::vector<orIpcMemoryHandle> handles;
  for (int round = 0; round < kRounds; ++round) {
    handles.push_back(exporter.export_all());
  }
  const c10::Storage imported = import_storage(exporter.export_all(), kBytes, 0);
  const c10::Stream streams[] = {pooled_stream(0, 0), pooled_stream(0, 0)};
  std::atomic<bool> begun{false};
  std::atomic<bool> done{false};
  std::thread recorder([&] {
    const c10::Storage exported(c10::Storage::use_byte_size_t(), kBytes, allocate_on(0, kBytes),
                                device_allocator(), /*resizable=*/true);
    (void)export_storage(exported);
    for (size_t round = 0; !done.load(std::memory_order_relaxed); ++round) {
      device_allocator()->recordStream(imported.data_ptr(), streams[round % 2]);
      device_allocator()->recordStream(exported.data_ptr(), streams[round % 2]);
      begun.store(true, std::memory_order_relaxed);
    }
  });
  while (!begun.load(std::memory_order_relaxed)) {
    std::this_thread::yield();
  }
  for (const orIpcMemoryHandle& handle : handles) {
    const c10::Storage again = import_storage(handle, kBytes, 0);
    EXPECT_EQ(again.unsafeGetStorageImpl(), imported.unsafeGetStorageImpl());
    const c10::Storage other(c10::Storage::use_byte_size_t(), kBytes, allocate_on(0, kBytes),
                             device_allocator(), /*resizable=*/true);
    (void)export_storage(other);
    (void)release_shared();
  }
  done.store(true, std::memory_order_relaxed);
  recorder.join();
}

}  // namespace
}  // namespace openreg
