// SPDX-License-Identifier: BSD-3-Clause
#include "python/csrc/autograd_threads.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

namespace openreg {
namespace {

// The prefix of the names that torch gives its autograd threads. Linux truncates thread names to 15
// characters.
constexpr char kName[] = "pt_autograd_";

// Returns whether any autograd thread is running or runnable. torch has no API for this, so the
// function reads /proc.
bool any_autograd_thread_runs() {
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::string line;
    std::getline(std::ifstream(task.path() / "stat"), line);  // format: id (name) state ...
    const size_t name = line.find('(');
    const size_t end = line.rfind(')');
    if (name == std::string::npos || end == std::string::npos || end + 2 >= line.size()) {
      continue;  // the thread has ended
    }
    if (line.compare(name + 1, sizeof(kName) - 1, kName) == 0 && line[end + 2] != 'S') {
      return true;
    }
  }
  return false;
}

}  // namespace

void wait_for_autograd_threads() {
  // One scan is not enough, because it does not observe all threads at the same moment: a thread
  // may pass the GIL to another thread during the scan. Therefore all threads must be asleep in
  // several consecutive scans.
  constexpr int kScans = 3;
  constexpr auto kPause = std::chrono::microseconds(100);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (int asleep = 0; asleep < kScans && std::chrono::steady_clock::now() < deadline;) {
    asleep = any_autograd_thread_runs() ? 0 : asleep + 1;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace openreg
