// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/caching_allocator.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <list>
#include <set>
#include <utility>

#include "runtime/allocator/size_class.h"
#include "runtime/device/host_wait.h"

namespace openreg::allocator {
namespace {

// No device has more; keeps sums of sizes far from overflow.
constexpr size_t kLargestRequest = size_t{1} << 46;

// Set in the child of a fork: a lock may be held by a thread that does not exist there.
std::atomic<bool> forked{false};

bool in_forked_child() { return forked.load(std::memory_order_relaxed); }

void watch_for_forks() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, +[] { forked.store(true, std::memory_order_relaxed); });
  (void)registered;
}

[[noreturn]] void throw_forked() {
  throw Error(
      orErrorForked,
      "openreg: device memory was asked for in the child of a fork, where the device can not be "
      "used: start processes with the method \"spawn\" or \"forkserver\"");
}

// Thrown when memory is kept because work that may use it can not be waited for: it stays as it
// was.
class KeptError : public Error {
 public:
  explicit KeptError(const Error& reason) : Error(reason.code(), reason.what()) {}
};

Event segment_event(Action action, const void* base, size_t size, const Pool& pool) {
  return {.action = action,
          .address = reinterpret_cast<uintptr_t>(base),
          .size = size,
          .stream = pool.stream(),
          .pool = pool.id};
}

}  // namespace

// The locks of all pools. Only one thread at a time takes several, and without holding one before.
class CachingAllocator::AllPools {
 public:
  explicit AllPools(CachingAllocator* allocator)
      : lock_(allocator->all_pools_), first_(allocator->first_pool_.load()) {
    for (Pool* pool = first_; pool != nullptr; pool = pool->next.load()) {
      pool->lock.lock();
      last_ = pool;
    }
  }
  ~AllPools() {
    for (Pool* pool = first_; pool != nullptr;) {
      // Behind the last one may be a pool that was added under this lock.
      Pool* next = pool == last_ ? nullptr : pool->next.load();
      pool->lock.unlock();
      pool = next;
    }
  }
  AllPools(const AllPools&) = delete;
  AllPools& operator=(const AllPools&) = delete;

  Pool* last() const { return last_; }

 private:
  const std::lock_guard<SpinLock> lock_;
  Pool* const first_;
  Pool* last_ = nullptr;
};

CachingAllocator::CachingAllocator(int device, Source* source, Timeline* timeline)
    : device_(device), source_(source), timeline_(timeline) {
  watch_for_forks();
}

CachingAllocator::~CachingAllocator() {
  if (in_forked_child()) {
    return;
  }
  for (Pool& pool : pool_storage_) {
    for (const PoolType type : {kSmallPool, kLargePool}) {
      for (const Segment& segment : pool.segments(type)) {
        source_->free(segment.base, segment.size);
      }
    }
  }
}

Pool& CachingAllocator::add_pool(orStream_t stream) {
  check_may_wait("device memory was asked for");
  const HostWait wait;  // the holder of growth_ may wait
  const std::lock_guard growth(growth_);
  if (Pool* pool = pools_.find(stream); pool != nullptr) {
    return *pool;
  }
  Pool& pool = make_pool(stream);
  pools_.insert(&pool);
  return pool;
}

// Needs growth_.
Pool& CachingAllocator::make_pool(orStream_t stream) {
  Pool& pool = pool_storage_.emplace_back(stream, device_, pool_storage_.size());
  {
    const AllPools all(this);
    pool.set_split_limit(settings()->split);
    usages_.push_back(&pool.usage());
    (all.last() == nullptr ? first_pool_ : all.last()->next).store(&pool);
  }
  return pool;
}

// The private pool is being visited.
Pool& CachingAllocator::private_pool_of(PoolId id, orStream_t stream) {
  if (Pool* pool = private_.find(id, stream); pool != nullptr) {
    return *pool;
  }
  check_may_wait("device memory was asked for");
  const HostWait wait;  // the holder of growth_ may wait
  const std::lock_guard growth(growth_);
  Pool* pool = private_.find(id, stream);
  if (pool == nullptr) {
    pool = private_.lend(id, stream, [&] { return &make_pool(stream); });
  }
  return *pool;
}

