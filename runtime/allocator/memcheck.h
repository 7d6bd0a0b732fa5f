// SPDX-License-Identifier: BSD-3-Clause
//
// Memcheck - allocates one device's memory in a way that detects invalid writes. Each block lies
// between two red zones. A freed block is poisoned and kept in quarantine for a while.
//
// Memcheck works alongside the caching allocator that the program uses, and the program sees no
// difference: statistics, limits and block sizes are the same as without memcheck. With memcheck,
// the program's allocator manages addresses that refer to no memory: its Source, ledger(), only
// counts bytes. For each block of the program's allocator, allocate() provides the memory, from a
// second allocator that Memcheck owns:
//
//  [ zone | the requested bytes | zone ]     kZone bytes of kZoneByte on both sides
//
// Blocks in private pools are not checked, because a graph writes to memory that was freed during
// its capture. The memory of these blocks is one mirror per segment of the ledger. A mirror exists
// as long as its segment.
//
// Order. Zones are written, scanned and poisoned by kernels on the block's stream, so they run
// after all earlier work on that stream and before all later work. If other streams use a block,
// these kernels wait for them first. Scans of a block are queued by free(), by check(), and when
// the block leaves the quarantine. take_findings() returns the result of a scan once the stream has
// run the scan. A fault is reported once per block and side. Memcheck does not detect reads, or
// writes that do not change the byte.
//
// Threads. Any thread may call any function, except that a worker thread of a device may call only
// free(); the next call by another thread then processes the block. A call may wait for room in a
// stream's queue.
#ifndef RUNTIME_ALLOCATOR_MEMCHECK_H_
#define RUNTIME_ALLOCATOR_MEMCHECK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/allocator/block.h"
#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/context.h"
#include "runtime/allocator/device_source.h"
#include "runtime/allocator/device_timeline.h"
#include "runtime/allocator/size_class.h"
#include "runtime/allocator/source.h"
#include "runtime/device/openreg.h"

namespace openreg::allocator {

// A host function that works on device memory.
using MemoryFunction = void (*)(char* memory, size_t bytes, uint64_t argument);

// A function that queues `function` on `stream`, with `memory` at its address for kernels. It
// returns orErrorInvalidHandle for a destroyed stream. A driver whose kernels run on the host
// registers such a function. Otherwise, no Memcheck can be created.
using LaunchMemoryFunction = orError_t (*)(orStream_t stream, MemoryFunction function, char* memory,
                                           size_t bytes, uint64_t argument);
OPENREG_API void set_memory_function_launcher(LaunchMemoryFunction launch);

class OPENREG_API Memcheck {
 public:
  static constexpr size_t kZone = 256;  // a multiple of kAlignment
  static constexpr uint8_t kZoneByte = 0xFA;
  static constexpr uint8_t kPoison = 0xFD;  // a large negative number in every type
  static constexpr size_t kQuarantine = 64 * kMiB;

  enum class Fault : uint8_t { kUnderrun, kOverrun, kUseAfterFree };
  struct Finding {
    Fault fault;
    const void* pointer;  // the block's address in the program
    size_t bytes;         // the requested size
    ptrdiff_t offset;     // distance in bytes from `pointer` to the first changed byte
    size_t changed;       // number of changed bytes
    Context allocated;    // the context in which the block was allocated (ContextScope)
    Context freed;        // the context in which it was freed; null for a block in use
  };

  // A block in use.
  struct Held {
    const void* pointer;
    size_t bytes;
    orStream_t stream;
    Context allocated;
  };

  // Creates the memcheck of a device. `quarantine` is the number of bytes of freed memory to keep.
  // At least one block is always kept.
  explicit Memcheck(int device, size_t quarantine = kQuarantine);
  ~Memcheck();  // waits for the device
  Memcheck(const Memcheck&) = delete;
  Memcheck& operator=(const Memcheck&) = delete;

  // Returns the source for the program's allocator.
  Source* ledger() { return &ledger_; }

