// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/pool_list.h"

namespace openreg::allocator {

PoolList::Lock::Lock(PoolList* list) : lock_(list->lock_), first_(list->first_.load()) {
  for (Pool* pool = first_; pool != nullptr; pool = pool->next.load()) {
    pool->lock.lock();
    last_ = pool;
  }
}

PoolList::Lock::~Lock() {
  for (Pool* pool = first_; pool != nullptr;) {
    // Stop at last_: another pool may have been added after it while this lock was held.
    Pool* next = pool == last_ ? nullptr : pool->next.load();
    pool->lock.unlock();
    pool = next;
  }
}

Pool& PoolList::add(orStream_t stream, int device, const std::function<void(Pool&)>& prepare) {
  Pool& pool = pools_.emplace_back(stream, device, pools_.size());
  const Lock all(this);
  prepare(pool);
  usages_.push_back(&pool.usage());
  (all.last_ == nullptr ? first_ : all.last_->next).store(&pool);
  return pool;
}

}  // namespace openreg::allocator