void CachingAllocator::leave(Pool& pool, PoolLock lock) {
  if (pool.crossed(kSmallPool) || pool.crossed(kLargePool)) {
    settle(pool, std::move(lock));
  }
}

void CachingAllocator::settle(Pool& pool, PoolLock lock) {
  const PoolQuantities raised_to = current_of(pool.usage());
  if (pool.index == 0 && pool.next.load(std::memory_order_relaxed) == nullptr) {
    peaks_.settle(usages_, pool.index, raised_to);  // the only pool: its lock is all locks
    return;
  }
  lock.unlock();
  const AllPools all(this);
  peaks_.settle(usages_, pool.index, raised_to);
}

Block* CachingAllocator::allocate(size_t bytes, orStream_t stream) {
  if (in_forked_child()) [[unlikely]] {
    throw_forked();
  }
  if (modes_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
    return allocate_in_mode(bytes, stream);
  }
  return allocate_from(pool_of(stream), {.requested = bytes, .bytes = bytes});
}

Block* CachingAllocator::allocate_in_mode(size_t bytes, orStream_t stream) {
  Size size{.requested = bytes, .bytes = bytes};
  const uint32_t modes = modes_.load(std::memory_order_relaxed);
  if ((modes & kRound) != 0 && bytes <= kLargestRequest) {
    size.bytes = settings()->rounded(bytes);
  }
  const PrivatePools::Visit visit =
      (modes & kRedirect) != 0 ? private_.visit(stream) : PrivatePools::Visit();
  Block* block = allocate_from(visit ? private_pool_of(visit.id(), stream) : pool_of(stream), size);
  if (Observer* observer = this->observer(); observer != nullptr) {
    observer->observe(event_of(Action::kAlloc, *block));
  }
  return block;
}

inline Block* CachingAllocator::allocate_from(Pool& pool, Size size) {
  Block* block = size.bytes <= kLargestRequest ? allocate_cached(pool, size) : nullptr;
  return block != nullptr ? block : allocate_slow(pool, size);
}

inline Block* CachingAllocator::allocate_cached(Pool& pool, Size size) {
  PoolLock lock(pool.lock);
  const bool had_pending = pool.has_pending();
  if (had_pending) [[unlikely]] {
    mark_deferred(pool, &lock);
    pool.collect(timeline_, observer());
  }
  Block* block = pool.allocate(size.bytes, size.requested);
  if (block == nullptr || had_pending) [[unlikely]] {
    leave(pool, std::move(lock));
  } else {
    leave(pool, block->type, std::move(lock));
  }
  return block;
}

// Before growth_ is taken, for its holder may be waiting for the very kernel that asks.
void CachingAllocator::check_may_wait(const char* what) const {
  if (!timeline_->may_wait()) {
    throw Error(orErrorNotPermitted, std::string("openreg: ") + what +
                                         " inside of a kernel or host callback, where nothing may "
                                         "wait: do it on the host, before or after the launch");
  }
}

Block* CachingAllocator::allocate_slow(Pool& pool, Size size) {
  check_may_wait("device memory was asked for");
  if (size.requested > PTRDIFF_MAX) {
    throw Error(orErrorInvalidValue,
                "openreg: " + std::to_string(static_cast<ptrdiff_t>(size.requested)) +
                    " bytes of device memory were asked for: a size can not be negative");
  }
  const HostWait wait;  // the holder of growth_ may wait
  const std::lock_guard growth(growth_);
  release_ended_pools();
  std::string reason;
  if (size.bytes > kLargestRequest) {
    throw_out_of_memory(pool, size.requested, reason);
  }
  // Another thread may have grown this pool, or given memory back, while we waited.
  const auto attempt = [&] {
    Block* block = allocate_cached(pool, size);
    return block != nullptr ? block : grow(pool, size, &reason);
  };
  if (Block* block = attempt(); block != nullptr) {
    return block;
  }
  alloc_retries_.fetch_add(1, std::memory_order_relaxed);
  std::string kept;
  // Whether another attempt is worth it.
  const auto make_room = [&](const auto& function) {
    try {
      return function();
    } catch (const KeptError& error) {
      kept = error.what();
      return true;
    }
  };
  if (make_room([this] { return release_free_segments(); })) {
    if (Block* block = attempt(); block != nullptr) {
      return block;
    }
  }
  make_room([this] { return wait_for_pending(); });
  make_room([this] { return release_free_segments(); });
  if (Block* block = attempt(); block != nullptr) {
    return block;
  }
  if (!kept.empty()) {
    reason += (reason.empty() ? "" : "; ") + kept;
  }
  throw_out_of_memory(pool, size.requested, reason);
}

