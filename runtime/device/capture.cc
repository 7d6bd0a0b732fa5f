// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/capture.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <string>
#include <unordered_map>

#include "runtime/device/error.h"
#include "runtime/device/stream_registry.h"
#include "runtime/device/thread.h"

namespace openreg::device {

class Capture {
 public:
  struct Branch {
    Stream* stream;
    std::vector<uint32_t> heads;  // the nodes on which the stream's next command depends
  };

  Branch& Of(const Stream* stream) {
    return *std::find_if(branches.begin(), branches.end(),
                         [&](const Branch& branch) { return branch.stream == stream; });
  }

  // Makes the capture invalid and returns an error with the given text. The text of the first call
  // remains the reason.
  [[gnu::format(printf, 3, 4)]] orError_t Invalidate(orError_t error, const char* format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (valid()) {
      invalid = error;
      reason = text;
    }
    return Fail(error, "%s. The capture is now invalid; end it (orStreamEndCapture)", text);
  }

  // Returns an error if the capture is invalid. Must be called before the capture is extended.
  orError_t CheckValid(const char* function) const {
    return valid() ? orSuccess
                   : Fail(orErrorCaptureInvalidated,
                          "%s: the capture of this stream is invalid; end it "
                          "(orStreamEndCapture). The reason was: %s",
                          function, reason.c_str());
  }

  bool valid() const { return invalid == orSuccess; }

