// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <memory>
#include <optional>

#include "runtime/device/error.h"
#include "runtime/device/executor.h"
#include "runtime/device/graph.h"
#include "runtime/device/kernel_error.h"
#include "runtime/device/process.h"
#include "runtime/device/stream.h"
#include "runtime/device/thread.h"

namespace openreg::device {
namespace {

constexpr uint32_t kLaunchFlags =
    orLaunchInline | orLaunchParallel | orLaunchShort | orLaunchMoldable | orLaunchHasRepeatable;
constexpr uint32_t kWithTeam = orLaunchParallel | orLaunchMoldable;

struct Launch {
  orKernelFunction_t kernel;
  const void* arguments;
  size_t size;
  const char* name;
  uint32_t flags;
  uint32_t work_ns;
};

Command::Place PlaceOf(uint32_t flags) {
  return (flags & orLaunchParallel) != 0                   ? Command::kOnExecutor
         : (flags & orLaunchMoldable) != 0                 ? Command::kMoldable
         : (flags & (orLaunchInline | orLaunchShort)) != 0 ? Command::kAnywhere
                                                           : Command::kOnWorker;
}

[[gnu::always_inline]] inline orError_t Queue(Stream* stream, uint64_t expected,
                                              const Launch& launch, ErrorSink* sink,
                                              uint64_t* position) {
  return stream->Enqueue(expected, position, [&](Command& command) {
    command.kind = Command::kKernel;
    command.place = PlaceOf(launch.flags);
    if ((launch.flags & kWithTeam) != 0) {
      command.work_before = stream->AddWork(launch.work_ns);
    }
    command.name = launch.name;
    command.kernel = launch.kernel;
    command.sink = sink;
    if (launch.size != 0) {
      std::memcpy(command.arguments, launch.arguments, launch.size);
    }
  });
}

// Nothing if the stream is not captured.
[[gnu::noinline]] std::optional<orError_t> CaptureLaunch(Stream* stream, const Launch& launch,
                                                         const orRepeatable* repeatable) {
  if (stream->capture() == nullptr) {
    return std::nullopt;
  }
  if (repeatable != nullptr && repeatable->kernel == nullptr) {
    return Captures::Get().RefuseStream("orLaunchKernel", stream,
                                        "and this kernel uses its arguments up: it can run once");
  }
  CapturedCommand command{};
  command.kind = Command::kKernel;
  command.place = PlaceOf(launch.flags);
  command.runs_inline = (launch.flags & (orLaunchInline | kWithTeam)) == orLaunchInline;
  command.name = launch.name;
  command.kernel = repeatable != nullptr ? repeatable->kernel : launch.kernel;
  command.release = repeatable != nullptr ? repeatable->release : nullptr;
  command.arguments = launch.arguments;
  command.size = launch.size;
  command.work_ns = (launch.flags & kWithTeam) != 0 ? launch.work_ns : 0;
  return Captures::Get().Add("orLaunchKernel", stream, command);
}

// With launch blocking: waits, and returns the error of this very kernel.
[[gnu::noinline]] orError_t LaunchAndWait(Stream* stream, uint64_t expected, const Launch& launch,
                                          bool may_inline) {
  auto sink = std::make_unique<ErrorSink>();
  if (!may_inline || !stream->TryInline(expected, launch.kernel, launch.arguments, launch.size,
                                        launch.name, sink.get())) {
    uint64_t position;
    if (const orError_t error = Queue(stream, expected, launch, sink.get(), &position);
        error != orSuccess) {
      return error;
    }
    if (!stream->WaitFor(position)) {
      (void)sink.release();  // the kernel may be running still, and the process ends anyway
      return Fail(orErrorShutdown, "orLaunchKernel: the kernel was dropped: the process exits");
    }
  }
  return ReportKernelError(*sink);
}

}  // namespace
}  // namespace openreg::device

using openreg::device::CapturedCommand;
using openreg::device::CaptureLaunch;
using openreg::device::Captures;
using openreg::device::Capturing;
using openreg::device::Command;
using openreg::device::EnterStream;
using openreg::device::Executor;
using openreg::device::Fail;
using openreg::device::kAllowedInCapture;
using openreg::device::kBlocking;
using openreg::device::kCapturing;
using openreg::device::kInjecting;
using openreg::device::kLaunchFlags;
using openreg::device::kWithTeam;
using openreg::device::Launch;
using openreg::device::mode;
using openreg::device::Stream;
using openreg::device::thread_state;