Block* CachingAllocator::grow(Pool& pool, Size wanted, std::string* reason) {
  const size_t bytes = wanted.bytes;
  const bool large = bytes > kLargestSmall;
  const size_t needed = round_up(bytes <= kLargestClass ? slab_bytes(size_class(bytes)) : bytes,
                                 kTightSegmentGranule);
  size_t size = !large                ? kSmallSegment
                : bytes < kOwnSegment ? std::max(settings()->large_segment, needed)
                                      : round_up(bytes, kSegmentGranule);
  collect_garbage(size);
  void* base = source_->allocate(size, reason);
  if (base == nullptr && needed < size) {
    size = needed;
    base = source_->allocate(size, reason);
  }
  if (base == nullptr) {
    return nullptr;
  }
  device_allocs_.fetch_add(1, std::memory_order_relaxed);
  if (Observer* observer = this->observer(); observer != nullptr) {
    observer->observe(segment_event(Action::kSegmentAlloc, base, size, pool));
  }
  const PoolType type = large ? kLargePool : kSmallPool;
  count_segment(pool, type, static_cast<int64_t>(size));
  PoolLock lock(pool.lock);
  pool.add_segment(type, base, size);
  Block* block = pool.allocate(bytes, wanted.requested);
  leave(pool, std::move(lock));
  return block;
}

void CachingAllocator::count_segment(const Pool& pool, PoolType type, int64_t bytes) {
  if (pool.id == kCommonPool) {
    return;
  }
  const std::lock_guard lock(private_reserved_lock_);
  auto& stats = private_reserved_[pool.id];
  for (const PoolType counted : {type, kAggregate}) {
    Stat& stat = stats[counted];
    stat.current += bytes;
    stat.peak = std::max(stat.peak, stat.current);
    (bytes > 0 ? stat.allocated : stat.freed) += bytes > 0 ? bytes : -bytes;
  }
}

bool CachingAllocator::release_free_segments(PoolId id) {
  bool released = false;
  std::exception_ptr error;
  // A pool without a use never gets one again, so this does not get old.
  const std::set<PoolId> in_use = private_.in_use();
  for (Pool* pool = first_pool_.load(); pool != nullptr; pool = pool->next.load()) {
    // The id stays while growth_ is held, or there is no segment.
    if ((id != kCommonPool && pool->id != id) || in_use.contains(pool->id)) {
      continue;
    }
    try {
      released = release(*pool, [](const Segment&) { return true; }) || released;
    } catch (const KeptError&) {
      error = error != nullptr ? error : std::current_exception();
    } catch (...) {
      error = std::current_exception();  // the device has been waited for
    }
  }
  end_unused_pools();
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
  return released;
}

// What is left of private pools without a use, as far as that needs no wait: a program that drops a
// pool must not wait, and must not have to empty the cache.
void CachingAllocator::release_ended_pools() {
  const std::set<PoolId> ended = private_.without_use();
  if (ended.empty()) {
    return;
  }
  for (Pool* pool = first_pool_.load(); pool != nullptr; pool = pool->next.load()) {
    try {
      if (ended.contains(pool->id) && is_idle(pool->stream())) {
        release(*pool, [](const Segment&) { return true; });
      }
    } catch (const KeptError&) {
      continue;  // they stay until a later call
    }
  }
  end_unused_pools();
}

