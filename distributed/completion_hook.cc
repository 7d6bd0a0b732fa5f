// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/completion_hook.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace openreg {

struct CompletionHook::State {
  std::mutex mutex;  // guards the next five members
  std::shared_ptr<Function> function;
  std::deque<c10::intrusive_ptr<WorkOCCL>> works;
  bool busy = false;  // with a work that was already removed from `works`
  bool calling = false;
  bool ended = false;
  std::condition_variable changed;
  const int process = getpid();

  // A forked child has no thread that would release the lock.
  bool in_child() const { return getpid() != process; }

  void end() {
    if (in_child()) {
      return;
    }
    // Destroying the function may need the GIL, which the thread cannot take during interpreter
    // exit.
    std::shared_ptr<Function> last;
    const std::lock_guard lock(mutex);
    last.swap(function);
    works.clear();
    ended = true;
    changed.notify_all();
  }
};

namespace {

// All hooks of the process, which has few.
struct Hooks {
  std::mutex mutex;
  std::vector<std::weak_ptr<CompletionHook::State>> states;
};

Hooks& hooks() {
  static auto* const hooks = std::make_unique<Hooks>().release();  // the threads may outlive it
  return *hooks;
}

}  // namespace

CompletionHook::CompletionHook(Function function) : state_(std::make_shared<State>()) {
  state_->function = std::make_shared<Function>(std::move(function));
  {
    const std::lock_guard lock(hooks().mutex);
    std::erase_if(hooks().states, [](const auto& state) { return state.expired(); });
    hooks().states.push_back(state_);
  }
  std::thread([state = state_] { run(state); }).detach();
}

CompletionHook::~CompletionHook() { state_->end(); }

void CompletionHook::end_all() {
  std::vector<std::weak_ptr<State>> states;
  {
    const std::lock_guard lock(hooks().mutex);
    states = hooks().states;
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

void CompletionHook::add(c10::intrusive_ptr<WorkOCCL> work) {
  const std::lock_guard lock(state_->mutex);
  state_->works.push_back(std::move(work));
  state_->changed.notify_all();
}

void CompletionHook::wait() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->works.empty() && !state_->busy; });
}

void CompletionHook::run(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return !state->works.empty() || state->ended; });
    if (state->works.empty()) {
      return;
    }
    c10::intrusive_ptr<WorkOCCL> work = std::move(state->works.front());
    state->works.pop_front();
    state->busy = true;
    lock.unlock();
    const std::shared_ptr<c10d::WorkInfo> info = work->wait_for_info();
    work.reset();
    lock.lock();
    std::shared_ptr<Function> function = state->function;
    state->calling = function != nullptr;
    lock.unlock();
    if (function != nullptr) {
      try {
        (*function)(info);
      } catch (const std::exception& error) {
        TORCH_WARN("a completion hook raised an exception: ", error.what());
      }
      function.reset();
    }
    lock.lock();
    state->busy = state->calling = false;
    state->changed.notify_all();
  }
}

}  // namespace openreg
