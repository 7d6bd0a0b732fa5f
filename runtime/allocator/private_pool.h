// SPDX-License-Identifier: BSD-3-Clause
//
// PrivatePools - memory that some allocations have for themselves: those inside of a graph's
// capture, or of a program's own pool. Its segments never serve other allocations.
//
// A private pool has an id that its users choose. It lives from the first use() or begin() until it
// has no use left (release()) and no segment: until the allocator has given the last one back.
// Under it stands one Pool for each stream, which the allocator owns; when the private
// pool ends, they serve a later one on the same stream.
//
// PoolTraits say how its memory is given out; the first use() decides.
//
// begin() sends allocations to the pool: those which `filter` accepts, asked with the stream on the
// allocating thread, the latest begin() first. The filter is called without any lock, and must
// not allocate from this allocator.
//
// Threads: every function may be called from every thread. The one mutex is taken by allocations
// only while something is redirected; it is taken before the lock of a Pool.
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
  bool last_resort = false;  // its free memory serves others, too, before they run out of memory
  bool whole = false;        // each block is a segment: nothing is split, or joined with others
};

class PrivatePools {
 public:
  using Filter = std::function<bool(orStream_t)>;

  // Each throws Error for what it cannot do. begin() counts a use, too; end() ends the latest
  // begin() of the calling thread, or if it has none, that of any thread, and leaves the use.
  void use(PoolId id, PoolTraits traits = {});
  void begin(PoolId id, Filter filter);
  void end(PoolId id);
  void release(PoolId id);

  bool exists(PoolId id) const;
  int64_t uses(PoolId id) const;  // 0 for a pool that does not exist
  std::set<PoolId> in_use() const;
  std::set<PoolId> without_use() const;
  bool redirecting() const;

  // Keeps the private pool that an allocation goes to from ending meanwhile.
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
  // The private pool that an allocation on `stream` by this thread belongs to, if any.
  Visit visit(orStream_t stream);

  // The private pools with PoolTraits::last_resort, and a visit to one of them, if it still exists.
  std::vector<PoolId> last_resorts() const;
  Visit visit_by_id(PoolId id);

  // The Pool of a private pool that is being visited, or null; assign() gives it one: a spare one
  // of that stream if there is one, otherwise what `make` makes.
  Pool* find(PoolId id, orStream_t stream) const;
  Pool* assign(PoolId id, orStream_t stream, const std::function<Pool*()>& make);

  // Ends the private pools that have no use and no segment any more.
  void end_unused();

 private:
  struct PrivatePool {
    int64_t uses = 0;
    int64_t redirects = 0;  // begin() without end()
    int64_t visits = 0;     // allocations under way
    PoolTraits traits;
    std::vector<Pool*> pools;
  };
  struct Redirect {
    PoolId id;
    std::thread::id thread;  // that called begin()
    Filter filter;
  };
  using Redirects = std::vector<Redirect>;

  void leave(PoolId id);

  mutable std::mutex mutex_;
  std::map<PoolId, PrivatePool> pools_;
  // Replaced as a whole, so that filters can be called without the mutex.
  std::shared_ptr<const Redirects> redirects_ = std::make_shared<const Redirects>();
  std::vector<Pool*> spare_;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_PRIVATE_POOL_H_