  uint64_t id = 0;
  orStreamCaptureMode mode = orStreamCaptureModeGlobal;
  const ThreadState* owner = nullptr;
  Stream* origin = nullptr;
  // The first one is the branch of `origin`.
  std::vector<Branch> branches;
  std::unordered_map<uint64_t, std::vector<uint32_t>> events;  // the heads that each event captured
  orError_t invalid = orSuccess;
  std::string reason;
  Graph* graph = nullptr;
};

namespace {

void Merge(std::vector<uint32_t>* heads, const std::vector<uint32_t>& more) {
  for (const uint32_t head : more) {
    if (std::find(heads->begin(), heads->end(), head) == heads->end()) {
      heads->push_back(head);
    }
  }
}

const void* HandleOf(const Stream* stream) {
  return reinterpret_cast<const void*>(stream->handle.load(std::memory_order_relaxed));
}

}  // namespace

Captures& Captures::Get() {
  static Captures& captures = *new Captures;  // never destroyed, like the streams
  return captures;
}

Capture* Captures::OfEvent(uint64_t handle) const {
  for (const std::unique_ptr<Capture>& capture : captures_) {
    if (capture->events.contains(handle)) {
      return capture.get();
    }
  }
  return nullptr;
}

orError_t Captures::Begin(Stream* stream, uint64_t expected, orStreamCaptureMode capture_mode) {
  auto capture = std::make_unique<Capture>();
  std::lock_guard lock(mutex_);
  if (stream->capture() != nullptr) {
    return Fail(
        orErrorInvalidValue,
        "orStreamBeginCapture: stream %p is already part of a capture; end that capture first",
        HandleOf(stream));
  }
  if (stream->handle.load(std::memory_order_relaxed) != expected) {
    return Fail(orErrorInvalidHandle,
                "orStreamBeginCapture: stream %p was destroyed during the call",
                reinterpret_cast<void*>(expected));
  }
  capture->id = ++last_id_;
  capture->mode = capture_mode;
  capture->owner = &thread_state;
  capture->origin = stream;
  capture->graph = new Graph(stream->device());  // deleted by Release
  capture->branches.push_back({stream, {}});
  stream->set_capture(capture.get());
  captures_.push_back(std::move(capture));
  mode.fetch_or(kCapturing, std::memory_order_seq_cst);
  return orSuccess;
}

void Captures::Drop(Capture* capture) {
  for (const Capture::Branch& branch : capture->branches) {
    branch.stream->set_capture(nullptr);
  }
  std::erase_if(captures_, [&](const auto& owned) { return owned.get() == capture; });
  if (captures_.empty()) {
    mode.fetch_and(~uint32_t{kCapturing}, std::memory_order_seq_cst);
  }
}

orError_t Captures::End(Stream* stream, orGraph_t* handle) {
  *handle = nullptr;
  Graph* graph = nullptr;
  orError_t error = orSuccess;
  {
    std::lock_guard lock(mutex_);
    Capture* capture = stream->capture();
    if (capture == nullptr) {
      return Fail(orErrorInvalidValue, "orStreamEndCapture: stream %p is not being captured",
                  HandleOf(stream));
    }
    if (capture->origin != stream) {
      return Fail(orErrorInvalidValue,
                  "orStreamEndCapture: stream %p has joined the capture of stream %p; end it there",
                  HandleOf(stream), HandleOf(capture->origin));
    }
    if (capture->mode != orStreamCaptureModeRelaxed && capture->owner != &thread_state) {
      return Fail(orErrorCaptureWrongThread,
                  "orStreamEndCapture: another thread began the capture of stream %p and must end "
                  "it; any thread may end a relaxed capture",
                  HandleOf(stream));
    }
    graph = capture->graph;
    if (capture->valid()) {
      const uint32_t node = graph->FindUnjoined(capture->Of(stream).heads);
      if (node < graph->size()) {
        error =
            Fail(orErrorCaptureUnjoined,
                 "orStreamEndCapture: the work of stream %p was not joined (its last command is "
                 "%s): before the end, record an event on it and make stream %p wait for the event",
                 HandleOf(Streams::Get().At(graph->StreamOf(node))), graph->NameOf(node),
                 HandleOf(stream));
      }
    } else {
      error = Fail(
          orErrorCaptureInvalidated,
          "orStreamEndCapture: the capture is invalid, so it produces no graph. The reason was: %s",
          capture->reason.c_str());
    }
    Drop(capture);
  }
  if (error == orSuccess) {
    error = Graphs::Get().Create(graph, handle);
  }
  if (error != orSuccess) {
    graph->Release();
  }
  return error;
}

void Captures::Describe(const Stream* stream, orStreamCaptureStatus* status, uint64_t* id) {
  std::lock_guard lock(mutex_);
  const Capture* capture = stream->capture();
  *status = capture == nullptr ? orStreamCaptureStatusNone
            : capture->valid() ? orStreamCaptureStatusActive
                               : orStreamCaptureStatusInvalidated;
  if (id != nullptr) {
    *id = capture != nullptr ? capture->id : 0;
  }
}

std::optional<orError_t> Captures::Add(const char* function, const Stream* stream,
                                       const Work& work) {
  std::lock_guard lock(mutex_);
  Capture* capture = stream->capture();
  if (capture == nullptr) {
    return std::nullopt;
  }
  if (const orError_t error = capture->CheckValid(function); error != orSuccess) {
    return error;
  }
  std::vector<uint32_t>& heads = capture->Of(stream).heads;
  heads.assign(1, capture->graph->Add(work, stream, heads));
  return orSuccess;
}

std::optional<orError_t> Captures::Record(const char* function, Event* event, uint64_t handle,
                                          const Stream* stream) {
  std::lock_guard lock(mutex_);
  Capture* capture = stream->capture();
  if (capture == nullptr) {
    return std::nullopt;
  }
  if (const orError_t error = capture->CheckValid(function); error != orSuccess) {
    return error;
  }
  if (event->scope() != Event::Scope::kProcess) {
    return capture->Invalidate(orErrorCaptureUnsupported,
                               "%s: stream %p is being captured, and an interprocess event cannot "
                               "be part of a graph: record it before or after the capture",
                               function, HandleOf(stream));
  }
  for (const std::unique_ptr<Capture>& other : captures_) {
    other->events.erase(handle);
  }
  std::vector<uint32_t>& heads = capture->Of(stream).heads;
  if (event->timed()) {
    heads.assign(1, capture->graph->AddRecord(event, handle, stream, heads));
  }
  capture->events[handle] = heads;
  event->NoteCaptured();
  return orSuccess;
}

std::optional<orError_t> Captures::Wait(const char* function, Stream* stream, const Event* event,
                                        uint64_t handle, const Event::Capture& recorded_by) {
  std::lock_guard lock(mutex_);
  Capture* waiting = stream->capture();
  if (waiting != nullptr) {
    if (const orError_t error = waiting->CheckValid(function); error != orSuccess) {
      return error;
    }
  }
  if (waiting != nullptr && event->scope() == Event::Scope::kImported) {
    return waiting->Invalidate(
        orErrorCaptureIsolation,
        "%s: stream %p is being captured, and the event belongs to another process: a replay could "
        "not wait for it; wait for it before or after the capture",
        function, HandleOf(stream));
  }
  if (!recorded_by.captured()) {
    if (waiting == nullptr || !recorded_by.recorded()) {
      return std::nullopt;
    }
    return waiting->Invalidate(
        orErrorCaptureIsolation,
        "%s: stream %p is being captured, and the event was recorded outside the capture: a replay "
        "could not wait for it; wait for it before the capture, or record it during the capture",
        function, HandleOf(stream));
  }
  Capture* recorded = OfEvent(handle);
  if (recorded == nullptr) {
    static constexpr char kCaptureEnded[] =
        "%s: the event was recorded in a capture that has ended, and has no meaning outside that "
        "capture; "
        "record it again, or synchronize with the stream on which the graph is replayed";
    return waiting != nullptr
               ? waiting->Invalidate(orErrorCaptureIsolation, kCaptureEnded, function)
               : Fail(orErrorCaptureIsolation, kCaptureEnded, function);
  }
  if (const orError_t error = recorded->CheckValid(function); error != orSuccess) {
    return error;
  }
  const std::vector<uint32_t>& heads = recorded->events[handle];
  if (waiting == nullptr) {
    recorded->branches.push_back({stream, heads});
    stream->set_capture(recorded);
  } else if (waiting == recorded) {
    Merge(&waiting->Of(stream).heads, heads);
  } else {
    static constexpr char kTwoCaptures[] =
        "%s: the event was recorded in one capture, and stream %p is part of another: captures "
        "cannot be merged";
    (void)recorded->Invalidate(orErrorCaptureIsolation, kTwoCaptures, function, HandleOf(stream));
    return waiting->Invalidate(orErrorCaptureIsolation, kTwoCaptures, function, HandleOf(stream));
  }
  return orSuccess;
}

orError_t Captures::RefuseStream(const char* function, const Stream* stream, const char* because) {
  std::lock_guard lock(mutex_);
  Capture* capture = stream->capture();
  return capture == nullptr
             ? orSuccess
             : capture->Invalidate(orErrorCaptureUnsupported, "%s: stream %p is being captured, %s",
                                   function, HandleOf(stream), because);
}

orError_t Captures::RefuseDevice(const char* function, int device) {
  std::lock_guard lock(mutex_);
  orError_t refused = orSuccess;
  for (const std::unique_ptr<Capture>& capture : captures_) {
    for (const Capture::Branch& branch : capture->branches) {
      if (branch.stream->device() == device) {
        refused = capture->Invalidate(
            orErrorCaptureUnsupported,
            "%s: stream %p of device %d is being captured, so the device cannot "
            "be synchronized: synchronize before or after the capture",
            function, HandleOf(branch.stream), device);
        break;
      }
    }
  }
  return refused;
}

orError_t Captures::RefuseUnsafe(const char* function) {
  const uint8_t own = thread_state.capture_mode;
  if (own == orStreamCaptureModeRelaxed) {
    return orSuccess;
  }
  std::lock_guard lock(mutex_);
  orError_t refused = orSuccess;
  for (const std::unique_ptr<Capture>& capture : captures_) {
    const bool forbidden =
        capture->owner == &thread_state
            ? capture->mode != orStreamCaptureModeRelaxed
            : capture->mode == orStreamCaptureModeGlobal && own == orStreamCaptureModeGlobal;
    if (forbidden) {
      const bool global = capture->mode == orStreamCaptureModeGlobal;
      refused = capture->Invalidate(
          orErrorCaptureUnsupported,
          "%s: stream %p is being captured in mode %s, which does not allow this call %s: make the "
          "call before or after the capture, or begin the capture in another mode",
          function, HandleOf(capture->origin), global ? "global" : "thread_local",
          global ? "in any thread" : "in this thread");
    }
  }
  return refused;
}

orError_t Captures::RefuseEvent(const char* function, uint64_t handle) {
  std::lock_guard lock(mutex_);
  if (Capture* capture = OfEvent(handle); capture != nullptr) {
    return capture->Invalidate(orErrorCaptureUnsupported,
                               "%s: the event was recorded in a capture, and captured work does "
                               "not run: there is nothing to wait for",
                               function);
  }
  return Fail(
      orErrorCaptureUnsupported,
      "%s: the event was recorded in a capture, and no replay has recorded it since (replays "
      "record timed events)",
      function);
}

}  // namespace openreg::device
