// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/completion_hook.h"

#include <c10/util/Exception.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace openreg {

struct CompletionHook::State {
  Function function;
  std::mutex mutex;  // of the next three
  std::deque<c10::intrusive_ptr<WorkOCCL>> works;
  bool calling = false;
  bool over = false;
  std::condition_variable changed;
};

CompletionHook::CompletionHook(Function function) : state_(std::make_shared<State>()) {
  state_->function = std::move(function);
  std::thread([state = state_] { run(state); }).detach();
}

CompletionHook::~CompletionHook() {
  const std::lock_guard lock(state_->mutex);
  state_->over = true;
  state_->changed.notify_all();
}

void CompletionHook::add(c10::intrusive_ptr<WorkOCCL> work) {
  const std::lock_guard lock(state_->mutex);
  state_->works.push_back(std::move(work));
  state_->changed.notify_all();
}

void CompletionHook::wait() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->works.empty() && !state_->calling; });
}

void CompletionHook::run(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return !state->works.empty() || state->over; });
    if (state->works.empty()) {
      return;
    }
    c10::intrusive_ptr<WorkOCCL> work = std::move(state->works.front());
    state->works.pop_front();
    state->calling = true;
    lock.unlock();
    try {
      state->function(work->wait_for_info());
    } catch (const std::exception& error) {
      TORCH_WARN("a completion hook has failed: ", error.what());
    }
    work.reset();
    lock.lock();
    state->calling = false;
    state->changed.notify_all();
  }
}

}  // namespace openreg
