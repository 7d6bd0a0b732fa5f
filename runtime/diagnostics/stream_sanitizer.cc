// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnostics/stream_sanitizer.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "runtime/c10/device.h"
#include "runtime/c10/diagnostic_hooks.h"
#include "runtime/c10/error.h"
#include "runtime/c10/stream.h"
#include "runtime/diagnostics/call_stack.h"

namespace openreg {
namespace {

// ------------------------------------------------------------------------- memory use of tensors

// Returns the bytes that a tensor uses, or nullopt if the tensor has no device memory.
std::optional<Extent> extent_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_python_dispatch() ||
      tensor.device().type() != kOpenRegType || !tensor.has_storage() ||
      tensor.layout() != at::kStrided || tensor.is_nested() || tensor.numel() == 0) {
    return std::nullopt;
  }
  const auto* const data = static_cast<const char*>(
      tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get());
  if (data == nullptr) {
    return std::nullopt;
  }
  const size_t item = tensor.itemsize();
  const auto begin =
      reinterpret_cast<uintptr_t>(data) + static_cast<size_t>(tensor.storage_offset()) * item;
  // Collect pairs of (bytes per step, number of steps), smallest step first.
  c10::SmallVector<std::pair<size_t, size_t>, 8> steps;
  size_t length = item;
  for (int64_t dimension = 0; dimension < tensor.dim(); ++dimension) {
    const auto step = static_cast<size_t>(tensor.stride(dimension)) * item;
    const auto count = static_cast<size_t>(tensor.size(dimension)) - 1;
    if (step != 0 && count != 0) {
      steps.emplace_back(step, count);
      length += step * count;
    }
  }
  std::sort(steps.begin(), steps.end());
  size_t width = item;
  size_t period = 0;
  for (const auto& [step, count] : steps) {
    if (period == 0 && step <= width) {
      width += step * count;
    } else if (period == 0) {
      period = step;
    } else if (step % period != 0) {
      period = 0;  // there is no simple pattern, so the extent is the whole range
      break;
    }
  }
  return Extent{begin, begin + length, period == 0 ? length : width, period};
}

template <class Visit>
void visit_tensors(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      visit(tensor);
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      visit_tensors(element, visit);
    }
  }
}

void add_uses(const c10::IValue& value, UseKind kind, std::vector<Use>& uses) {
  visit_tensors(value, [&](const at::Tensor& tensor) {
    if (const std::optional<Extent> extent = extent_of(tensor)) {
      uses.push_back({*extent, kind});
    }
  });
}

// An operator that writes to arguments that its schema does not declare as written.
struct SilentWrite {
  std::string_view name;
  std::array<size_t, 2> arguments;
};
constexpr SilentWrite kSilentWrites[] = {
    {"aten::_copy_from", {1, 1}},
    {"aten::_copy_from_and_resize", {1, 1}},
    {"aten::native_batch_norm", {3, 4}},
};

// For each argument, by index: whether the operator writes to it.
using Writes = std::vector<bool>;

Writes writes_of(const c10::FunctionSchema& schema) {
  Writes writes;
  for (const c10::Argument& argument : schema.arguments()) {
    writes.push_back(argument.alias_info() != nullptr && argument.alias_info()->isWrite());
  }
  for (const SilentWrite& silent : kSilentWrites) {
    if (silent.name == schema.name()) {
      for (const size_t argument : silent.arguments) {
        writes.at(argument) = true;
      }
    }
  }
  return writes;
}

// -------------------------------------------------------------------------------- operator calls

// An operator call that this thread is executing.
struct Call final : at::ObserverContext {
  Call* outer = nullptr;
  std::string name;
  std::vector<Use> uses;
  // The most recent launch by this call itself, not by an inner call. It writes the results.
  std::shared_ptr<const WatchedLaunch> launched;
};

thread_local Call* innermost = nullptr;

StreamName name_of(orStream_t stream) {
  int device = 0;
  OPENREG_CHECK(orStreamGetDevice(stream, &device));
  return {reinterpret_cast<uint64_t>(stream), device};
}

// --------------------------------------------------------------------------------- the sanitizer

struct Sanitizer {
  std::mutex mutex;
  RaceAction action = RaceAction::kOff;
  std::optional<at::CallbackHandle> callback;
  RaceDetector detector;
  std::vector<Race> races;
};

// Returns the sanitizer. It is never destroyed, because tensors in static storage may be freed very
// late.
Sanitizer& sanitizer() {
  static auto* const instance = std::make_unique<Sanitizer>().release();
  return *instance;
}

