// SPDX-License-Identifier: BSD-3-Clause
//
// Race detector: finds two uses of one memory block that are not ordered. It considers the order
// that a program requests with streams and events, not the order in which the uses happened to run.
//
// Each stream has a vector clock. It contains the number of launches on the stream and, for each
// other stream, the number of launches that are known to be done before the stream's next launch.
// An event stores the clock of the stream that recorded it. A stream that waits for the event
// merges that clock into its own. Work for which the host has waited is known to be done for all
// later launches by any thread: the detector cannot observe how host threads synchronize with each
// other, and assumes that they do. A use at time n on stream s is ordered before a launch on stream
// t if t's clock contains n for s.
//
// Each block has a history, which contains the uses that a later use may race with. A use is
// omitted if every later use that races with it also races with a newer entry. Histories are
// therefore short. Freed memory keeps its history until the stream that owned it allocates it
// again. Such an allocation counts as a write. It races with uses by other streams if the program
// neither waited for these streams nor guarded the memory (record_stream).
//
// The detector depends neither on torch nor on the device. A stream is a handle and a device index.
// The detector owns clocks and histories; it shares each launch with the races that contain it.
// Only one thread at a time may call it, so the caller must hold a lock.
#ifndef RUNTIME_DIAGNOSTICS_RACE_DETECTOR_H_
#define RUNTIME_DIAGNOSTICS_RACE_DETECTOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/diagnostics/call_stack.h"

namespace openreg {

// A stream on a device, identified by the driver's handle.
struct StreamName {
  uint64_t handle;
  int device;
};

// The bytes in use within [begin, end): the first `width` bytes of each `period`, for example some
// columns of a matrix. Dense memory has period 0.
struct Extent {
  uintptr_t begin;
  uintptr_t end;
  size_t width;
  size_t period;

  bool overlaps(const Extent& other) const;
  bool contains(const Extent& other) const;
};

// A launch. All uses of memory by the launch share it.
struct WatchedLaunch {
  std::string name;  // name of the operator
  StreamName stream;
  CallStack stack;
};

enum class UseKind : uint8_t { kRead, kWrite, kAllocation };

struct Use {
  Extent extent;
  UseKind kind;
};

// Two uses that are not ordered with each other.
struct Race {
  struct Side {
    UseKind kind;
    std::shared_ptr<const WatchedLaunch> launch;
  };
  Side earlier;  // the use whose call came first
  Side later;
  uintptr_t block;
  size_t bytes;  // size of the block
};

class RaceDetector {
 public:
  // The largest number of uses in a block's history. The oldest ones are dropped, so a race may be
  // missed.
  static constexpr size_t kHistory = 64;

  // Records a launch with the memory that it is about to use. Returns its races with earlier uses.
  // If there are races and `keep` is false, the launch is not recorded. Ignores memory that was not
  // recorded with allocate().
  std::vector<Race> launch(const std::shared_ptr<const WatchedLaunch>& launch,
                           const std::vector<Use>& uses, bool keep);

  // Records an allocation for the stream of `launch`, which describes the allocating call. Returns
  // its races with uses of the memory before it was freed.
  std::vector<Race> allocate(uintptr_t begin, size_t bytes,
                             const std::shared_ptr<const WatchedLaunch>& launch);
  // Records that memory is freed. Its history keeps uses by other, unguarded streams, because the
  // allocator may return the memory to its owning stream without waiting for them.
  void free(uintptr_t begin);
  // Records that the allocator will wait for the work on `stream` before it reuses the memory.
  void guard(uintptr_t begin, StreamName stream);

  // record() records that `stream` records the event; forget() records that the event is destroyed.
  void record(uint64_t event, StreamName stream);
  void forget(uint64_t event);
  // Records that `stream` waits for the event.
  void wait(StreamName stream, uint64_t event);
  // Records that later work on `later` waits for all current work on `earlier`.
  void order(StreamName earlier, StreamName later);
  // Records that the host waits for an event, a stream, or all streams of a device.
  void join(uint64_t event);
  void join(StreamName stream);
  void join_device(int device);

 private:
  using Clock = std::vector<uint64_t>;  // indexed by stream; 0 beyond its end

  struct PastUse {
    Extent extent;
    UseKind kind;
    size_t stream;
    uint64_t time;
    std::shared_ptr<const WatchedLaunch> launch;
  };
  struct Block {
    uintptr_t end = 0;
    size_t owner = 0;
    bool live = true;
    std::vector<PastUse> history;
    std::vector<size_t> guarded;
  };
  using Blocks = std::map<uintptr_t, Block>;

  static uint64_t at(const Clock& clock, size_t stream);
  static void merge(Clock& clock, const Clock& other);
  static bool is_before(const PastUse& use, size_t stream, const Clock& clock);

  size_t index_of(StreamName stream);
  Blocks::iterator find(uintptr_t address);
  static void add(Block& block, PastUse use, const Clock& clock);
  void retire_overlapped(uintptr_t begin, uintptr_t end);

  std::unordered_map<uint64_t, size_t> indices_;
  std::vector<int> devices_;   // indexed by stream
  std::vector<Clock> clocks_;  // indexed by stream
  Clock host_;
  std::unordered_map<uint64_t, Clock> events_;
  Blocks blocks_;
};

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_RACE_DETECTOR_H_
