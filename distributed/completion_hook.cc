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
  std::mutex mutex;  // of the next four
  std::shared_ptr<Function> function;
  std::deque<c10::intrusive_ptr<WorkOCCL>> works;
  bool calling = false;
  bool over = false;
  std::condition_variable changed;
};

CompletionHook::CompletionHook(Function function) : state_(std::make_shared<State>()) {
  state_->function = std::make_shared<Function>(std::move(function));
  std::thread([state = state_] { run(state); }).detach();
}

CompletionHook::~CompletionHook() {
  // It may need the GIL to be destroyed, which the thread cannot take while the interpreter ends.
  std::shared_ptr<Function> last;
  const std::lock_guard lock(state_->mutex);
  last.swap(state_->function);
  state_->works.clear();
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
    const std::shared_ptr<c10d::WorkInfo> info = work->wait_for_info();
    work.reset();
    lock.lock();
    std::shared_ptr<Function> function = state->function;
    lock.unlock();
    if (function != nullptr) {
      try {
        (*function)(info);
      } catch (const std::exception& error) {
        TORCH_WARN("a completion hook has failed: ", error.what());
      }
      function.reset();
    }
    lock.lock();
    state->calling = false;
    state->changed.notify_all();
  }
}

}  // namespace openreg
