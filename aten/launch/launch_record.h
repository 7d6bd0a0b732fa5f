// SPDX-License-Identifier: BSD-3-Clause
//
// Launch records: the memory of one launch, from the operator call until its kernel has finished.
//
// A launch record contains a closure (a kernel with all its arguments, by value) and the pool of
// the aliases. The closure is built in place and not moved, because closures contain
// TensorIterators, which cannot be copied byte by byte. Only the record's address is passed through
// the driver's queue.
//
// Each thread has a home, which keeps the thread's launch records. The home reuses the last record
// first, so that the memory for inline kernels stays in cache. A worker that has finished with a
// launch record pushes the record onto the home's list of returned records with an atomic
// operation. When its own list is empty, the home takes over the whole list of returned records.
// There is no lock, and no malloc after warm-up. When a thread ends, a new thread can reuse its
// home. acquire() is called on the launching thread, release() on any thread.
#ifndef ATEN_LAUNCH_LAUNCH_RECORD_H_
#define ATEN_LAUNCH_LAUNCH_RECORD_H_

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>

#include "aten/launch/alias.h"

namespace openreg {

class RecordHome;

struct alignas(64) LaunchRecord {
  static constexpr size_t kClosureBytes = 1536;

  LaunchRecord* next = nullptr;
  RecordHome* home = nullptr;
  AliasPool aliases;
  // Whether `closure` contains an object. After a failed launch, false means that the kernel has
  // run. The launching thread may read this flag even after the record has been returned, because
  // only that thread can reuse the record.
  bool occupied = false;
  // Set while the launching thread waits for the kernel. Receives the kernel's exception, which
  // then does not become an error of the stream.
  std::shared_ptr<std::exception_ptr> exception;
  alignas(16) std::byte closure[kClosureBytes];

  static LaunchRecord* acquire();

  // Returns whether the calling thread acquired the record.
  bool is_home() const;

  // Returns the record to its home. The closure must have been destroyed before. `at_home` is the
  // value of is_home().
  void release(bool at_home);
};

}  // namespace openreg

#endif  // ATEN_LAUNCH_LAUNCH_RECORD_H_
