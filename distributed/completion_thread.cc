// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/completion_thread.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace openreg {

struct CompletionThread::State {
  struct Entry {
    c10::intrusive_ptr<WorkOCCL> work;
    std::shared_ptr<const Function> function;
  };

  explicit State(Order order) : order(order) {}

  const Order order;
  const int process = getpid();
  std::mutex mutex;  // guards the next three members
  std::list<Entry> entries;
  bool calling = false;  // whether the function of a removed entry is running
  bool ended = false;
  std::condition_variable changed;

  // Returns whether this process is a forked child. Such a process must not lock the mutex, because
  // the thread that might hold it does not exist in the child.
  bool in_child() const { return getpid() != process; }

  void end() {
    if (in_child()) {
      return;
    }
    // Destroy the functions on the calling thread. This may need the GIL, which the completion
    // thread cannot acquire while the interpreter exits.
    std::list<Entry> last;
    const std::lock_guard lock(mutex);
    last.swap(entries);
    ended = true;
    changed.notify_all();
  }

  // Removes and returns the next entry whose function may be called. Returns an empty list if there
  // is none.
  std::list<Entry> take() {
    auto found = entries.begin();
    if (order == Order::kOfCompletion) {
      found = std::find_if(entries.begin(), entries.end(),
                           [](const Entry& entry) { return entry.work->has_ended(); });
    } else if (found != entries.end() && !found->work->has_ended()) {
      found = entries.end();
    }
    std::list<Entry> taken;
    if (found != entries.end()) {
      taken.splice(taken.begin(), entries, found);
    }
    return taken;
  }

  void run() {
    std::unique_lock lock(mutex);
    while (!ended) {
      std::list<Entry> taken = take();
      if (taken.empty()) {
        if (entries.empty()) {
          changed.wait(lock, [&] { return !entries.empty() || ended; });
        } else {
          changed.wait_for(lock, std::chrono::microseconds(200));
        }
        continue;
      }
      calling = true;
      lock.unlock();
      try {
        (*taken.front().function)(*taken.front().work);
      } catch (const std::exception& error) {
        TORCH_WARN("a function called at the end of a collective raised an exception: ",
                   error.what());
      }
      taken.clear();
      lock.lock();
      calling = false;
      changed.notify_all();
    }
  }
};

namespace {

// The states of all completion threads in this process.
struct Threads {
  std::mutex mutex;
  std::vector<std::weak_ptr<CompletionThread::State>> states;
};

Threads& threads() {
  // Never destroyed, because threads may use it at exit.
  static auto* const all = std::make_unique<Threads>().release();
  return *all;
}

}  // namespace

CompletionThread::CompletionThread(Order order) : state_(std::make_shared<State>(order)) {
  {
    const std::lock_guard lock(threads().mutex);
    std::erase_if(threads().states, [](const auto& state) { return state.expired(); });
    threads().states.push_back(state_);
  }
  std::thread([state = state_] { state->run(); }).detach();
}

CompletionThread::~CompletionThread() { state_->end(); }

CompletionThread& CompletionThread::for_results() {
  static std::mutex mutex;
  static CompletionThread* current = nullptr;
  const std::lock_guard lock(mutex);
  if (current == nullptr || current->state_->in_child()) {
    current = std::make_unique<CompletionThread>(Order::kOfCompletion).release();
  }
  return *current;
}

void CompletionThread::end_all() {
  std::vector<std::weak_ptr<State>> states;
  {
    const std::lock_guard lock(threads().mutex);
    states = threads().states;
  }
  for (const std::weak_ptr<State>& weak : states) {
    const std::shared_ptr<State> state = weak.lock();
    if (state != nullptr && !state->in_child()) {
      state->end();
      std::unique_lock lock(state->mutex);
      state->changed.wait(lock, [&] { return !state->calling; });
    }
  }
}

void CompletionThread::add(c10::intrusive_ptr<WorkOCCL> work,
                           std::shared_ptr<const Function> function) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->ended) {
    state_->entries.push_back({std::move(work), std::move(function)});
    state_->changed.notify_all();
  }
}

void CompletionThread::wait() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->entries.empty() && !state_->calling; });
}

}  // namespace openreg
