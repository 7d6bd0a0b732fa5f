// SPDX-License-Identifier: BSD-3-Clause
//
// Implements the functions of openreg.h for streams, host functions and device synchronization.
#include "runtime/minimal/driver.h"
#include "runtime/minimal/memory.h"
#include "runtime/minimal/stream.h"

namespace openreg::minimal {
namespace {

constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -1;

orError_t FindForQuery(const char* function, orStream_t handle, std::shared_ptr<Stream>* stream) {
  RETURN_IF_ERROR(EnterQuery(function));
  return Streams::Get().Find(function, handle, stream);
}

}  // namespace

extern "C" {

OPENREG_API orError_t orDeviceGetStreamPriorityRange(int* least, int* greatest) {
  RETURN_IF_NULL(least);
  RETURN_IF_NULL(greatest);
  *least = kLeastPriority;
  *greatest = kGreatestPriority;
  return orSuccess;
}

OPENREG_API orError_t orStreamCreate(orStream_t* stream) {
  return orStreamCreateWithPriority(stream, 0, kLeastPriority);
}

OPENREG_API orError_t orStreamCreateWithPriority(orStream_t* stream, unsigned flags, int priority) {
  RETURN_IF_ERROR(EnterWork("orStreamCreate"));
  RETURN_IF_NULL(stream);
  if (flags != 0 || priority < kGreatestPriority || priority > kLeastPriority) {
    return Fail(
        orErrorInvalidValue,
        "orStreamCreate: flags are 0x%x and priority is %d: expected flags 0 and a priority "
        "from %d (least) to %d",
        flags, priority, kLeastPriority, kGreatestPriority);
  }
  return Streams::Get().Create(thread_state.device, priority, stream);
}

OPENREG_API orError_t orStreamDestroy(orStream_t stream) {
  BEGIN_RELEASE();
  return Streams::Get().Destroy(stream);
}

OPENREG_API orError_t orGetDefaultStream(orStream_t* stream, int device) {
  RETURN_IF_ERROR(EnterQuery(__func__));
  RETURN_IF_NULL(stream);
  RETURN_IF_ERROR(CheckDevice(__func__, device));
  *stream = Streams::Get().Default(device);
  return orSuccess;
}

OPENREG_API orError_t orStreamGetPriority(orStream_t handle, int* priority) {
  std::shared_ptr<Stream> stream;
  RETURN_IF_ERROR(FindForQuery(__func__, handle, &stream));
  RETURN_IF_NULL(priority);
  *priority = stream->priority();
  return orSuccess;
}

OPENREG_API orError_t orStreamGetDevice(orStream_t handle, int* device) {
  std::shared_ptr<Stream> stream;
  RETURN_IF_ERROR(FindForQuery(__func__, handle, &stream));
  RETURN_IF_NULL(device);
  *device = stream->device();
  return orSuccess;
}

OPENREG_API orError_t orStreamQuery(orStream_t handle) {
  std::shared_ptr<Stream> stream;
  RETURN_IF_ERROR(FindForQuery(__func__, handle, &stream));
  const Stream::State state = stream->StateOf(stream->last_position());
  return state == Stream::State::kDone ? orSuccess
         : state == Stream::State::kPending
             ? orErrorNotReady
             : Fail(orErrorShutdown,
                    "orStreamQuery: queued commands were dropped because the process is exiting");
}

OPENREG_API orError_t orStreamSynchronize(orStream_t handle) {
  std::shared_ptr<Stream> stream;
  RETURN_IF_ERROR(EnterWork(__func__));
  RETURN_IF_ERROR(Streams::Get().Find(__func__, handle, &stream));
  RETURN_IF_ERROR(stream->Wait(__func__, stream->last_position()));
  return Report(stream->TakeFailure());
}

OPENREG_API orError_t orLaunchHostFunc(orStream_t handle, orHostFn_t function, void* data) {
  std::shared_ptr<Stream> stream;
  RETURN_IF_ERROR(EnterWork(__func__));
  RETURN_IF_ERROR(Streams::Get().Find(__func__, handle, &stream));
  RETURN_IF_NULL(function);
  return stream->Queue(__func__, {.run = [=](std::string*) {
                         function(data);
                         return orSuccess;
                       }});
}

OPENREG_API int orInKernel(void) { return thread_state.in_kernel ? 1 : 0; }

OPENREG_API orError_t orDeviceSynchronize(void) {
  RETURN_IF_ERROR(EnterWork(__func__));
  Failure failure;
  RETURN_IF_ERROR(Streams::Get().Synchronize(__func__, thread_state.device, &failure));
  return Report(failure);
}

OPENREG_API orError_t orDeviceReset(void) {
  RETURN_IF_ERROR(EnterWork(__func__));
  RETURN_IF_ERROR(Streams::Get().Reset(__func__, thread_state.device));
  DestroyEvents(thread_state.device);
  FreeMemory(thread_state.device);
  return orSuccess;
}

}  // extern "C"
}  // namespace openreg::minimal
