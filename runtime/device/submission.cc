// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/submission.h"

#include <memory>

#include "runtime/device/error.h"
#include "runtime/device/kernel_error.h"
#include "runtime/device/shared_page.h"

namespace openreg::device {

orError_t Submission::SubmitSlowly(Submission submission, Work work) {
  const uint32_t now = mode.load(std::memory_order_relaxed);
  if ((now & kCapturing) != 0) {
    if (const auto captured = submission.AddToCapture(work)) {
      return *captured;
    }
  }
  const bool blocking = (now & kBlocking) != 0 && work.kind != Command::kHostFunction;
  const bool injecting = (now & kInjecting) != 0;
  if (blocking || work.synchronous) {
    return submission.SubmitAndWait(work,
                                    !injecting && (work.may_inline || work.kind == Command::kCopy));
  }
  ErrorSink* const sink = &submission.queue_.stream()->sink();
  if (work.may_inline && !injecting &&
      submission.queue_.TryInline(work.kernel, work.arguments, work.size, work.name, sink)) {
    return orSuccess;
  }
  return submission.Enqueue(work, sink, nullptr);
}

std::optional<orError_t> Submission::AddToCapture(Work work) const {
  if (stream().capture() == nullptr) {
    return std::nullopt;
  }
  if (work.refused_because == nullptr && work.repeatable != nullptr &&
      work.repeatable->kernel == nullptr) {
    work.refused_because = "and this kernel uses its arguments up: it can run once";
  }
  if (work.refused_because == nullptr) {
    return Captures::Get().Add(function_, &stream(), work);
  }
  const orError_t refused =
      Captures::Get().RefuseStream(function_, &stream(), work.refused_because);
  return refused != orSuccess ? std::optional(refused) : std::nullopt;
}

orError_t Submission::SubmitAndWait(Work work, bool may_inline) const {
  Stream* const stream = queue_.stream();
  // The error of a launch is returned by its own call; that of a copy stays with the stream.
  std::unique_ptr<ErrorSink> own;
  if (work.kind == Command::kKernel) {
    own = std::make_unique<ErrorSink>();
  } else {
    work.place = Command::kOnWorker;
  }
  ErrorSink* const sink = own != nullptr ? own.get() : &stream->sink();
  if (!may_inline || !queue_.TryInline(work.kernel, work.arguments, work.size, work.name, sink)) {
    uint64_t position;
    if (const orError_t error = Enqueue(work, sink, &position); error != orSuccess) {
      return error;
    }
    if (!stream->WaitFor(position)) {
      (void)own.release();  // the kernel may still be running, and the process ends anyway
      return Fail(orErrorShutdown, "%s: %s was dropped: the process exits", function_,
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
