// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnostics/memcheck.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "runtime/c10/device.h"
#include "runtime/diagnostics/call_stack.h"
#include "runtime/diagnostics/memory_history.h"

namespace openreg {
namespace {

using allocator::Memcheck;

std::array<std::atomic<Memcheck*>, OPENREG_MAX_DEVICES> memchecks{};

// The largest number of faults that an error describes in full. Further faults are only counted.
constexpr size_t kDescribed = 5;
// The longest time for which the exit of the process waits for queued work.
constexpr std::chrono::seconds kExitWait{5};
// The largest number of allocation sites in the leak report.
constexpr size_t kPlaces = 20;

// The data that the leak report needs. It must be collected while the interpreter still runs,
// because only the interpreter can format stacks. Never destroyed, because the process is exiting.
struct ExitState {
  // Stacks of the blocks that were held then, by context.
  std::map<const void*, std::string> stacks;
  std::set<uintptr_t> reachable;  // addresses of blocks that the interpreter never frees
};
std::atomic<ExitState*> exit_state{nullptr};

template <class Function>
void for_each_memcheck(Function&& function) {
  for (c10::DeviceIndex device = 0; device < OPENREG_MAX_DEVICES; ++device) {
    if (Memcheck* const memcheck = memcheck_of(device); memcheck != nullptr) {
      function(device, *memcheck);
    }
  }
}

std::string plural(size_t count, const char* noun) {
  return c10::str(count, " ", noun, count == 1 ? "" : "s");
}

std::string place_text(const char* what, const allocator::Context& context) {
  const std::string stack = to_text(stack_of(context));
  return stack.empty() ? c10::str(what, " by a thread without Python\n")
                       : c10::str(what, " at (most recent call last):\n", stack);
}

const char* place_of(Memcheck::Fault fault) {
  switch (fault) {
    case Memcheck::Fault::kUnderrun:
      return "before the start of a block";
    case Memcheck::Fault::kOverrun:
      return "past the end of a block";
    case Memcheck::Fault::kUseAfterFree:
      return "to a block after it was freed";
  }
  return "";
}

std::string text_of(c10::DeviceIndex device, const Memcheck::Finding& found) {
  char address[2 + 16 + 1];
  (void)std::snprintf(address, sizeof(address), "0x%llx",
                      static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(found.pointer)));
  std::string text = c10::str(
      "openreg: memcheck: ", plural(found.changed, "byte"), found.changed == 1 ? " was" : " were",
      " written ", place_of(found.fault), ", the first at offset ", found.offset,
      "\n  block: ", plural(found.bytes, "byte"), " at ", address,
      " of openreg:", static_cast<int>(device), "\n", place_text("allocated", found.allocated));
  if (found.freed != nullptr) {
    text += place_text("freed", found.freed);
  }
  return text;
}

// Removes the findings of all devices and returns them as text. The text describes the first
// `described` findings in full and counts the others. If there are no findings, the text is empty.
std::string take_faults(size_t described) {
  std::string text;
  size_t count = 0;
  for_each_memcheck([&](c10::DeviceIndex device, Memcheck& memcheck) {
    for (const Memcheck::Finding& found : memcheck.take_findings()) {
      if (count++ < described) {
        text += text_of(device, found);
      }
    }
  });
  if (count > described) {
    text += c10::str("(and ", plural(count - described, "other block"), ")\n");
  }
  return text;
}

// Adds up the blocks of `held` per allocation site.
template <class StackText>
std::vector<HeldMemory> by_place(c10::DeviceIndex device, const std::vector<Memcheck::Held>& held,
                                 const StackText& stack_text) {
  std::map<std::string, HeldMemory> places;
  for (const Memcheck::Held& block : held) {
    std::string stack = stack_text(block.allocated);
    HeldMemory& place = places.try_emplace(stack, HeldMemory{device, 0, 0, stack}).first->second;
    ++place.blocks;
    place.bytes += block.bytes;
  }
  std::vector<HeldMemory> result;
  for (auto& [stack, place] : places) {
    result.push_back(std::move(place));
  }
  return result;
}

void sort_by_size(std::vector<HeldMemory>* places) {
  std::ranges::sort(*places, std::greater(), [](const HeldMemory& place) {
    return std::tie(place.bytes, place.blocks, place.stack);
  });
}

// Waits until the work that is queued on the streams is done, but not longer than until `end`.
// Returns whether the work is done.
bool are_done_by(std::chrono::steady_clock::time_point end,
                 const std::vector<orStream_t>& streams) {
  for (const orStream_t stream : streams) {
    while (orStreamQuery(stream) == orErrorNotReady) {
      if (std::chrono::steady_clock::now() > end) {
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return true;
}

}  // namespace

Memcheck* make_memcheck(c10::DeviceIndex device) {
  if (!checks_memory()) {
    return nullptr;
  }
  // Never destroyed, like the allocator that uses it.
  Memcheck* const memcheck = std::make_unique<Memcheck>(device).release();
  memchecks[static_cast<size_t>(device)].store(memcheck, std::memory_order_release);
  return memcheck;
}

Memcheck* memcheck_of(c10::DeviceIndex device) noexcept {
  return memchecks[static_cast<size_t>(device)].load(std::memory_order_acquire);
}

void check_memory(c10::DeviceIndex device) {
  if (Memcheck* const memcheck = memcheck_of(device); memcheck != nullptr) {
    memcheck->check();
  }
}

void check_memory(orStream_t stream) {
  int device = 0;
  // Ignore an invalid stream: the wait that follows returns an error for it.
  if (orStreamGetDevice(stream, &device) == orSuccess) {
    if (Memcheck* const memcheck = memcheck_of(static_cast<c10::DeviceIndex>(device));
        memcheck != nullptr) {
      memcheck->check(stream);
    }
  }
}

void raise_memory_faults() {
  const std::string text = take_faults(kDescribed);
  TORCH_CHECK(text.empty(), text);
}

std::vector<HeldMemory> held_memory() {
  std::vector<HeldMemory> result;
  for_each_memcheck([&](c10::DeviceIndex device, Memcheck& memcheck) {
    std::map<const void*, std::string> known;
    for (HeldMemory& place :
         by_place(device, memcheck.held(), [&](const allocator::Context& context) {
           std::string& text = known[context.get()];
           if (text.empty()) {
             text = to_text(stack_of(context));
           }
           return text;
         })) {
      result.push_back(std::move(place));
    }
  });
  sort_by_size(&result);
  return result;
}

void report_memory_faults_at_exit(const std::vector<uintptr_t>& reachable) noexcept {
  if (!checks_memory() || in_forked_child()) {
    return;
  }
  try {
    const auto end = std::chrono::steady_clock::now() + kExitWait;
    auto state = std::make_unique<ExitState>();
    state->reachable.insert(reachable.begin(), reachable.end());
    for_each_memcheck([&](c10::DeviceIndex device, Memcheck& memcheck) {
      memcheck.check();
      if (!are_done_by(end, memcheck.streams())) {
        (void)std::fprintf(stderr,
                           "openreg: memcheck: the work queued on openreg:%d did not finish in %d "
                           "seconds: its later writes are not checked\n",
                           static_cast<int>(device), static_cast<int>(kExitWait.count()));
      }
      for (const Memcheck::Held& block : memcheck.held()) {
        std::string& text = state->stacks[block.allocated.get()];
        if (text.empty()) {
          text = to_text(stack_of(block.allocated));
        }
      }
    });
    (void)std::fputs(take_faults(kDescribed).c_str(), stderr);
    std::unique_ptr<ExitState>(exit_state.exchange(state.release())).reset();
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "openreg: memcheck: the check at exit failed: %s\n", error.what());
  }
}

void report_leaks_at_exit() noexcept {
  const ExitState* const state = exit_state.load();
  if (state == nullptr || in_forked_child()) {
    return;
  }
  try {
    std::vector<HeldMemory> places;
    for_each_memcheck([&](c10::DeviceIndex device, Memcheck& memcheck) {
      std::vector<Memcheck::Held> held = memcheck.held();
      std::erase_if(held, [state](const Memcheck::Held& block) {
        return state->reachable.contains(reinterpret_cast<uintptr_t>(block.pointer));
      });
      for (HeldMemory& place : by_place(device, held, [&](const allocator::Context& context) {
             const auto found = state->stacks.find(context.get());
             return found != state->stacks.end() ? found->second : std::string();
           })) {
        places.push_back(std::move(place));
      }
    });
    sort_by_size(&places);
    for (size_t i = 0; i < std::min(places.size(), kPlaces); ++i) {
      const HeldMemory& place = places[i];
      const std::string text = c10::str(
          "openreg: memcheck: ", plural(place.bytes, "byte"), " in ", plural(place.blocks, "block"),
          " of openreg:", static_cast<int>(place.device), " were never freed\n",
          place.stack.empty() ? "allocated by a thread without Python, or during its exit\n"
                              : "allocated at (most recent call last):\n" + place.stack);
      (void)std::fputs(text.c_str(), stderr);
    }
    if (places.size() > kPlaces) {
      (void)std::fprintf(stderr, "(and %zu other places)\n", places.size() - kPlaces);
    }
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "openreg: memcheck: the leak report failed: %s\n", error.what());
  }
}

}  // namespace openreg