void watch(bool on) {
  for (Watchers* const watchers : {&launch_watchers, &memory_watchers, &stream_watchers}) {
    watchers->set(kStreamSanitizer, on);
  }
}

const char* verb(UseKind kind) {
  switch (kind) {
    case UseKind::kRead:
      return "reads";
    case UseKind::kWrite:
      return "writes";
    case UseKind::kAllocation:
      return "allocates";
  }
  return "";
}

std::string text_of(const StreamName& stream) {
  orStream_t standard = nullptr;
  OPENREG_CHECK(orGetDefaultStream(&standard, stream.device));
  if (reinterpret_cast<uint64_t>(standard) == stream.handle) {
    return c10::str("the default stream of openreg:", stream.device);
  }
  char digits[2 + 16 + 1];
  (void)std::snprintf(digits, sizeof(digits), "0x%llx",
                      static_cast<unsigned long long>(stream.handle));
  return c10::str("stream ", digits, " of openreg:", stream.device);
}

std::string text_of(const Race& race) {
  const WatchedLaunch& earlier = *race.earlier.launch;
  const WatchedLaunch& later = *race.later.launch;
  char digits[2 + 16 + 1];
  (void)std::snprintf(digits, sizeof(digits), "0x%llx",
                      static_cast<unsigned long long>(race.block));
  const bool reuse = race.later.kind == UseKind::kAllocation;
  return c10::str(
      "openreg: two streams use one block of memory, and nothing orders them:\n  ", later.name, " ",
      verb(race.later.kind), " it on ", text_of(later.stream), ", but before, ", earlier.name, " ",
      verb(race.earlier.kind), " it on ", text_of(earlier.stream), "\n  block: ", race.bytes,
      " bytes at ", digits, "\n",
      reuse ? "The memory was freed before the program had waited for the other stream: call "
              "tensor.record_stream(stream) before the last reference is dropped, or let the "
              "tensor's own stream wait for the other one\n"
            : "Let the later stream wait: stream.wait_stream(other), or an event recorded after "
              "the earlier use\n",
      later.name, " was called at (most recent call last):\n", to_text(later.stack), earlier.name,
      " was called at (most recent call last):\n", to_text(earlier.stack));
}

// Throws an exception or warns. The caller must hold no lock, because formatting stacks needs the
// GIL.
void report_races(const std::vector<Race>& races, RaceAction action) {
  if (races.empty()) {
    return;
  }
  std::string text = text_of(races.front());
  if (races.size() > 1) {
    text += c10::str("(and ", races.size() - 1,
                     " more races of this launch; all are in "
                     "torch.openreg.stream_sanitizer.races())\n");
  }
  TORCH_CHECK(action != RaceAction::kError, text);
  TORCH_WARN(text);
}

void keep_races(Sanitizer& state, const std::vector<Race>& races) {
  const size_t room = kRacesKept - std::min(kRacesKept, state.races.size());
  state.races.insert(state.races.end(), races.begin(),
                     races.begin() + static_cast<std::ptrdiff_t>(std::min(room, races.size())));
}

std::unique_ptr<at::ObserverContext> start_call(const at::RecordFunction& function) {
  if (orInKernel() != 0) {
    return nullptr;  // this is a CPU operator that runs inside a kernel
  }
  auto call = std::make_unique<Call>();
  call->outer = std::exchange(innermost, call.get());
  call->name = function.name();
  const std::optional<c10::FunctionSchema> schema = function.operator_schema();
  if (schema.has_value()) {
    const Writes writes = writes_of(*schema);
    const c10::ArrayRef<const c10::IValue> inputs = function.inputs();
    for (size_t i = 0; i < inputs.size() && i < writes.size(); ++i) {
      add_uses(inputs[i], writes[i] ? UseKind::kWrite : UseKind::kRead, call->uses);
    }
  }
  return call;
}

void end_call(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* const call = static_cast<Call*>(context);
  if (call == nullptr) {
    return;
  }
  innermost = call->outer;
  if (call->launched == nullptr || !sanitizes_streams()) {
    return;
  }
  std::vector<Use> results;
  for (const c10::IValue& output : function.outputs()) {
    add_uses(output, UseKind::kWrite, results);
  }
  // Skip a result that is also an argument, because the launch has already recorded it. Since the
  // launch, a copy between devices may have ordered the other stream after this use; recording it
  // again could cause a false race.
  std::erase_if(results, [call](const Use& result) {
    return std::any_of(call->uses.begin(), call->uses.end(),
                       [&result](const Use& use) { return use.extent.contains(result.extent); });
  });
  Sanitizer& state = sanitizer();
  const std::lock_guard<std::mutex> lock(state.mutex);
  // This call has just allocated the memory of the results, so no other stream uses it yet.
  (void)state.detector.launch(call->launched, results, /*keep=*/true);
}

