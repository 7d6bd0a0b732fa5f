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

// The name that torch gives them; the kernel keeps 15 characters.
constexpr char kName[] = "pt_autograd_";

// Whether some autograd thread runs, or waits for a core. torch has no question for that, the
// system has.
bool autograd_threads_run() {
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::string line;
    std::getline(std::ifstream(task.path() / "stat"), line);  // id (name) state ...
    const size_t name = line.find('(');
    const size_t end = line.rfind(')');
    if (name == std::string::npos || end == std::string::npos || end + 2 >= line.size()) {
      continue;  // it has ended meanwhile
    }
    if (line.compare(name + 1, sizeof(kName) - 1, kName) == 0 && line[end + 2] != 'S') {
      return true;
    }
  }
  return false;
}

}  // namespace

void let_autograd_threads_finish() {
  // One look at several threads is no single moment: one may hand the lock to another meanwhile. So
  // all of them have to sleep several times in a row.
  constexpr int kLooks = 3;
  constexpr auto kPause = std::chrono::microseconds(100);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (int asleep = 0; asleep < kLooks && std::chrono::steady_clock::now() < deadline;) {
    asleep = autograd_threads_run() ? 0 : asleep + 1;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace openreg
