// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/caching_allocator.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "runtime/allocator/size_class.h"
#include "runtime/device/host_wait.h"

namespace openreg::allocator {
namespace {

// The largest request. It exceeds the memory of any device, but is small enough that sums of sizes
// cannot overflow.
constexpr size_t kLargestRequest = size_t{1} << 46;

// Whether this process is a forked child. There, locks may be held by threads that exist only in
// the parent.
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
      "openreg: device memory was requested in a forked child, which cannot use the device: "
      "start processes with the method \"spawn\" or \"forkserver\"");
}

}  // namespace

CachingAllocator::CachingAllocator(int device, Source* source, Timeline* timeline)
    : device_(device),
      source_(source),
      timeline_(timeline),
      reclaim_(&pools_, &private_, &stats_collector_, source, timeline, &observer_) {
  watch_for_forks();
}

CachingAllocator::~CachingAllocator() {
  if (in_forked_child()) {
    return;
  }
  for (Pool& pool : pools_) {
    for (const PoolType type : {kSmallPool, kLargePool}) {
      for (const Segment& segment : pool.segments(type)) {
        source_->free(segment.base, segment.size);
      }
    }
  }
}

Pool& CachingAllocator::add_pool(orStream_t stream) {
  check_may_wait("device memory was requested");
  const HostWait wait;  // the thread that holds growth_ may be waiting
  const std::lock_guard growth(growth_);
  if (Pool* pool = common_.find(stream); pool != nullptr) {
    return *pool;
  }
  Pool& pool = make_pool(stream);
  common_.insert(&pool);
  return pool;
}

// Adds a pool for the stream. The caller must hold growth_.
Pool& CachingAllocator::make_pool(orStream_t stream) {
  return pools_.add(stream, device_,
                    [this](Pool& pool) { pool.set_split_limit(settings()->split); });
}

// Returns the Pool of a private pool that is being visited, and creates this Pool if necessary.
Pool& CachingAllocator::private_pool_of(PoolId id, orStream_t stream) {
  if (Pool* pool = private_.find(id, stream); pool != nullptr) {
    return *pool;
  }
  check_may_wait("device memory was requested");
  const HostWait wait;  // the thread that holds growth_ may be waiting
  const std::lock_guard growth(growth_);
  Pool* pool = private_.find(id, stream);
  if (pool == nullptr) {
    pool = private_.assign(id, stream, [&] { return &make_pool(stream); });
    const std::lock_guard lock(pool->lock);
    pool->set_split_limit(pool->whole ? SplitLimit::whole() : settings()->split);
  }
  return *pool;
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
  Pool& pool = visit ? private_pool_of(visit.id(), stream) : pool_of(stream);
  Block* block = allocate_from(pool, size_in(pool, size));
  if (Observer* observer = this->observer(); observer != nullptr) {
    observer->observe(event_of(Action::kAlloc, *block));
  }
  return block;
}

// Returns the size of a request in this pool. If each block is a whole segment, the size is above
// kLargestSmall, so that the pool has no slabs and no segments for small ranges.
CachingAllocator::Size CachingAllocator::size_in(const Pool& pool, Size size) {
  return {.requested = size.requested,
          .bytes = pool.whole ? std::max(size.bytes, kLargestSmall + 1) : size.bytes};
}

inline Block* CachingAllocator::allocate_from(Pool& pool, Size size) {
  Block* block = size.bytes <= kLargestRequest ? allocate_cached(pool, size) : nullptr;
  return block != nullptr ? block : allocate_slow(pool, size);
}

inline Block* CachingAllocator::allocate_cached(Pool& pool, Size size) {
  PoolLock lock(pool.lock);
  const bool had_pending = pool.has_pending();
  if (had_pending) [[unlikely]] {
    reclaim_.collect_pending(pool, &lock);
  }
  Block* block = pool.allocate(size.bytes, size.requested);
  if (block == nullptr || had_pending) [[unlikely]] {
    stats_collector_.unlock(pool, std::move(lock));
  } else {
    stats_collector_.unlock(pool, block->type, std::move(lock));
  }
  return block;
}

// Throws inside a kernel or host callback. Called before growth_ is acquired, because the thread
// that holds growth_ may be waiting for the very kernel that makes this call.
void CachingAllocator::check_may_wait(const char* what) const {
  if (!timeline_->may_wait()) {
    throw Error(orErrorNotPermitted, std::string("openreg: ") + what +
                                         " inside a kernel or host callback, which must not wait: "
                                         "do this on the host, before or after the launch");
  }
}

Block* CachingAllocator::allocate_slow(Pool& pool, Size size) {
  check_may_wait("device memory was requested");
  if (size.requested > PTRDIFF_MAX) {
    throw Error(orErrorInvalidValue,
                "openreg: " + std::to_string(static_cast<ptrdiff_t>(size.requested)) +
                    " bytes of device memory were requested, but a size cannot be negative");
  }
  const HostWait wait;  // the thread that holds growth_ may be waiting
  const std::lock_guard growth(growth_);
  reclaim_.release_ended_pools();
  std::string reason;
  if (size.bytes > kLargestRequest) {
    throw_out_of_memory(pool, size.requested, reason);
  }
  // Try the cache again: while this thread was waiting, another thread may have grown this pool or
  // returned memory.
  const auto attempt = [&] {
    Block* block = allocate_cached(pool, size);
    return block != nullptr ? block : grow(pool, size, &reason);
  };
  if (Block* block = attempt(); block != nullptr) {
    return block;
  }
  stats_collector_.retried();
  std::string kept;
  // Calls a function that returns memory. Returns whether another attempt is worthwhile.
  const auto make_room = [&](const auto& function) {
    try {
      return function();
    } catch (const KeptError& error) {
      kept = error.what();
      return true;
    }
  };
  if (make_room([this] { return reclaim_.release_free_segments(); })) {
    if (Block* block = attempt(); block != nullptr) {
      return block;
    }
  }
  make_room([this] { return reclaim_.wait_for_pending(); });
  make_room([this] { return reclaim_.release_free_segments(); });
  if (Block* block = attempt(); block != nullptr) {
    return block;
  }
  if (Block* block = allocate_from_last_resort(pool, size); block != nullptr) {
    return block;
  }
  if (!kept.empty()) {
    reason += (reason.empty() ? "" : "; ") + kept;
  }
  throw_out_of_memory(pool, size.requested, reason);
}