std::shared_ptr<const WatchedLaunch> make_launch(const char* name, orStream_t stream) {
  return std::make_shared<const WatchedLaunch>(WatchedLaunch{
      innermost != nullptr ? innermost->name : name, name_of(stream), capture_call_stack()});
}

template <class Function>
void with_detector(Function&& function) {
  Sanitizer& state = sanitizer();
  const std::lock_guard<std::mutex> lock(state.mutex);
  function(state.detector);
}

uint64_t id_of(orEvent_t event) { return reinterpret_cast<uint64_t>(event); }
uintptr_t address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

void start_stream_sanitizer(RaceAction action) {
  stop_stream_sanitizer();
  Sanitizer& state = sanitizer();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.detector = RaceDetector();
  state.races.clear();
  state.action = action;
  if (action != RaceAction::kOff) {
    state.callback = at::addGlobalCallback(at::RecordFunctionCallback(&start_call, &end_call)
                                               .needsInputs(true)
                                               .needsOutputs(true)
                                               .scopes({at::RecordScope::FUNCTION}));
    watch(true);
  }
}

void stop_stream_sanitizer() {
  Sanitizer& state = sanitizer();
  const std::lock_guard<std::mutex> lock(state.mutex);
  watch(false);
  if (state.callback.has_value()) {
    at::removeCallback(*std::exchange(state.callback, std::nullopt));
  }
  state.action = RaceAction::kOff;
}

RaceAction stream_sanitizer_action() {
  Sanitizer& state = sanitizer();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.action;
}

std::vector<Race> found_races() {
  Sanitizer& state = sanitizer();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.races;
}

void sanitize_launch(orStream_t stream, const char* name) {
  if (innermost == nullptr) {
    return;  // outside operators, the memory that the kernel uses is unknown
  }
  if (is_capturing(stream)) {
    return;  // the kernel runs in a replay of its graph, in the order of the replay's stream
  }
  const std::shared_ptr<const WatchedLaunch> launch = make_launch(name, stream);
  Sanitizer& state = sanitizer();
  std::unique_lock<std::mutex> lock(state.mutex);
  const RaceAction action = state.action;
  const std::vector<Race> races =
      state.detector.launch(launch, innermost->uses, action != RaceAction::kError);
  keep_races(state, races);
  lock.unlock();
  report_races(races, action);
  innermost->launched = launch;
}

void sanitize_allocation(const void* pointer, size_t bytes, orStream_t stream) {
  if (is_capturing(stream)) {
    return;  // memory of a graph, whose uses are not observed
  }
  const std::shared_ptr<const WatchedLaunch> launch = make_launch("an allocation", stream);
  Sanitizer& state = sanitizer();
  std::unique_lock<std::mutex> lock(state.mutex);
  const RaceAction action = state.action;
  const std::vector<Race> races = state.detector.allocate(address_of(pointer), bytes, launch);
  keep_races(state, races);
  lock.unlock();
  report_races(races, action);
}

void sanitize_free(const void* pointer) {
  with_detector([&](RaceDetector& detector) { detector.free(address_of(pointer)); });
}

void sanitize_guard(const void* pointer, orStream_t stream) {
  const StreamName name = name_of(stream);
  with_detector([&](RaceDetector& detector) { detector.guard(address_of(pointer), name); });
}

void sanitize_record(orEvent_t event, orStream_t stream) {
  const StreamName name = name_of(stream);
  with_detector([&](RaceDetector& detector) { detector.record(id_of(event), name); });
}

void sanitize_destroy(orEvent_t event) {
  with_detector([&](RaceDetector& detector) { detector.forget(id_of(event)); });
}

void sanitize_wait(orStream_t stream, orEvent_t event) {
  const StreamName name = name_of(stream);
  with_detector([&](RaceDetector& detector) { detector.wait(name, id_of(event)); });
}

void sanitize_order(orStream_t earlier, orStream_t later) {
  const StreamName first = name_of(earlier);
  const StreamName second = name_of(later);
  with_detector([&](RaceDetector& detector) { detector.order(first, second); });
}

void sanitize_host_wait(orEvent_t event) {
  with_detector([&](RaceDetector& detector) { detector.join(id_of(event)); });
}

void sanitize_host_wait(orStream_t stream) {
  const StreamName name = name_of(stream);
  with_detector([&](RaceDetector& detector) { detector.join(name); });
}

void sanitize_host_wait(c10::DeviceIndex device) {
  with_detector([&](RaceDetector& detector) { detector.join_device(device); });
}

}  // namespace openreg
