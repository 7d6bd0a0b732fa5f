// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/leader_exchange.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/exception.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "runtime/device/host_wait.h"
#include "runtime/device/openreg.h"

namespace openreg {
namespace {

// Size of the text that leaders exchange before a collective. The text is truncated or padded with
// zeros to this size.
constexpr int64_t kAgreementBytes = 256;
constexpr char kFailed = '!';

}  // namespace

std::vector<at::Tensor> copies(const at::Tensor& tensor, int64_t machines) {
  return std::vector<at::Tensor>(static_cast<size_t>(machines), tensor);
}

LeaderExchange::LeaderExchange(const Topology& topology, std::unique_ptr<Transport> local,
                               c10::intrusive_ptr<c10d::Backend> gloo,
                               std::chrono::milliseconds timeout)
    : network(std::move(gloo), timeout),
      local(std::move(local)),
      topology_(topology),
      process_(getpid()) {}

void LeaderExchange::fail(const std::string& text) {
  local->abort(text);
  network.abort();
}

void LeaderExchange::agree(const std::string& what) {
  const std::optional<std::string> ended = local->ended();
  const std::string mine = ended.has_value() ? kFailed + *ended : what;
  const auto padded = [](const std::string& text) {
    at::Tensor bytes = at::zeros({kAgreementBytes}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), text.data(),
                std::min(text.size(), static_cast<size_t>(kAgreementBytes) - 1));
    return bytes;
  };
  const auto machines = static_cast<int64_t>(topology_.machines.size());
  const std::vector<at::Tensor> texts = at::zeros({machines, kAgreementBytes}, at::kByte).unbind();
  exchange(copies(padded(mine), machines), texts, kAgreementTag);
  TORCH_CHECK_WITH(DistBackendError, !ended.has_value(), *ended);
  const auto text_from = [&](size_t machine) {
    return std::string(static_cast<const char*>(texts[machine].const_data_ptr()));
  };
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string theirs = text_from(i);
    const int leader = topology_.leader(static_cast<int64_t>(i));
    TORCH_CHECK_WITH(DistBackendError, theirs[0] != kFailed, "on the machine of rank ", leader,
                     ": ", theirs.substr(1));
    TORCH_CHECK_WITH(DistBackendError, theirs == text_from(topology_.machine),
                     "ranks called different operations: rank ", topology_.rank(), " called ", mine,
                     ", but rank ", leader, " called ", theirs);
  }
}

void LeaderExchange::exchange(const std::vector<at::Tensor>& to,
                              const std::vector<at::Tensor>& from, int tag) {
  std::vector<Network::Message> sends, receives;
  for (size_t i = 0; i < topology_.machines.size(); ++i) {
    const int leader = topology_.leader(static_cast<int64_t>(i));
    if (i != topology_.machine) {
      if (i < to.size() && to[i].defined()) {
        sends.push_back({leader, tag, to[i]});
      }
      if (i < from.size() && from[i].defined()) {
        receives.push_back({leader, tag, from[i]});
      }
    } else if (i < to.size() && i < from.size() && to[i].defined() && from[i].defined()) {
      from[i].copy_(to[i]);
    }
  }
  network.transfer_agreed(sends, receives);
}

void LeaderExchange::begin_task() {
  const std::lock_guard lock(mutex_);
  if (!watcher_.joinable()) {
    watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  }
  ++tasks_;
}

void LeaderExchange::end_task() {
  const std::lock_guard lock(mutex_);
  --tasks_;
}

void LeaderExchange::run(Task* task) {
  {
    const std::lock_guard lock(mutex_);
    ++running_;
    begun_.notify_one();
  }
  // Skip autograd's checks, because the tensors may be inference tensors.
  const at::AutoDispatchBelowADInplaceOrView guard;
  try {
    task->function(*this);
  } catch (const c10::Error& error) {
    fail(error.what_without_backtrace());
  } catch (const std::exception& error) {
    fail(error.what());
  }
  {
    // Keep the task for drop_done(), because a host function cannot free device memory.
    const std::lock_guard lock(mutex_);
    --running_;
    done_.emplace_back(task);
  }
  end_task();
}

void LeaderExchange::drop_done() {
  std::vector<std::unique_ptr<Task>> done;
  const std::lock_guard lock(mutex_);
  done.swap(done_);
}

bool LeaderExchange::in_child() const { return getpid() != process_; }

bool LeaderExchange::wait_idle() {
  if (in_child()) {
    return false;
  }
  const HostWait wait;
  const auto idle = [this] {
    const std::lock_guard lock(mutex_);
    return tasks_ == 0;
  };
  for (int round = 0; !idle(); ++round) {
    if (round < 100) {
      std::this_thread::yield();
    } else if (orInit() == orErrorShutdown) {
      return false;
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  drop_done();
  return true;
}

// Watches whether another rank on this machine ends the communicator. If so, aborts the running
// functions, but only after a grace period, so that the next function can still send the reason to
// the other leaders.
void LeaderExchange::watch(const std::stop_token& stop) {
  constexpr std::chrono::milliseconds kInterval{50};
  constexpr int kGraceIntervals = 5;
  int ended = 0;
  std::unique_lock lock(mutex_);
  while (begun_.wait(lock, stop, [this] { return running_ != 0; })) {
    (void)begun_.wait_for(lock, stop, kInterval, [] { return false; });
    lock.unlock();
    ended = local->ended().has_value() ? ended + 1 : 0;
    if (ended == kGraceIntervals) {
      network.abort();
    }
    lock.lock();
  }
}

}  // namespace openreg