orError_t orLaunchKernel(orStream_t handle, orKernel_t kernel, const void* arguments, size_t size) {
  Stream* stream;
  uint64_t expected;
  if (const orError_t error =
          EnterStream("orLaunchKernel", handle, kAllowedInCapture, &stream, &expected);
      error != orSuccess) [[unlikely]] {
    return error;
  }
  const orKernelFunction_t function = kernel != nullptr ? kernel->function : nullptr;
  const orLaunchAttributes* const attributes = kernel != nullptr ? kernel->attributes : nullptr;
  const Launch launch{function,
                      arguments,
                      size,
                      attributes ? attributes->name : nullptr,
                      attributes ? attributes->flags : 0,
                      attributes ? attributes->work_ns : 0};
  if (function == nullptr || size > OPENREG_MAX_ARGUMENT_BYTES ||
      (arguments == nullptr && size != 0) || (launch.flags & ~kLaunchFlags) != 0) [[unlikely]] {
    return Fail(
        orErrorInvalidValue,
        "orLaunchKernel: kernel %p, arguments %p, %zu bytes, flags 0x%x: the kernel must not be "
        "null, nor arguments of which there are bytes; at most %d bytes; flags orLaunchInline "
        "(0x1), orLaunchParallel (0x2), orLaunchShort (0x4), orLaunchMoldable (0x8) and "
        "orLaunchHasRepeatable (0x10)",
        reinterpret_cast<void*>(function), arguments, size, launch.flags,
        OPENREG_MAX_ARGUMENT_BYTES);
  }
  const uint32_t now = mode.load(std::memory_order_relaxed);
  const bool may_inline =
      (launch.flags & (orLaunchInline | kWithTeam)) == orLaunchInline && (now & kInjecting) == 0;
  if ((now & (kBlocking | kCapturing)) == 0) [[likely]] {
    if (may_inline &&
        stream->TryInline(expected, function, arguments, size, launch.name, &stream->sink())) {
      return orSuccess;
    }
  } else if ((now & kCapturing) != 0) {
    const bool has = (launch.flags & orLaunchHasRepeatable) != 0;
    if (const auto captured =
            CaptureLaunch(stream, launch, has ? attributes->repeatable : nullptr)) {
      return *captured;
    }
    if ((now & kBlocking) == 0 && may_inline &&
        stream->TryInline(expected, function, arguments, size, launch.name, &stream->sink())) {
      return orSuccess;
    }
  }
  if ((launch.flags & kWithTeam) != 0) {
    if (const orError_t error = Executor::Get().Start(); error != orSuccess) {
      return error;
    }
  }
  if ((now & kBlocking) != 0) [[unlikely]] {
    return LaunchAndWait(stream, expected, launch, may_inline);
  }
  return Queue(stream, expected, launch, &stream->sink(), nullptr);
}

orError_t orKernelFail(orError_t error, const char* message, void* payload,
                       void (*drop)(void* payload)) {
  Stream* stream = thread_state.running;
  if (stream == nullptr) {
    return Fail(orErrorNotPermitted, "orKernelFail: this thread runs no kernel");
  }
  const orError_t kept = error == orSuccess ? orErrorLaunchFailure : error;
  stream->KeepFailure(kept, message, payload, drop);
  return kept;
}

orError_t orLaunchHostFunc(orStream_t handle, orHostFn_t function, void* data) {
  Stream* stream;
  uint64_t expected;
  if (const orError_t error =
          EnterStream("orLaunchHostFunc", handle, kAllowedInCapture, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  if (function == nullptr) {
    return Fail(orErrorInvalidValue, "orLaunchHostFunc: function is null");
  }
  if (Capturing()) [[unlikely]] {
    CapturedCommand command{};
    command.kind = Command::kHostFunction;
    command.place = Command::kOnWorker;
    command.function = function;
    command.data = data;
    if (const auto captured = Captures::Get().Add("orLaunchHostFunc", stream, command)) {
      return *captured;
    }
  }
  return stream->Enqueue(expected, nullptr, [&](Command& command) {
    command.kind = Command::kHostFunction;
    command.place = Command::kOnWorker;
    command.name = nullptr;
    command.function = function;
    command.data = data;
    command.sink = &stream->sink();
  });
}

int orKernelHasTeam(void) { return thread_state.has_team; }

int orInKernel(void) { return thread_state.running != nullptr; }

int orKernelOnHost(void) { return thread_state.running != nullptr && !thread_state.of_device; }