bool CachingAllocator::is_idle(orStream_t stream) {
  const Mark mark = timeline_->mark(stream);
  if (mark == kNoMark) {
    return true;
  }
  const bool idle = timeline_->passed(mark);
  timeline_->drop(mark);
  return idle;
}

void CachingAllocator::end_unused_pools() {
  private_.end_unused();
  const std::lock_guard lock(private_reserved_lock_);
  std::erase_if(private_reserved_, [this](const auto& entry) {
    return entry.second[kAggregate].current == 0 && !private_.exists(entry.first);
  });
}

// Whether there were any. A kernel's error comes after they have been given back; KeptError says
// that they were not.
bool CachingAllocator::release(Pool& pool, const std::function<bool(const Segment&)>& accept) {
  std::list<Segment> segments;
  {
    PoolLock lock(pool.lock);
    mark_deferred(pool, &lock);
    pool.collect(timeline_, observer());
    pool.detach_free_segments(&segments, accept);
    leave(pool, std::move(lock));
  }
  if (segments.empty()) {
    return false;
  }
  // Blocks are free for their stream before its work is done, but not for others.
  std::exception_ptr error;
  OwnedMark mark;
  try {
    mark = OwnedMark(timeline_, timeline_->mark(pool.stream()));
  } catch (...) {
    error = std::current_exception();  // the device has been waited for
  }
  try {
    mark.wait();
  } catch (const Error& reason) {
    PoolLock lock(pool.lock);
    for (const Segment& segment : segments) {
      pool.add_segment(segment.type, segment.base, segment.size);
    }
    leave(pool, std::move(lock));
    throw KeptError(reason);
  }
  for (const Segment& segment : segments) {
    if (Observer* observer = this->observer(); observer != nullptr) {
      observer->observe(segment_event(Action::kSegmentFree, segment.base, segment.size, pool));
    }
    source_->free(segment.base, segment.size);
    device_frees_.fetch_add(1, std::memory_order_relaxed);
    count_segment(pool, segment.type, -static_cast<int64_t>(segment.size));
  }
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
  return true;
}

// Before a segment of `wanted` bytes is taken.
void CachingAllocator::collect_garbage(size_t wanted) {
  const double threshold = settings()->collect_above;
  if (threshold <= 0) {
    return;
  }
  struct Candidate {
    uint64_t idle;
    Pool* pool;
    void* base;
    size_t size;
  };
  std::vector<Candidate> candidates;
  size_t reserved = 0;
  const std::set<PoolId> in_use = private_.in_use();
  for (Pool* pool = first_pool_.load(); pool != nullptr; pool = pool->next.load()) {
    const std::lock_guard lock(pool->lock);
    pool->grow_older();
    for (const PoolType type : {kSmallPool, kLargePool}) {
      for (const Segment& segment : pool->segments(type)) {
        reserved += segment.size;
        if (segment.uses == 0 && !in_use.contains(pool->id)) {
          candidates.push_back({segment.idle, pool, segment.base, segment.size});
        }
      }
    }
  }
  const Source::Room room = source_->room();
  const auto allowed =
      static_cast<size_t>(threshold * static_cast<double>(std::min(room.limit, room.total)));
  std::ranges::sort(candidates, std::ranges::greater(), &Candidate::idle);
  for (const Candidate& candidate : candidates) {
    if (reserved + wanted <= allowed) {
      break;
    }
    // Another thread may have taken it into use since.
    try {
      if (release(*candidate.pool,
                  [&](const Segment& segment) { return segment.base == candidate.base; })) {
        reserved -= candidate.size;
      }
    } catch (const KeptError&) {
      continue;  // another segment may do
    }
  }
  end_unused_pools();
}