// Allocates from the free memory of private pools that are a last resort, on the stream of `pool`.
Block* CachingAllocator::allocate_from_last_resort(const Pool& pool, Size size) {
  for (const PoolId& id : private_.last_resorts()) {
    const PrivatePools::Visit visit = private_.visit_by_id(id);
    Pool* other = visit && id != pool.id ? private_.find(id, pool.stream()) : nullptr;
    if (other == nullptr) {
      continue;
    }
    if (Block* block = allocate_cached(*other, size_in(*other, size)); block != nullptr) {
      return block;
    }
  }
  return nullptr;
}

Block* CachingAllocator::grow(Pool& pool, Size wanted, std::string* reason) {
  const size_t bytes = wanted.bytes;
  const bool large = bytes > kLargestSmall;
  const size_t needed = round_up(bytes <= kLargestClass ? slab_bytes(size_class(bytes)) : bytes,
                                 kTightSegmentGranule);
  size_t size = pool.whole            ? needed
                : !large              ? kSmallSegment
                : bytes < kOwnSegment ? std::max(settings()->large_segment, needed)
                                      : round_up(bytes, kSegmentGranule);
  reclaim_.collect_garbage(size, settings()->collect_above);
  void* base = source_->allocate(size, reason);
  if (base == nullptr && needed < size) {
    size = needed;
    base = source_->allocate(size, reason);
  }
  if (base == nullptr) {
    return nullptr;
  }
  if (Observer* observer = this->observer(); observer != nullptr) {
    observer->observe(segment_event(Action::kSegmentAlloc, base, size, pool));
  }
  const PoolType type = large ? kLargePool : kSmallPool;
  stats_collector_.segment_allocated(pool, type, size);
  PoolLock lock(pool.lock);
  pool.add_segment(type, base, size);
  Block* block = pool.allocate(bytes, wanted.requested);
  stats_collector_.unlock(pool, std::move(lock));
  return block;
}

void CachingAllocator::throw_out_of_memory(const Pool& pool, size_t bytes,
                                           const std::string& reason) {
  stats_collector_.ran_out_of_memory();
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
    const PoolList::Lock all(&pools_);
    for (Pool& each : pools_) {
      size_t free = 0;
      for (const Quantities& current : current_of(each.usage())) {
        figures.allocated += static_cast<size_t>(current[kAllocatedBytes]);
        figures.reserved += static_cast<size_t>(current[kReservedBytes]);
        free += static_cast<size_t>(current[kReservedBytes] - current[kActiveBytes]);
      }
      figures.cached += free;
      figures.private_free += each.id != kCommonPool ? free : 0;
      figures.largest_free = std::max(figures.largest_free, each.largest_free());
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
    reclaim_.free_pending(pool, block, std::move(lock));
    return;
  }
  pool.free(block);
  if (pool.crossed_by_free(type)) [[unlikely]] {
    stats_collector_.settle(pool, std::move(lock));
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
  const PoolList::Lock all(&pools_);
  for (Pool& pool : pools_) {
    if (!pool.whole) {
      pool.set_split_limit(settings.split);
    }
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

void CachingAllocator::use_pool(PoolId id, PoolTraits traits) {
  if (in_forked_child()) {
    throw_forked();
  }
  private_.use(id, traits);
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
    const HostWait wait;  // the thread that holds growth_ may be waiting
    const std::lock_guard growth(growth_);
    reclaim_.release_ended_pools();
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
  const PoolList::Lock all(&pools_);
  for (const Pool& pool : pools_) {
    pool.describe_segments(&segments);
  }
  return segments;
}

void CachingAllocator::empty_cache(PoolId id) {
  if (in_forked_child()) {
    return;
  }
  check_may_wait("the cache of device memory was emptied");
  const HostWait wait;  // the thread that holds growth_ may be waiting
  const std::lock_guard growth(growth_);
  reclaim_.release_free_segments(id);
  source_->trim();
}

Stats CachingAllocator::stats() { return in_forked_child() ? Stats() : stats_collector_.stats(); }

void CachingAllocator::reset_accumulated() {
  if (!in_forked_child()) {
    stats_collector_.reset_accumulated();
  }
}

void CachingAllocator::reset_peak() {
  if (!in_forked_child()) {
    stats_collector_.reset_peak();
  }
}

bool CachingAllocator::describe(const void* pointer, Description* description) const {
  for (const Pool& pool : pools_) {
    if (const Block* block = pool.find(pointer); block != nullptr) {
      const bool in_use = load(block->state) == BlockState::kAllocated;
      *description = {.base = load(block->pointer),
                      .size = in_use ? load(block->requested) : load(block->size),
                      .in_use = in_use};
      return true;
    }
  }
  return false;
}

}  // namespace openreg::allocator
