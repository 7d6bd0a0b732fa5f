// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/memcheck.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <set>
#include <utility>

#include "runtime/allocator/device_scope.h"
#include "runtime/allocator/error.h"
#include "runtime/allocator/pool.h"
#include "runtime/device/host_wait.h"

namespace openreg::allocator {
namespace {

std::atomic<LaunchMemoryFunction> launch_function{nullptr};

// A flag in Block::requested, stored in addition to the requested bytes: the block is in
// quarantine. The flag is stored there because describe() must not take a lock. No request is large
// enough to set this bit.
constexpr size_t kInQuarantine = size_t{1} << 63;

size_t length_of(size_t bytes) { return bytes + 2 * Memcheck::kZone; }

// The bytes in a piece of memory that differ from the expected value: the index of the first one,
// and their number.
struct Mismatch {
  size_t first = 0;
  size_t count = 0;
};
Mismatch find_mismatch(const char* memory, size_t size, uint8_t expected) {
  constexpr size_t kStride = 4096;
  Mismatch mismatch;
  for (size_t start = 0; start < size; start += kStride) {
    const char* const piece = memory + start;
    const size_t length = std::min(kStride, size - start);
    // All bytes equal the value if the first byte equals it and each byte equals the next.
    if (static_cast<uint8_t>(piece[0]) == expected &&
        std::memcmp(piece, piece + 1, length - 1) == 0) {
      continue;
    }
    for (size_t i = 0; i < length; ++i) {
      if (static_cast<uint8_t>(piece[i]) != expected) {
        mismatch.first = mismatch.count == 0 ? start + i : mismatch.first;
        ++mismatch.count;
      }
    }
  }
  return mismatch;
}

}  // namespace

void set_memory_function_launcher(LaunchMemoryFunction launch) {
  launch_function.store(launch, std::memory_order_release);
}

// A block that memcheck allocated, with its history. The fields that kernels read either do not
// change or are accessed only by kernels.
struct Memcheck::Record {
  Block* memory = nullptr;
  size_t bytes = 0;
  Context allocated;
  Context freed;                     // set before the block is poisoned
  std::vector<orStream_t> users;     // guarded by held_mutex_ while the block is in use
  bool marked = false;               // whether `marks` were made
  std::vector<Mark> marks;           // marks of `users`, made after free()
  std::atomic<uint8_t> reported{0};  // faults already reported: bit 1 << Fault

  const char* pointer() const { return static_cast<const char*>(memory->pointer) + kZone; }
};

struct Memcheck::Findings {
  std::mutex mutex;
  std::vector<Finding> findings;
};

// The arguments of a scan. The kernel deletes them.
struct Memcheck::Scan {
  RecordPtr record;
  std::shared_ptr<Findings> findings;
  bool poisoned;  // whether to scan the content too
  bool poison;    // whether to poison the content after the scan

