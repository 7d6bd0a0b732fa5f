// SPDX-License-Identifier: BSD-3-Clause
//
// Memcheck - gives out the memory of one device so that wrong writes to it are found: between red
// zones, and poisoned and kept in quarantine for a while after it was freed.
//
// It stands beside the caching allocator that the program knows and leaves it as it is: figures,
// limits and block sizes are those of a program without memcheck. That allocator then works on
// paper: its Source, ledger(), counts bytes and has none. For each of its blocks allocate() gives
// the memory, which comes from an allocator of Memcheck's own:
//
//   [ zone | the bytes that were asked for | zone ]     kZone bytes of kZoneByte on both sides
//
// Blocks of private pools are not checked: a graph writes to memory that was freed while it was
// captured. They lie in memory that mirrors the segment on paper, as long as that lives.
//
// Order. Zones are written, looked at and poisoned by kernels on the stream of the block, so behind
// the work that was queued before and ahead of all that comes later. Memory that other streams use
// waits for them first. Looking at a block is queued at free(), when it leaves the quarantine, and
// by check(); what is wrong is known when that stream has come so far: take_findings(). A fault is
// told once for each block and side. Writes of the very byte that was there are not seen, nor
// reads.
//
// Threads: any. On a worker of the device only free() may be called; the block then waits for the
// next call by another thread. A call may wait for room in a stream's queue.
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

// Runs a function of the host on device memory.
using MemoryFunction = void (*)(char* memory, size_t bytes, uint64_t argument);

// How the device does that: queues `function` on `stream`, with `memory` as a kernel sees it;
// orErrorInvalidHandle for a stream that was destroyed.
// Registered by a driver whose kernels run on the host (runtime/emulation). Without it no Memcheck
// can be made.
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
    const void* pointer;  // of the block, as the program knows it
    size_t bytes;         // that were asked for
    ptrdiff_t offset;     // of the first wrong byte, from `pointer`
    size_t changed;       // how many bytes are wrong
    Context allocated;    // where, by ContextScope
    Context freed;        // null while the program holds it
  };

  // A block that the program holds.
  struct Held {
    const void* pointer;
    size_t bytes;
    orStream_t stream;
    Context allocated;
  };

  // `quarantine`: bytes of freed memory that are kept; at least one block is.
  explicit Memcheck(int device, size_t quarantine = kQuarantine);
  ~Memcheck();  // waits for the device
  Memcheck(const Memcheck&) = delete;
  Memcheck& operator=(const Memcheck&) = delete;

  // For the program's allocator.
  Source* ledger() { return &ledger_; }

  // Memory for a block that the program's allocator has just given, on the block's stream. Throws
  // OutOfMemoryError if there is none, although the quarantine was given back.
  void* allocate(const Block* block);
  void record_stream(const Block* block, orStream_t stream);
  // Before the block goes back to the program's allocator.
  void free(const Block* block);

  // Queues looking at all blocks, held and in quarantine: of one stream, or each on its own.
  void check(orStream_t stream);
  void check();
  // What was found so far; nothing is found twice.
  std::vector<Finding> take_findings();

  std::vector<Held> held() const;
  // Where the memory of a block of the program's is; null for one that it does not hold.
  const void* address_of(const Block* block);
  // Whose work check() is queued behind.
  std::vector<orStream_t> streams();

  // Gives the quarantine and other free memory back to the device.
  void empty_quarantine();

  // As CachingAllocator::describe(), of the program's memory. Async-signal-safe.
  bool describe(const void* pointer, CachingAllocator::Description* description) const;

 private:
  struct Record;
  struct Findings;
  struct Look;
  using RecordPtr = std::shared_ptr<Record>;

  // Counts the bytes of the program's allocator. Its addresses name nothing.
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
    // Above all addresses that a process has, so that a use of one faults.
    uintptr_t next_ = uintptr_t{1} << 60;
  };

  static void fill_zones(char* memory, size_t bytes, uint64_t unused);
  static void look(char* memory, size_t bytes, uint64_t look);

  // On the block's stream; the function gets the memory with its zones, and the bytes between them.
  void launch(const Record& record, MemoryFunction function, uint64_t argument);
  void launch_look(const RecordPtr& record, bool poisoned, bool poison);

  Mark mark(orStream_t stream);
  // Where the kernels of a block go: its stream, or the default one if that was destroyed.
  orStream_t home_of(const Record& record) const;
  bool is_captured(const Record& record) const;

  void* mirror(const Block* block);
  void drop_mirror(void* segment);

  // These need mutex_. A look that cannot be queued is an error, and comes again with the next
  // call.
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

  // What gives memory back, and what queues looking at it: so nothing is looked at that may belong
  // to another block by then. Held while kernels are queued, which may wait for room: it is taken
  // by LockForWait.
  std::mutex mutex_;
  std::deque<RecordPtr> awaiting_;    // freed; other streams, or a capture, may use them
  std::deque<RecordPtr> quarantine_;  // the oldest first
  size_t quarantined_ = 0;            // bytes

  // Taken after mutex_; held for a moment.
  mutable std::mutex held_mutex_;
  std::unordered_map<const Block*, RecordPtr> held_;
  std::vector<RecordPtr> freed_;  // not seen by collect() yet

  mutable std::mutex mirrors_mutex_;
  struct Mirror {
    void* memory;
    size_t size;
  };
  std::map<const void*, Mirror> mirrors_;  // by the segment on paper
  std::atomic<size_t> mirrored_{0};        // bytes
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_MEMCHECK_H_
