// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/submission.h"

#include <memory>

#include "runtime/device/error.h"
#include "runtime/device/kernel_error.h"
#include "runtime/device/shared_page.h"

namespace openreg::device {

orActivity Submission::RecordOf(const Work& work, const CallActivity& call) {
  orActivity record = call.ForWork();
  DescribeWork(work.kind, work.name, work.copy, &record);
  return record;
}

// A kernel that runs another kernel and adds the times to the activity record.
struct RecordedKernel {
  orKernelFunction_t kernel;
  const void* arguments;
  size_t size;
  orActivity* record;

  static orError_t Run(void* raw) {
    const auto& self = *static_cast<const RecordedKernel*>(raw);
    alignas(16) unsigned char copy[OPENREG_MAX_ARGUMENT_BYTES];
    if (self.size != 0) {
      std::memcpy(copy, self.arguments, self.size);
    }
    self.record->start_ns = ActivityTime();
    const orError_t error = self.kernel(copy);
    self.record->end_ns = ActivityTime();
    return error;
  }
};

bool Submission::TryInlineRecorded(const Work& work, const CallActivity& call,
                                   ErrorSink* sink) const {
  orActivity record = RecordOf(work, call);
  const RecordedKernel recorded{work.kernel, work.arguments, work.size, &record};
  if (!queue_.TryInline(&RecordedKernel::Run, &recorded, sizeof(recorded), work.name, sink)) {
    return false;
  }
  WriteActivity(record);
  return true;
}

orError_t Submission::SubmitSlowly(Submission submission, Work work) {
  const uint32_t now = mode.load(std::memory_order_relaxed);
  CallActivity activity(submission.function_);
  const CallActivity* const call = activity.active() ? &activity : nullptr;
  if (call != nullptr) {
    activity.SetStream(submission.stream().device(), submission.stream().index);
    activity.SetBytes(work.copy != nullptr ? work.copy->bytes : 0);
  }
  if ((now & kCapturing) != 0) {
    if (const auto captured = submission.AddToCapture(work)) {
      return *captured;
    }
  }
  const bool blocking = (now & kBlocking) != 0 && work.kind != Command::kHostFunction;
  const bool injecting = (now & kInjecting) != 0;
  if (blocking || work.synchronous) {
    return submission.SubmitAndWait(work, call,
                                    !injecting && (work.may_inline || work.kind == Command::kCopy));
  }
  ErrorSink* const sink = &submission.queue_.stream()->sink();
  if (work.may_inline && !injecting &&
      (call != nullptr ? submission.TryInlineRecorded(work, *call, sink)
                       : submission.TryInline(work, sink))) {
    return orSuccess;
  }
  return submission.Enqueue(work, call, sink, nullptr);
}

std::optional<orError_t> Submission::AddToCapture(Work work) const {
  if (stream().capture() == nullptr) {
    return std::nullopt;
  }
  if (work.refused_because == nullptr && work.repeatable != nullptr &&
      work.repeatable->kernel == nullptr) {
    work.refused_because = "and this kernel consumes its arguments, so it can run only once";
  }
  if (work.refused_because == nullptr) {
    return Captures::Get().Add(function_, &stream(), work);
  }
  const orError_t refused =
      Captures::Get().RefuseStream(function_, &stream(), work.refused_because);
  return refused != orSuccess ? std::optional(refused) : std::nullopt;
}

orError_t Submission::SubmitAndWait(Work work, const CallActivity* call, bool may_inline) const {
  Stream* const stream = queue_.stream();
  // Use a separate sink for a kernel, because with launch blocking the launching call returns the
  // kernel's error. The error of a copy remains with the stream.
  std::unique_ptr<ErrorSink> own;
  if (work.kind == Command::kKernel) {
    own = std::make_unique<ErrorSink>();
  } else {
    work.place = Command::kOnWorker;
  }
  ErrorSink* const sink = own != nullptr ? own.get() : &stream->sink();
  const bool ran = may_inline &&
                   (call != nullptr ? TryInlineRecorded(work, *call, sink) : TryInline(work, sink));
  if (!ran) {
    uint64_t position;
    if (const orError_t error = Enqueue(work, call, sink, &position); error != orSuccess) {
      return error;
    }
    if (!stream->WaitFor(position)) {
      // Leaked, because the kernel may still be running while the process exits.
      (void)own.release();
      return Fail(orErrorShutdown, "%s: %s was dropped because the process is exiting", function_,
                  own != nullptr ? "the kernel" : "the copy or fill");
    }
  }
  return own != nullptr ? ReportKernelError(*own) : orSuccess;
}

orError_t Submission::WaitForImported(Event* event) const {
  std::shared_ptr<MappedPage> page;
  MarkWord word;
  if (const orError_t error = event->ReadImport(function_, &page, &word); error != orSuccess) {
    return error;
  }
  return MappedPage::EnqueueWait(page, word, queue_);
}

}  // namespace openreg::device
