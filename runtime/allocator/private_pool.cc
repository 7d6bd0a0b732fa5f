// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/private_pool.h"

#include <algorithm>
#include <iterator>
#include <ranges>

#include "runtime/allocator/error.h"

namespace openreg::allocator {
namespace {

[[noreturn]] void refuse(PoolId id, const std::string& what) {
  throw Error(orErrorInvalidValue, "openreg: memory pool " + to_string(id) + " " + what);
}

}  // namespace

void PrivatePools::use(PoolId id, PoolTraits traits) {
  if (id == kCommonPool) {
    refuse(id, "is the memory that all allocations share, not a private pool");
  }
  const std::lock_guard lock(mutex_);
  PrivatePool& pool = pools_[id];
  if (pool.uses == 0 && !pool.pools.empty()) {
    refuse(id, "was released: its existing memory stays valid, but it cannot be used again");
  }
  if (pool.uses++ == 0) {
    pool.traits = traits;
  }
}

void PrivatePools::begin(PoolId id, Filter filter) {
  use(id);
  const std::lock_guard lock(mutex_);
  auto redirects = std::make_shared<Redirects>(*redirects_);
  redirects->push_back({id, std::this_thread::get_id(), std::move(filter)});
  ++pools_.at(id).redirects;
  redirects_ = std::move(redirects);
}

void PrivatePools::end(PoolId id) {
  const std::lock_guard lock(mutex_);
  auto redirects = std::make_shared<Redirects>(*redirects_);
  const auto latest = [&](auto&& accept) {
    return std::ranges::find_if(redirects->rbegin(), redirects->rend(), accept);
  };
  auto found = latest([&](const Redirect& redirect) {
    return redirect.id == id && redirect.thread == std::this_thread::get_id();
  });
  if (found == redirects->rend()) {
    found = latest([&](const Redirect& redirect) { return redirect.id == id; });
  }
  if (found == redirects->rend()) {
    refuse(id, "gets no allocations at present: this end has no matching begin");
  }
  redirects->erase(std::next(found).base());
  --pools_.at(id).redirects;
  redirects_ = std::move(redirects);
}

void PrivatePools::release(PoolId id) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = pools_.find(id);
    if (found == pools_.end() || found->second.uses == 0) {
      refuse(id, found == pools_.end() ? "does not exist, so it cannot be released"
                                       : "has already been released as often as it was used");
    }
    if (found->second.uses == 1 && found->second.redirects > 0) {
      refuse(id, "still gets allocations: end them before you release it");
    }
    --found->second.uses;
  }
  end_unused();
}

bool PrivatePools::exists(PoolId id) const {
  const std::lock_guard lock(mutex_);
  return pools_.contains(id);
}

int64_t PrivatePools::uses(PoolId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = pools_.find(id);
  return found != pools_.end() ? found->second.uses : 0;
}

std::set<PoolId> PrivatePools::in_use() const {
  const std::lock_guard lock(mutex_);
  std::set<PoolId> ids;
  for (const auto& [id, pool] : pools_) {
    if (pool.uses > 0) {
      ids.insert(id);
    }
  }
  return ids;
}

std::set<PoolId> PrivatePools::without_use() const {
  const std::lock_guard lock(mutex_);
  std::set<PoolId> ids;
  for (const auto& [id, pool] : pools_) {
    if (pool.uses == 0) {
      ids.insert(id);
    }
  }
  return ids;
}

bool PrivatePools::redirecting() const {
  const std::lock_guard lock(mutex_);
  return !redirects_->empty();
}

PrivatePools::Visit PrivatePools::visit(orStream_t stream) {
  std::shared_ptr<const Redirects> redirects;
  {
    const std::lock_guard lock(mutex_);
    redirects = redirects_;
  }
  for (const Redirect& redirect : std::views::reverse(*redirects)) {
    if (!redirect.filter(stream)) {
      continue;
    }
    const std::lock_guard lock(mutex_);
    // Check again: the redirection may have ended during the call to the filter.
    if (const auto found = pools_.find(redirect.id);
        found != pools_.end() && found->second.redirects > 0) {
      ++found->second.visits;
      return {this, redirect.id};
    }
  }
  return {};
}

std::vector<PoolId> PrivatePools::last_resorts() const {
  const std::lock_guard lock(mutex_);
  std::vector<PoolId> ids;
  for (const auto& [id, pool] : pools_) {
    if (pool.traits.last_resort) {
      ids.push_back(id);
    }
  }
  return ids;
}

PrivatePools::Visit PrivatePools::visit_by_id(PoolId id) {
  const std::lock_guard lock(mutex_);
  const auto found = pools_.find(id);
  if (found == pools_.end()) {
    return {};
  }
  ++found->second.visits;
  return {this, id};
}

void PrivatePools::leave(PoolId id) {
  const std::lock_guard lock(mutex_);
  --pools_.at(id).visits;
}

Pool* PrivatePools::find(PoolId id, orStream_t stream) const {
  const std::lock_guard lock(mutex_);
  const auto& pools = pools_.at(id).pools;
  const auto found = std::ranges::find(pools, stream, &Pool::stream);
  return found != pools.end() ? *found : nullptr;
}

Pool* PrivatePools::assign(PoolId id, orStream_t stream, const std::function<Pool*()>& make) {
  Pool* pool = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = std::ranges::find(spare_, stream, &Pool::stream);
        found != spare_.end()) {
      pool = *found;
      spare_.erase(found);
    }
  }
  if (pool == nullptr) {
    pool = make();
  }
  const std::lock_guard lock(mutex_);
  {
    const std::lock_guard pool_lock(pool->lock);
    pool->id = id;
    pool->whole = pools_.at(id).traits.whole;
  }
  pools_.at(id).pools.push_back(pool);
  return pool;
}

void PrivatePools::end_unused() {
  const std::lock_guard lock(mutex_);
  std::erase_if(pools_, [this](const auto& entry) {
    const PrivatePool& pool = entry.second;
    if (pool.uses > 0 || pool.redirects > 0 || pool.visits > 0) {
      return false;
    }
    const bool empty = std::ranges::all_of(pool.pools, [](Pool* part) {
      const std::lock_guard part_lock(part->lock);
      return !part->has_segments();
    });
    if (empty) {
      std::ranges::copy(pool.pools, std::back_inserter(spare_));
    }
    return empty;
  });
}

}  // namespace openreg::allocator