  void examine(const char* memory, size_t size, uint8_t expected, Fault fault, ptrdiff_t offset) {
    const Mismatch mismatch = find_mismatch(memory, size, expected);
    const auto bit = static_cast<uint8_t>(1U << static_cast<int>(fault));
    if (mismatch.count == 0 || (record->reported.fetch_or(bit) & bit) != 0) {
      return;
    }
    const std::lock_guard lock(findings->mutex);
    findings->findings.push_back({.fault = fault,
                                  .pointer = record->pointer(),
                                  .bytes = record->bytes,
                                  .offset = offset + static_cast<ptrdiff_t>(mismatch.first),
                                  .changed = mismatch.count,
                                  .allocated = record->allocated,
                                  .freed = record->freed});
  }
};

Memcheck::Memcheck(int device, size_t quarantine)
    : device_(device),
      quarantine_limit_(quarantine),
      source_(device),
      memory_(device, &source_, &timeline_),
      ledger_(this),
      findings_(std::make_shared<Findings>()) {
  if (launch_function.load(std::memory_order_acquire) == nullptr) {
    throw Error(orErrorNotSupported,
                "openreg: memcheck needs a device that runs host functions on its memory "
                "(set_memory_function_launcher); this device does not");
  }
}

Memcheck::~Memcheck() {
  const DeviceScope scope(device_);
  (void)orDeviceSynchronize();
  for (const RecordPtr& record : awaiting_) {
    for (const Mark mark : record->marks) {
      timeline_.drop(mark);
    }
  }
  for (const auto& [segment, mirror] : mirrors_) {
    source_.free(mirror.memory, mirror.size);
  }
}

// --------------------------------------------------------------------------------- on the device

void Memcheck::fill_zones(char* memory, size_t bytes, uint64_t /*unused*/) {
  std::memset(memory, kZoneByte, kZone);
  std::memset(memory + kZone + bytes, kZoneByte, kZone);
}

void Memcheck::scan(char* memory, size_t bytes, uint64_t scan) {
  // Take ownership of the scan, which launch_scan() released. Each launch runs exactly once.
  const std::unique_ptr<Scan> owned(reinterpret_cast<Scan*>(scan));
  owned->examine(memory, kZone, kZoneByte, Fault::kUnderrun, -static_cast<ptrdiff_t>(kZone));
  owned->examine(memory + kZone + bytes, kZone, kZoneByte, Fault::kOverrun,
                 static_cast<ptrdiff_t>(bytes));
  if (owned->poisoned) {
    owned->examine(memory + kZone, bytes, kPoison, Fault::kUseAfterFree, 0);
  }
  if (owned->poison) {
    std::memset(memory + kZone, kPoison, bytes);
  }
}

void Memcheck::launch(const Record& record, MemoryFunction function, uint64_t argument) {
  const LaunchMemoryFunction launch = launch_function.load(std::memory_order_acquire);
  const orStream_t stream = record.memory->stream;
  char* const memory = static_cast<char*>(record.memory->pointer);
  const size_t bytes = record.bytes;
  orError_t error = launch(stream, function, memory, bytes, argument);
  if (error == orErrorInvalidHandle) {
    // If the stream was destroyed, its queued commands may still run; mark() waits for them.
    (void)mark(stream);
    orStream_t standard = nullptr;
    openreg::allocator::check(orGetDefaultStream(&standard, device_));
    error = launch(standard, function, memory, bytes, argument);
  }
  openreg::allocator::check(error);
}

void Memcheck::launch_scan(const RecordPtr& record, bool poisoned, bool poison) {
  auto owned = std::make_unique<Scan>(
      Scan{.record = record, .findings = findings_, .poisoned = poisoned, .poison = poison});
  try {
    launch(*record, &Memcheck::scan, reinterpret_cast<uint64_t>(owned.get()));
  } catch (const Error& error) {
    if (error.code() != orErrorShutdown) {
      throw;
    }  // the process is exiting, and the kernel may or may not run
  }
  (void)owned.release();  // the kernel owns it now
}

// Makes a mark and ignores any error: it belongs to a kernel on a destroyed stream whose work is
// done. The program's allocator receives the same error and reports it.
Mark Memcheck::mark(orStream_t stream) {
  try {
    return timeline_.mark(stream);
  } catch (const Error&) {
    (void)orGetLastError();
    return kNoMark;
  }
}

orStream_t Memcheck::home_of(const Record& record) const {
  int device = 0;
  if (orStreamGetDevice(record.memory->stream, &device) == orSuccess) {
    return record.memory->stream;
  }
  (void)orGetLastError();
  orStream_t standard = nullptr;
  openreg::allocator::check(orGetDefaultStream(&standard, device_));
  return standard;
}

bool Memcheck::is_captured(const Record& record) const {
  return DeviceTimeline::is_captured(home_of(record));
}

// ------------------------------------------------------------------------------------- the blocks

void* Memcheck::allocate(const Block* block) {
  if (block->pool->id != kCommonPool) {
    return mirror(block);
  }
  {
    const std::unique_lock lock = LockForWait(mutex_);
    collect();
  }
  const size_t length = length_of(block->requested);
  auto record = std::make_shared<Record>();
  try {
    record->memory = memory_.allocate(length, block->stream);
  } catch (const OutOfMemoryError&) {
    empty_quarantine();
    record->memory = memory_.allocate(length, block->stream);
  }
  record->bytes = block->requested;
  record->allocated = ContextScope::current();
  void* const pointer = static_cast<char*>(record->memory->pointer) + kZone;
  try {
    launch(*record, &Memcheck::fill_zones, 0);
  } catch (...) {
    memory_.free(record->memory);
    throw;
  }
  // Make the record visible to other threads only now, because it is complete.
  const std::lock_guard lock(held_mutex_);
  held_[block] = std::move(record);
  return pointer;
}

void Memcheck::record_stream(const Block* block, orStream_t stream) {
  const std::lock_guard lock(held_mutex_);
  const auto found = held_.find(block);
  if (found == held_.end() || stream == block->stream) {
    return;
  }
  std::vector<orStream_t>& users = found->second->users;
  if (std::ranges::find(users, stream) == users.end()) {
    users.push_back(stream);
  }
}

void Memcheck::free(const Block* block) {
  {
    const std::lock_guard lock(held_mutex_);
    const auto found = held_.find(block);
    if (found == held_.end()) {
      return;  // the block belongs to a private pool
    }
    found->second->freed = ContextScope::current();
    freed_.push_back(std::move(found->second));
    held_.erase(found);
  }
  if (orInKernel() != 0) {
    return;  // nothing may be queued inside a kernel
  }
  const std::unique_lock lock = LockForWait(mutex_);
  collect();
}

void Memcheck::collect() {
  {
    const std::lock_guard lock(held_mutex_);
    awaiting_.insert(awaiting_.end(), freed_.begin(), freed_.end());
    freed_.clear();
  }
  std::exception_ptr error;
  std::erase_if(awaiting_, [&](const RecordPtr& record) {
    if (!record->marked) {
      for (const orStream_t user : record->users) {
        if (const Mark mark = this->mark(user); mark != kNoMark) {
          record->marks.push_back(mark);
        }
      }
      record->marked = true;
    }
    std::erase_if(record->marks, [this](Mark mark) {
      const bool passed = timeline_.passed(mark);
      if (passed) {
        timeline_.drop(mark);
      }
      return passed;
    });
    if (!record->marks.empty() || is_captured(*record)) {
      return false;
    }
    try {
      retire(record);
      return true;
    } catch (const Error&) {
      error = std::current_exception();
      return false;
    }
  });
  while (error == nullptr && quarantined_ > quarantine_limit_ && quarantine_.size() > 1 &&
         release_oldest()) {
  }
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
}

void Memcheck::retire(const RecordPtr& record) {
  launch_scan(record, /*poisoned=*/false, /*poison=*/true);
  publish(record->memory->requested, record->memory->requested | kInQuarantine);
  quarantine_.push_back(record);
  quarantined_ += length_of(record->bytes);
}

// Releases the oldest block in the quarantine. Does nothing and returns false while the block's
// stream is being captured.
bool Memcheck::release_oldest() {
  if (is_captured(*quarantine_.front())) {
    return false;
  }
  launch_scan(quarantine_.front(), /*poisoned=*/true, /*poison=*/false);
  const RecordPtr record = std::move(quarantine_.front());
  quarantine_.pop_front();
  quarantined_ -= length_of(record->bytes);
  // The stream may reuse the memory from now on, because its later work runs after the scan.
  publish(record->memory->requested, length_of(record->bytes));
  memory_.free(record->memory);
  return true;
}

void Memcheck::empty_quarantine() {
  std::vector<OwnedMark> marks;
  {
    const std::unique_lock lock = LockForWait(mutex_);
    collect();
    for (const RecordPtr& record : awaiting_) {
      for (const orStream_t user : record->users) {
        marks.emplace_back(&timeline_, this->mark(user));
      }
    }
  }
  for (const OwnedMark& mark : marks) {
    try {
      mark.wait();
    } catch (const Error&) {
      continue;  // its stream is being captured, so the block stays in quarantine
    }
  }
  {
    const std::unique_lock lock = LockForWait(mutex_);
    collect();
    while (!quarantine_.empty() && release_oldest()) {
    }
  }
  memory_.empty_cache();
}

void Memcheck::check(orStream_t stream) {
  const std::unique_lock lock = LockForWait(mutex_);
  collect();
  check_locked(&stream);
}

void Memcheck::check() {
  const std::unique_lock lock = LockForWait(mutex_);
  collect();
  check_locked(nullptr);
}

void Memcheck::check_locked(const orStream_t* only) {
  std::vector<RecordPtr> held;
  {
    const std::lock_guard lock(held_mutex_);
    for (const auto& [block, record] : held_) {
      held.push_back(record);
    }
  }
  const auto look_at = [&](const RecordPtr& record, bool poisoned) {
    const orStream_t stream = record->memory->stream;
    if ((only == nullptr || stream == *only) && !is_captured(*record)) {
      launch_scan(record, poisoned, /*poison=*/false);
    }
  };
  for (const RecordPtr& record : held) {
    look_at(record, /*poisoned=*/false);
  }
  for (const RecordPtr& record : awaiting_) {
    look_at(record, /*poisoned=*/false);
  }
  for (const RecordPtr& record : quarantine_) {
    look_at(record, /*poisoned=*/true);
  }
}

std::vector<Memcheck::Finding> Memcheck::take_findings() {
  const std::lock_guard lock(findings_->mutex);
  return std::exchange(findings_->findings, {});
}

std::vector<Memcheck::Held> Memcheck::held() const {
  const std::lock_guard lock(held_mutex_);
  std::vector<Held> result;
  for (const auto& [block, record] : held_) {
    result.push_back({.pointer = record->pointer(),
                      .bytes = record->bytes,
                      .stream = record->memory->stream,
                      .allocated = record->allocated});
  }
  return result;
}

const void* Memcheck::address_of(const Block* block) {
  if (block->pool->id != kCommonPool) {
    return mirror(block);
  }
  const std::lock_guard lock(held_mutex_);
  const auto found = held_.find(block);
  return found != held_.end() ? found->second->pointer() : nullptr;
}

std::vector<orStream_t> Memcheck::streams() {
  std::set<orStream_t> streams;
  const std::unique_lock lock = LockForWait(mutex_);
  for (const std::deque<RecordPtr>* records : {&awaiting_, &quarantine_}) {
    for (const RecordPtr& record : *records) {
      streams.insert(record->memory->stream);
    }
  }
  const std::lock_guard held_lock(held_mutex_);
  for (const auto& [block, record] : held_) {
    streams.insert(record->memory->stream);
  }
  return {streams.begin(), streams.end()};
}

bool Memcheck::describe(const void* pointer, CachingAllocator::Description* description) const {
  if (!memory_.describe(pointer, description)) {
    return false;
  }
  if (description->in_use) {
    description->in_use = (description->size & kInQuarantine) == 0;
    description->base = static_cast<const char*>(description->base) + kZone;
    description->size = (description->size & ~kInQuarantine) - 2 * kZone;
  }
  return true;
}

// --------------------------------------------------------------------------------- private pools

void* Memcheck::mirror(const Block* block) {
  const Segment* const segment =
      block->slab != nullptr ? block->slab->carrier->segment : block->segment;
  const size_t offset = static_cast<size_t>(static_cast<const char*>(block->pointer) -
                                            static_cast<const char*>(segment->base));
  const auto find = [&]() -> void* {
    const std::lock_guard lock(mirrors_mutex_);
    auto found = mirrors_.find(segment->base);
    if (found == mirrors_.end()) {
      std::string reason;
      void* const memory = source_.allocate(segment->size, &reason);
      if (memory == nullptr) {
        return nullptr;
      }
      found = mirrors_.emplace(segment->base, Mirror{memory, segment->size}).first;
      mirrored_ += segment->size;
    }
    return static_cast<char*>(found->second.memory) + offset;
  };
  void* memory = find();
  if (memory == nullptr) {
    empty_quarantine();
    memory = find();
  }
  if (memory == nullptr) {
    const Source::Room room = source_.room();
    throw OutOfMemoryError({.device = device_,
                            .asked = segment->size,
                            .device_free = room.free,
                            .device_total = room.total,
                            .reason = "memcheck has no memory for a segment of a private pool"});
  }
  return memory;
}

void Memcheck::drop_mirror(void* segment) {
  const std::lock_guard lock(mirrors_mutex_);
  if (const auto found = mirrors_.find(segment); found != mirrors_.end()) {
    mirrored_ -= found->second.size;
    source_.free(found->second.memory, found->second.size);
    mirrors_.erase(found);
  }
}

void* Memcheck::Ledger::allocate(size_t size, std::string* reason) {
  if (room().free < size) {
    *reason = "the device has no room for it";
    return nullptr;
  }
  taken_ += size;
  return reinterpret_cast<void*>(std::exchange(next_, next_ + round_up(size, kSegmentGranule)));
}

void Memcheck::Ledger::free(void* segment, size_t size) {
  memcheck_->drop_mirror(segment);
  taken_ -= size;
}

void Memcheck::Ledger::trim() { memcheck_->empty_quarantine(); }

// Returns the room that the device would have if it were used only by the program's allocator.
Source::Room Memcheck::Ledger::room() {
  Room room = memcheck_->source_.room();
  const auto own =
      static_cast<size_t>(memcheck_->memory_.stats().stat[kReservedBytes][kAggregate].current) +
      memcheck_->mirrored_;
  room.free = std::min(room.total, room.free + own);
  room.free -= std::min<size_t>(room.free, taken_);
  return room;
}

}  // namespace openreg::allocator