// Whether there was anything to wait for. Throws after it has waited for all that can be.
bool CachingAllocator::wait_for_pending() {
  bool waited = false;
  std::exception_ptr error;
  for (Pool* pool = first_pool_.load(); pool != nullptr; pool = pool->next.load()) {
    PoolLock lock(pool->lock);
    mark_deferred(*pool, &lock);
    const std::vector<orStream_t> streams = pool->awaited_streams();
    lock.unlock();
    for (orStream_t stream : streams) {
      const OwnedMark mark(timeline_, timeline_->mark(stream));
      try {
        mark.wait();
      } catch (const Error& reason) {
        error = std::make_exception_ptr(KeptError(reason));
      }
      waited = true;
    }
  }
  if (waited) {
    stream_waits_.fetch_add(1, std::memory_order_relaxed);
  }
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
  return waited;
}

void CachingAllocator::throw_out_of_memory(const Pool& pool, size_t bytes,
                                           const std::string& reason) {
  ooms_.fetch_add(1, std::memory_order_relaxed);
  const Source::Room room = source_->room();
  OutOfMemoryError::Figures figures{.device = device_,
                                    .asked = bytes,
                                    .device_free = room.free,
                                    .device_total = room.total,
                                    .reason = reason};
  if (Observer* observer = this->observer(); observer != nullptr) {
    observer->observe({.action = Action::kOutOfMemory,
                       .address = room.free,
                       .size = bytes,
                       .stream = pool.stream(),
                       .pool = pool.id});
  }
  {
    const AllPools all(this);
    for (Pool* pool = first_pool_.load(); pool != nullptr; pool = pool->next.load()) {
      size_t free = 0;
      for (const Quantities& current : current_of(pool->usage())) {
        figures.allocated += static_cast<size_t>(current[kAllocatedBytes]);
        figures.reserved += static_cast<size_t>(current[kReservedBytes]);
        free += static_cast<size_t>(current[kReservedBytes] - current[kActiveBytes]);
      }
      figures.cached += free;
      figures.private_free += pool->id != kCommonPool ? free : 0;
      figures.largest_free = std::max(figures.largest_free, pool->largest_free());
    }
  }
  if (room.limit < room.total && bytes > room.limit - std::min(room.limit, figures.reserved)) {
    figures.limit = room.limit;
  }
  throw OutOfMemoryError(figures);
}

void CachingAllocator::free(Block* block) {
  if (in_forked_child()) [[unlikely]] {
    return;
  }
  Pool& pool = *block->pool;
  const PoolType type = block->type;
  PoolLock lock(pool.lock);
  if (block->state != BlockState::kAllocated) [[unlikely]] {
    throw Error(orErrorInvalidValue,
                "openreg: a block of device memory was freed twice, or was never allocated");
  }
  if (Observer* observer = this->observer(); observer != nullptr) [[unlikely]] {
    observer->observe(event_of(Action::kFreeRequested, *block));
    if (block->users.empty()) {
      observer->observe(event_of(Action::kFreeCompleted, *block));
    }
  }
  if (!block->users.empty()) [[unlikely]] {
    free_pending(pool, block, std::move(lock));
    return;
  }
  pool.free(block);
  if (pool.crossed_by_free(type)) [[unlikely]] {
    settle(pool, std::move(lock));
  }
}

void CachingAllocator::free_pending(Pool& pool, Block* block, PoolLock lock) {
  pool.suspend(block);
  const bool deferred = !timeline_->may_wait();
  if (deferred) {
    pool.defer(block);
  }
  leave(pool, block->type, std::move(lock));
  if (deferred) {
    return;
  }
  if (const std::exception_ptr error = await_users(pool, block); error != nullptr) {
    std::rethrow_exception(error);
  }
}

// Has a pending block await its users as they are now. The pool is not locked, for a mark may have
// to wait for room in a stream's queue. Nobody else touches a pending block until it awaits a mark.
// Gives an error that a mark brought up.
std::exception_ptr CachingAllocator::await_users(Pool& pool, Block* block) {
  std::vector<std::pair<orStream_t, Mark>> marks;
  std::exception_ptr error;
  for (orStream_t stream : block->users) {
    try {
      if (const Mark mark = timeline_->mark(stream); mark != kNoMark) {
        marks.emplace_back(stream, mark);
      }
    } catch (...) {
      error = std::current_exception();
    }
  }
  PoolLock lock(pool.lock);
  block->users.resize(marks.size());
  if (marks.empty()) {
    pool.resume(block, observer());
  }
  for (const auto& [stream, mark] : marks) {
    pool.await(stream, mark, block);
  }
  leave(pool, std::move(lock));
  return error;
}

