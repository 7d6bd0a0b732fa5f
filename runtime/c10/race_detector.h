// SPDX-License-Identifier: BSD-3-Clause
//
// Race detector: which two uses of one block of memory are not ordered, told from what a program
// asks of streams and events, whatever order they happened to run in.
//
// Each stream has a clock: how many launches it has had, and of each other stream how many are
// known to be done before its next one. An event keeps the clock of the stream that recorded it; a
// stream that waits for it takes over what that clock knows. What the host has waited for is known
// to all that is launched later, by any thread: how host threads order themselves is not seen, and
// taken to be right. A use at time n of stream s is ordered before a launch of stream t if t's
// clock knows n of s.
//
// Each block has a history: the uses that a later one may race with. A use that everything ordered
// after it is known to be after another one is left out, so histories stay short. Memory that was
// freed keeps its history until the stream that owned it gets it again: the allocation counts as a
// write, and races with uses by streams that neither were waited for nor guarded (record_stream).
//
// It knows nothing of torch or of the device; streams are numbers. Ownership: it owns clocks and
// histories; launches are shared with the races that mention them. Threads: one at a time; the
// caller has a lock.
#ifndef RUNTIME_C10_RACE_DETECTOR_H_
#define RUNTIME_C10_RACE_DETECTOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/c10/call_stack.h"

namespace openreg {

// A stream of a device, by its driver's handle.
struct StreamName {
  uint64_t handle;
  int device;
};

// The bytes [begin, end) of which a tensor has `width` every `period`: columns of a matrix lie
// between those of another one. Dense memory has period 0.
struct Extent {
  uintptr_t begin;
  uintptr_t end;
  size_t width;
  size_t period;

  bool overlaps(const Extent& other) const;
  bool contains(const Extent& other) const;
};

// Something that was launched: shared by all its uses of memory.
struct WatchedLaunch {
  std::string name;  // of the operator
  StreamName stream;
  CallStack stack;
};

enum class UseKind : uint8_t { kRead, kWrite, kAllocation };

struct Use {
  Extent extent;
  UseKind kind;
};

// Two uses that are not ordered.
struct Race {
  struct Side {
    UseKind kind;
    std::shared_ptr<const WatchedLaunch> launch;
  };
  Side earlier;  // in the order of the calls
  Side later;
  uintptr_t block;
  size_t bytes;  // of the block
};

class RaceDetector {
 public:
  // Uses that a block's history keeps; the oldest are forgotten, so that a race may be missed.
  static constexpr size_t kHistory = 64;

  // A launch on its stream, with what it is going to use. If it races with earlier uses, returns
  // the races and, unless `keep`, counts it as never launched. Memory that was not allocated here
  // is not looked at.
  std::vector<Race> launch(const std::shared_ptr<const WatchedLaunch>& launch,
                           const std::vector<Use>& uses, bool keep);

  // Memory was given to the stream of `launch`: the name of the launch is that of the request.
  std::vector<Race> allocate(uintptr_t begin, size_t bytes,
                             const std::shared_ptr<const WatchedLaunch>& launch);
  // Memory goes back; its owner may get it again at once.
  void free(uintptr_t begin);
  // From its free on, what `stream` did until then is waited for before the memory is used again.
  void guard(uintptr_t begin, StreamName stream);

  void record(uint64_t event, StreamName stream);
  void forget(uint64_t event);
  // `stream` waits for the event; the host does.
  void wait(StreamName stream, uint64_t event);
  void join(uint64_t event);
  // `later` waits for all that `earlier` has; the host does; for all streams of a device.
  void order(StreamName earlier, StreamName later);
  void join(StreamName stream);
  void join_device(int device);

 private:
  using Clock = std::vector<uint64_t>;  // by the number of a stream; what is beyond its end is 0

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

  size_t number(StreamName stream);
  Blocks::iterator find(uintptr_t address);
  static void add(Block& block, PastUse use, const Clock& clock);
  void retire_overlapped(uintptr_t begin, uintptr_t end);

  std::unordered_map<uint64_t, size_t> numbers_;
  std::vector<int> devices_;   // of streams
  std::vector<Clock> clocks_;  // of streams
  Clock host_;
  std::unordered_map<uint64_t, Clock> events_;
  Blocks blocks_;
};

}  // namespace openreg

#endif  // RUNTIME_C10_RACE_DETECTOR_H_
