// SPDX-License-Identifier: BSD-3-Clause
//
// PrivatePools - memory that is reserved for certain allocations: those made during a graph's
// capture, or those from a pool that the program created. The segments of a private pool never
// serve other allocations.
//
// A private pool has an id, which its users choose. The pool begins with the first use() or
// begin(). It ends when release() has removed its last use and the allocator has returned its last
// segment. A private pool has one Pool per stream, which the allocator owns. When the private pool
// ends, later private pools reuse these Pools for the same streams.
//
// PoolTraits determine how the pool hands out its memory. The first use() sets them.
//
// begin() directs the allocations that `filter` accepts to the pool. The filter is called on the
// allocating thread, with the stream as its argument. If several filters are active, the filter of
// the latest begin() is tried first. Filters are called without any lock held and must not allocate
// from this allocator.
//
// Threads. Any thread may call any function. There is one mutex, which is acquired before a Pool's
// lock. Allocations acquire the mutex only while some allocations are redirected.
#ifndef RUNTIME_ALLOCATOR_PRIVATE_POOL_H_
#define RUNTIME_ALLOCATOR_PRIVATE_POOL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/allocator/pool.h"
#include "runtime/allocator/pool_id.h"

namespace openreg::allocator {

struct PoolTraits {
  bool last_resort = false;  // other pools may use its free memory before they run out of memory
  bool whole = false;        // each block is a whole segment, so nothing is split or joined
};

class PrivatePools {
 public:
  using Filter = std::function<bool(orStream_t)>;

  // Create, use and release private pools. Each function throws Error if the request is invalid.
  // begin() adds a use, which end() does not remove. end() ends the latest begin() of the calling
  // thread. If the calling thread has none, it ends the latest begin() of any thread.
  void use(PoolId id, PoolTraits traits = {});
  void begin(PoolId id, Filter filter);
  void end(PoolId id);
  void release(PoolId id);

  bool exists(PoolId id) const;
  int64_t uses(PoolId id) const;  // 0 for a pool that does not exist
  std::set<PoolId> in_use() const;
  std::set<PoolId> without_use() const;
  bool redirecting() const;

  // A scope for one allocation. While it exists, the private pool that the allocation uses cannot
  // end.
  class Visit {
   public:
    Visit() = default;
    Visit(PrivatePools* pools, PoolId id) : pools_(pools), id_(id) {}
    ~Visit() {
      if (pools_ != nullptr) {
        pools_->leave(id_);
      }
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    explicit operator bool() const { return pools_ != nullptr; }
    PoolId id() const { return id_; }

   private:
    PrivatePools* const pools_ = nullptr;
    const PoolId id_ = kCommonPool;
  };
  // Returns a visit to the private pool for an allocation by this thread on `stream`, if any.
  Visit visit(orStream_t stream);

  // last_resorts() returns the private pools with PoolTraits::last_resort. visit_by_id() returns a
  // visit to one of them if it still exists.
  std::vector<PoolId> last_resorts() const;
  Visit visit_by_id(PoolId id);

  // find() returns the Pool of a private pool that is being visited, or null. assign() adds a Pool
  // to it: a spare Pool for that stream if there is one, otherwise the result of `make`.
  Pool* find(PoolId id, orStream_t stream) const;
  Pool* assign(PoolId id, orStream_t stream, const std::function<Pool*()>& make);

  // Ends the private pools that have no use and no segment.
  void end_unused();

 private:
  struct PrivatePool {
    int64_t uses = 0;
    int64_t redirects = 0;  // number of calls to begin() without end()
    int64_t visits = 0;     // number of allocations in progress
    PoolTraits traits;
    std::vector<Pool*> pools;
  };
  struct Redirect {
    PoolId id;
    std::thread::id thread;  // the caller of begin()
    Filter filter;
  };
  using Redirects = std::vector<Redirect>;

  void leave(PoolId id);

  mutable std::mutex mutex_;
  std::map<PoolId, PrivatePool> pools_;
  // The redirections. The vector is replaced as a whole, so that filters can be called without
  // holding the mutex.
  std::shared_ptr<const Redirects> redirects_ = std::make_shared<const Redirects>();
  std::vector<Pool*> spare_;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_PRIVATE_POOL_H_