// The same for blocks that were freed where nothing may wait. Unlocks the pool meanwhile.
void CachingAllocator::mark_deferred(Pool& pool, PoolLock* lock) {
  if (!pool.has_deferred() || !timeline_->may_wait()) {
    return;
  }
  const std::vector<Block*> blocks = pool.take_deferred();
  lock->unlock();
  std::exception_ptr error;
  for (Block* block : blocks) {
    if (const std::exception_ptr brought_up = await_users(pool, block); brought_up != nullptr) {
      error = brought_up;
    }
  }
  lock->lock();
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
}

void CachingAllocator::record_stream(Block* block, orStream_t stream) {
  if (in_forked_child() || stream == block->stream) {
    return;
  }
  const std::lock_guard lock(block->pool->lock);
  if (std::ranges::find(block->users, stream) == block->users.end()) {
    block->users.push_back(stream);
  }
}

std::vector<orStream_t> CachingAllocator::streams_of(const Block* block) const {
  std::vector<orStream_t> streams = {block->stream};
  if (!in_forked_child()) {
    const std::lock_guard lock(block->pool->lock);
    streams.insert(streams.end(), block->users.begin(), block->users.end());
  }
  return streams;
}

void CachingAllocator::set_settings(const Settings& settings) {
  if (in_forked_child()) {
    return;
  }
  {
    const std::lock_guard lock(settings_lock_);
    settings_ = std::make_shared<const Settings>(settings);
  }
  const AllPools all(this);
  for (Pool* pool = first_pool_.load(); pool != nullptr; pool = pool->next.load()) {
    pool->set_split_limit(settings.split);
  }
  if (settings.rounds()) {
    modes_.fetch_or(kRound);
  } else {
    modes_.fetch_and(~uint32_t{kRound});
  }
}

std::shared_ptr<const Settings> CachingAllocator::settings() const {
  const std::lock_guard lock(settings_lock_);
  return settings_;
}

void CachingAllocator::use_pool(PoolId id) {
  if (in_forked_child()) {
    throw_forked();
  }
  private_.use(id);
}

void CachingAllocator::begin_allocate_to_pool(PoolId id, PrivatePools::Filter filter) {
  if (in_forked_child()) {
    throw_forked();
  }
  const std::lock_guard redirecting(redirecting_);
  private_.begin(id, std::move(filter));
  modes_.fetch_or(kRedirect);
}

void CachingAllocator::end_allocate_to_pool(PoolId id) {
  if (in_forked_child()) {
    return;
  }
  const std::lock_guard redirecting(redirecting_);
  private_.end(id);
  if (!private_.redirecting()) {
    modes_.fetch_and(~uint32_t{kRedirect});
  }
}

void CachingAllocator::release_pool(PoolId id) {
  if (in_forked_child()) {
    return;
  }
  private_.release(id);
  if (timeline_->may_wait()) {
    const HostWait wait;  // the holder of growth_ may wait
    const std::lock_guard growth(growth_);
    release_ended_pools();
  }
}

bool CachingAllocator::pool_exists(PoolId id) const {
  return !in_forked_child() && private_.exists(id);
}

int64_t CachingAllocator::pool_uses(PoolId id) const {
  return in_forked_child() ? 0 : private_.uses(id);
}

void CachingAllocator::set_observer(Observer* observer) {
  if (observer == nullptr) {
    modes_.fetch_and(~uint32_t{kObserve});
  }
  observer_.store(observer, std::memory_order_release);
  if (observer != nullptr) {
    modes_.fetch_or(kObserve);
  }
}

