// SPDX-License-Identifier: BSD-3-Clause
//
// Runs random programs on the CPU and on the device. The programs are like those in
// tests/random_program_test.py, but run without Python, so that asan, ubsan and tsan can check
// them. grammar.h defines the programs.
//
//     bazelw test //aten/random_program:random_program_test --test_arg=--programs=2000
//     .bazel/bin/aten/random_program/random_program_test --show --programs=3 --seed=7
//     .bazel/bin/aten/random_program/random_program_test --show --replay=FILE
//
// --show prints programs and their results. --replay runs the programs in FILE, separated by blank
// lines. --steps=N sets the length of each program. --threads=N sets how many programs run at the
// same time.
#include <c10/core/DeviceType.h>
#include <c10/util/StringUtil.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "aten/random_program/failure.h"
#include "aten/random_program/flags.h"
#include "aten/random_program/grammar.h"
#include "aten/random_program/program.h"

// A sanitizer calls the callback before it ends the process. The function exists only in sanitizer
// builds. NOLINTNEXTLINE(bugprone-reserved-identifier): the sanitizers give the names.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

// tsan reads its options from this function. PyTorch's libraries are not built with tsan, so tsan
// sees their mutexes but not their atomics, such as reference counts. Therefore tsan ignores memory
// accesses in these libraries. It ignores nothing in this project's code.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" __attribute__((used, visibility("default"))) const char* __tsan_default_options() {
  return "ignore_noninstrumented_modules=1";
}

namespace openreg::programs {
namespace {

// The seeds of the running programs, printed when a sanitizer ends the process. 0 means no program.
std::array<std::atomic<uint64_t>, 64> running;

void print_running_seeds() {
  for (const std::atomic<uint64_t>& seed : running) {
    if (seed != 0) {
      std::fprintf(stderr, "It ran --programs=1 --seed=%llu --steps=%zu\n",
                   static_cast<unsigned long long>(seed), flags.steps);
    }
  }
}

// Runs flags.programs programs on `threads` threads and returns a report of the differences.
std::string run_programs(size_t threads) {
  const Streams streams = first_streams();
  std::atomic<uint64_t> next{flags.seed};
  std::mutex mutex;
  std::string report;
  const auto work = [&](size_t slot, const Streams& its_streams) {
    while (true) {
      const uint64_t seed = next++;
      if (seed >= flags.seed + flags.programs) {
        break;
      }
      running[slot] = seed;
      const Steps steps = generate(seed, flags.steps);
      const std::optional<std::string> failure = failure_of(steps, its_streams);
      if (failure.has_value()) {
        const std::lock_guard lock(mutex);
        next = flags.seed + flags.programs;
        report += c10::str("program of seed ", seed, ": ", *failure, "\n", text_of(steps));
        const Steps fewer = shrink(steps, its_streams);
        if (const auto again = failure_of(fewer, its_streams)) {
          report += c10::str("shrunk: ", *again, "\n", text_of(fewer));
        }
      }
    }
    running[slot] = 0;
  };
  if (threads == 1) {
    work(0, streams);
  } else {
    std::vector<std::thread> workers;
    for (size_t slot = 0; slot < std::min(threads, running.size()); ++slot) {
      workers.emplace_back([&work, slot] { work(slot, own_streams()); });
    }
    for (std::thread& worker : workers) {
      worker.join();
    }
  }
  return report;
}

TEST(ProgramTest, ComputesWhatTheCpuComputes) { EXPECT_EQ(run_programs(1), ""); }

TEST(ProgramTest, SeveralThreadsComputeWhatTheCpuComputes) {
  EXPECT_EQ(run_programs(flags.threads), "");
}

TEST(ProgramTest, ADifferenceIsFoundAndShrunk) {
  const Streams streams = first_streams();
  Steps steps = generate(1, 40);
  ASSERT_EQ(failure_of(steps, streams), std::nullopt);
  steps.insert(steps.begin() + 20, {{"new", "2x3", "int64", "1"}, {"spoil", "11"}, {"read", "11"}});
  steps.insert(steps.begin(), 12, {"new", "4", "float32", "0"});
  EXPECT_NE(failure_of(steps, streams), std::nullopt);
  const Steps fewer = shrink(steps, streams);
  ASSERT_EQ(fewer.size(), 2U) << text_of(fewer);
  EXPECT_EQ(fewer[0][0], "new");
  EXPECT_EQ(fewer[1][0], "spoil");
}

TEST(ProgramTest, IsReadAsItIsWritten) {
  const Steps one = generate(1, 40);
  const Steps other = generate(2, 40);
  std::istringstream text(text_of(one) + "= int64 2 1 1\n\n" + text_of(other));
  EXPECT_EQ(parse(text), (std::vector<Steps>{one, other}));
}

// Prints each program and its results. Returns exit status 1 if any program differs on the device.
int show() {
  std::vector<Steps> programs;
  if (flags.replay.empty()) {
    for (uint64_t seed = flags.seed; seed < flags.seed + flags.programs; ++seed) {
      programs.push_back(generate(seed, flags.steps));
    }
  } else {
    std::ifstream file(flags.replay);
    programs = parse(file);
  }
  const Streams streams = first_streams();
  int status = 0;
  for (const Steps& steps : programs) {
    std::cout << text_of(steps) << std::flush;
    try {
      Program program(streams);
      program.run(steps);
      std::cout << program.results() << '\n';
    } catch (const std::exception& error) {
      std::cout << "= different " << error.what() << "\n\n";
      status = 1;
    }
  }
  return status;
}

}  // namespace
}  // namespace openreg::programs

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // torch reports an accelerator only after the backend has been named. In Python, the package
  // names it.
  c10::register_privateuse1_backend("openreg");
  for (const char* argument : std::span(argv, static_cast<size_t>(argc)).subspan(1)) {
    openreg::programs::set_flag(argument);
  }
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(&openreg::programs::print_running_seeds);
  }
  return openreg::programs::flags.show ? openreg::programs::show() : RUN_ALL_TESTS();
}