  // Provides memory for a block that the program's allocator has just allocated, on the block's
  // stream. Throws OutOfMemoryError if there is no memory even after the quarantine has been
  // returned.
  void* allocate(const Block* block);
  void record_stream(const Block* block, orStream_t stream);
  // Queues a scan of a block and puts its memory in quarantine. Must be called before the program's
  // allocator frees the block.
  void free(const Block* block);

  // Queues scans of all blocks, both in use and in quarantine. The scans run on `stream`, or on
  // each block's own stream if there is no argument.
  void check(orStream_t stream);
  void check();
  // Returns the findings so far. Each finding is returned only once.
  std::vector<Finding> take_findings();

  std::vector<Held> held() const;
  // Returns the address of a block's memory, or null if the block is not in use.
  const void* address_of(const Block* block);
  // Returns the streams on which check() queues scans.
  std::vector<orStream_t> streams();

  // Returns the quarantine and other free memory to the device.
  void empty_quarantine();

  // Describes the program's memory, like CachingAllocator::describe(). Async-signal-safe.
  bool describe(const void* pointer, CachingAllocator::Description* description) const;

 private:
  struct Record;
  struct Findings;
  struct Scan;
  using RecordPtr = std::shared_ptr<Record>;

  // The source of the program's allocator. It only counts bytes. Its addresses refer to no memory.
  class Ledger final : public Source {
   public:
    explicit Ledger(Memcheck* memcheck) : memcheck_(memcheck) {}
    void* allocate(size_t size, std::string* reason) override;
    void free(void* segment, size_t size) override;
    void trim() override;
    Room room() override;

   private:
    Memcheck* const memcheck_;
    std::atomic<size_t> taken_{0};
    // The next address. It is above every address that a process can have, so any access to it
    // causes a fault.
    uintptr_t next_ = uintptr_t{1} << 60;
  };

  static void fill_zones(char* memory, size_t bytes, uint64_t unused);
  static void scan(char* memory, size_t bytes, uint64_t scan);

  // Runs `function` on the block's stream. The function receives the memory with its zones, and the
  // number of bytes between the zones.
  void launch(const Record& record, MemoryFunction function, uint64_t argument);
  void launch_scan(const RecordPtr& record, bool poisoned, bool poison);

  Mark mark(orStream_t stream);
  // Returns the stream for a block's kernels: the block's own stream, or the default stream if the
  // block's stream was destroyed.
  orStream_t home_of(const Record& record) const;
  bool is_captured(const Record& record) const;

  void* mirror(const Block* block);
  void drop_mirror(void* segment);

  // The following functions require mutex_. If a scan cannot be queued, they throw an exception,
  // and the next call queues the scan again.
  void collect();
  void retire(const RecordPtr& record);
  bool release_oldest();
  void check_locked(const orStream_t* only);

  const int device_;
  const size_t quarantine_limit_;
  DeviceSource source_;
  DeviceTimeline timeline_;
  CachingAllocator memory_;
  Ledger ledger_;
  const std::shared_ptr<Findings> findings_;

  // Guards everything that returns memory or queues scans. Otherwise, a scan could read memory that
  // already belongs to another block. The mutex is held while kernels are queued, which may wait
  // for room in the queue; it must therefore be acquired with LockForWait.
  std::mutex mutex_;
  std::deque<RecordPtr> awaiting_;    // freed blocks that other streams or a capture may still use
  std::deque<RecordPtr> quarantine_;  // oldest first
  size_t quarantined_ = 0;            // size of the quarantine in bytes

  // Acquired after mutex_ and held only briefly.
  mutable std::mutex held_mutex_;
  std::unordered_map<const Block*, RecordPtr> held_;
  std::vector<RecordPtr> freed_;  // freed blocks that collect() has not processed yet

  mutable std::mutex mirrors_mutex_;
  struct Mirror {
    void* memory;
    size_t size;
  };
  std::map<const void*, Mirror> mirrors_;  // key: address of the ledger's segment
  std::atomic<size_t> mirrored_{0};        // size of all mirrors in bytes
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_MEMCHECK_H_
