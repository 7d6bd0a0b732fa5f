// SPDX-License-Identifier: BSD-3-Clause
//
// Implements the C functions for streams.
#include "runtime/device/activity.h"
#include "runtime/device/environment.h"
#include "runtime/device/error.h"
#include "runtime/device/openreg.h"
#include "runtime/device/process.h"
#include "runtime/device/stream.h"
#include "runtime/device/stream_registry.h"
#include "runtime/device/submission.h"
#include "runtime/device/thread.h"

namespace openreg::device {
namespace {

// Begins a call that only queries, and looks up its stream.
orError_t EnterAndFind(Submission* submission, orStream_t handle) {
  const orError_t error = EnterQuery(submission->function());
  return error == orSuccess ? submission->Find(handle) : error;
}

}  // namespace

extern "C" {

OPENREG_API orError_t orDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (const orError_t error = CheckNotNull("orDeviceGetStreamPriorityRange",
                                           {{"least", least}, {"greatest", greatest}});
      error != orSuccess) {
    return error;
  }
  *least = Stream::kLeastPriority;
  *greatest = Stream::kGreatestPriority;
  return orSuccess;
}

OPENREG_API orError_t orStreamCreate(orStream_t* stream) {
  return orStreamCreateWithPriority(stream, 0, Stream::kLeastPriority);
}

OPENREG_API orError_t orStreamCreateWithPriority(orStream_t* stream, unsigned flags, int priority) {
  if (const orError_t error = EnterDevice("orStreamCreate"); error != orSuccess) {
    return error;
  }
  if (stream == nullptr) {
    return Fail(orErrorInvalidValue,
                "orStreamCreate: stream is null: pass the address of an orStream_t");
  }
  if (flags != 0) {
    return Fail(orErrorInvalidValue, "orStreamCreate: flags are 0x%x: expected 0", flags);
  }
  if (priority < Stream::kGreatestPriority || priority > Stream::kLeastPriority) {
    return Fail(orErrorInvalidValue,
                "orStreamCreate: priority %d is out of range: it must be from %d (least) to %d",
                priority, Stream::kLeastPriority, Stream::kGreatestPriority);
  }
  return Streams::Get().Create(thread_state.device, priority, stream);
}

OPENREG_API orError_t orStreamDestroy(orStream_t handle) {
  if (InForkedChild()) {
    return orSuccess;
  }
  if (const orError_t error = EnterRelease("orStreamDestroy"); error != orSuccess) {
    return error;
  }
  if (handle == nullptr) {
    return FailNoStream("orStreamDestroy", handle);
  }
  Submission submission("orStreamDestroy");
  StreamQueue queue;
  if (const orError_t error = submission.Find(handle); error != orSuccess) {
    return error;
  }
  if (const orError_t error =
          submission.QueueUncaptured("and must not be destroyed until the capture ends", &queue);
      error != orSuccess) {
    return error;
  }
  return Streams::Get().Destroy(queue.stream(), reinterpret_cast<uint64_t>(handle));
}

OPENREG_API orError_t orStreamGetPriority(orStream_t handle, int* priority) {
  Submission submission("orStreamGetPriority");
  if (const orError_t error = EnterAndFind(&submission, handle); error != orSuccess) {
    return error;
  }
  if (priority == nullptr) {
    return Fail(orErrorInvalidValue,
                "orStreamGetPriority: priority is null: pass the address of an int");
  }
  *priority = submission.stream().priority();
  return orSuccess;
}

OPENREG_API orError_t orStreamGetDevice(orStream_t handle, int* device) {
  Submission submission("orStreamGetDevice");
  if (const orError_t error = EnterAndFind(&submission, handle); error != orSuccess) {
    return error;
  }
  if (device == nullptr) {
    return Fail(orErrorInvalidValue,
                "orStreamGetDevice: device is null: pass the address of an int");
  }
  *device = submission.stream().device();
  return orSuccess;
}

OPENREG_API orError_t orStreamQuery(orStream_t handle) {
  Submission submission("orStreamQuery");
  StreamQueue queue;
  if (const orError_t error = EnterAndFind(&submission, handle); error != orSuccess) {
    return error;
  }
  if (const orError_t error = submission.QueueUncaptured(kNothingRuns, &queue);
      error != orSuccess) {
    return error;
  }
  const bool stopped = Stopped();  // must be read first: if it is true, no more work will be done
  if (queue.stream()->Idle()) {
    return orSuccess;
  }
  return stopped
             ? Fail(orErrorShutdown,
                    "orStreamQuery: queued commands were dropped because the process is exiting")
             : orErrorNotReady;
}

OPENREG_API orError_t orStreamSynchronize(orStream_t handle) {
  Submission submission("orStreamSynchronize");
  StreamQueue queue;
  if (const orError_t error = submission.Enter(handle); error != orSuccess) {
    return error;
  }
  if (const orError_t error = submission.QueueUncaptured(kNothingRuns, &queue);
      error != orSuccess) {
    return error;
  }
  CallActivity call("orStreamSynchronize", CallActivity::kWaits);
  call.SetStream(queue.stream()->device(), queue.stream()->index);
  if (!queue.stream()->WaitIdle()) {
    return Fail(orErrorShutdown,
                "orStreamSynchronize: queued commands were dropped because the process is exiting");
  }
  return ReportKernelError(queue.stream()->sink());
}

OPENREG_API orError_t orGetDefaultStream(orStream_t* stream, int device) {
  if (const orError_t error = EnterQuery("orGetDefaultStream"); error != orSuccess) {
    return error;
  }
  if (stream == nullptr) {
    return Fail(orErrorInvalidValue,
                "orGetDefaultStream: stream is null: pass the address of an orStream_t");
  }
  if (const orError_t error = CheckDevice("orGetDefaultStream", device); error != orSuccess) {
    return error;
  }
  *stream = reinterpret_cast<orStream_t>(
      Streams::Get().Default(device)->handle.load(std::memory_order_relaxed));
  return orSuccess;
}

}  // extern "C"
}  // namespace openreg::device
