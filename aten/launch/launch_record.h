// SPDX-License-Identifier: BSD-3-Clause
//
// Launch records: the memory of one launch, from the call of an operator until its kernel is done.
//
// A launch record holds a closure (a kernel with all its arguments, by value) and the pool of its
// aliases. The closure is built in place, where the kernel will find it: closures hold
// TensorIterators, which cannot be moved as bytes. Only the record's address travels through the
// driver's queue.
//
// Each thread keeps the launch records that it made and uses the last one first, so that the inline
// path stays in cache. A worker that is done with a launch record pushes it onto its home's list of
// returned ones (one atomic exchange); the home takes the whole list when its own is empty. No
// lock, no malloc after warm-up. Homes of threads that ended are given to new threads. Threads:
// acquire() on the launching thread, release() anywhere.
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
  // Whether `closure` holds an object. A launch that failed tells by it if its kernel has run: only
  // the launching thread can use the record again, so it may look after the record was given back.
  bool occupied = false;
  // Set while the launching thread waits for the kernel: takes its exception, which then does not
  // become an error of the stream.
  std::shared_ptr<std::exception_ptr> exception;
  alignas(16) std::byte closure[kClosureBytes];

  static LaunchRecord* acquire();

  // Whether the calling thread is the one that acquired it.
  bool is_home() const;

  // The closure has to be destroyed already. `at_home`: is_home().
  void release(bool at_home);
};

}  // namespace openreg

#endif  // ATEN_LAUNCH_LAUNCH_RECORD_H_