std::vector<SegmentDescription> CachingAllocator::segments() {
  std::vector<SegmentDescription> segments;
  if (in_forked_child()) {
    return segments;
  }
  const AllPools all(this);
  for (const Pool* pool = first_pool_.load(); pool != nullptr; pool = pool->next.load()) {
    pool->describe_segments(&segments);
  }
  return segments;
}

void CachingAllocator::empty_cache(PoolId id) {
  if (in_forked_child()) {
    return;
  }
  check_may_wait("the cache of device memory was emptied");
  const HostWait wait;  // the holder of growth_ may wait
  const std::lock_guard growth(growth_);
  release_free_segments(id);
  source_->trim();
}

Stats CachingAllocator::stats() {
  if (in_forked_child()) {
    return {};
  }
  const AllPools all(this);
  peaks_.look(usages_);
  Stats stats = totals();
  for (size_t quantity = 0; quantity < kQuantities; ++quantity) {
    for (const PoolType type : {kAggregate, kSmallPool, kLargePool}) {
      Stat& stat = stats.stat[quantity][type];
      stat.peak = peaks_.peak(static_cast<Quantity>(quantity), type);
      stat.allocated -= base_.stat[quantity][type].allocated;
      stat.freed -= base_.stat[quantity][type].freed;
    }
  }
  stats.num_alloc_retries -= base_.num_alloc_retries;
  stats.num_ooms -= base_.num_ooms;
  stats.num_sync_all_streams -= base_.num_sync_all_streams;
  stats.num_device_alloc -= base_.num_device_alloc;
  stats.num_device_free -= base_.num_device_free;
  const std::lock_guard lock(private_reserved_lock_);
  stats.private_reserved = private_reserved_;
  return stats;
}

Stats CachingAllocator::totals() const {
  Stats totals;
  for (const PoolUsage* usage : usages_) {
    for (const PoolType type : {kSmallPool, kLargePool}) {
      const auto counters = (*usage)[usage_index(type)].counters();
      for (size_t quantity = 0; quantity < kQuantities; ++quantity) {
        for (const PoolType counted : {type, kAggregate}) {
          Stat& stat = totals.stat[quantity][counted];
          stat.current += counters[quantity].current();
          stat.allocated += counters[quantity].up;
          stat.freed += counters[quantity].down;
        }
      }
    }
  }
  totals.num_alloc_retries = alloc_retries_.load(std::memory_order_relaxed);
  totals.num_ooms = ooms_.load(std::memory_order_relaxed);
  totals.num_sync_all_streams = stream_waits_.load(std::memory_order_relaxed);
  totals.num_device_alloc = device_allocs_.load(std::memory_order_relaxed);
  totals.num_device_free = device_frees_.load(std::memory_order_relaxed);
  return totals;
}

void CachingAllocator::change_private_reserved(const std::function<void(Stat&)>& change) {
  const std::lock_guard lock(private_reserved_lock_);
  for (auto& [id, stats] : private_reserved_) {
    std::ranges::for_each(stats, change);
  }
}

void CachingAllocator::reset_accumulated() {
  if (in_forked_child()) {
    return;
  }
  const AllPools all(this);
  base_ = totals();
  change_private_reserved([](Stat& stat) {
    stat.allocated = 0;
    stat.freed = 0;
  });
}

void CachingAllocator::reset_peak() {
  if (in_forked_child()) {
    return;
  }
  const AllPools all(this);
  peaks_.reset(usages_);
  change_private_reserved([](Stat& stat) { stat.peak = stat.current; });
}

bool CachingAllocator::describe(const void* pointer, Description* description) const {
  for (const Pool* pool = first_pool_.load(); pool != nullptr; pool = pool->next.load()) {
    if (const Block* block = pool->find(pointer); block != nullptr) {
      const bool in_use = glance(block->state) == BlockState::kAllocated;
      *description = {.base = glance(block->pointer),
                      .size = in_use ? glance(block->requested) : glance(block->size),
                      .in_use = in_use};
      return true;
    }
  }
  return false;
}

}  // namespace openreg::allocator
