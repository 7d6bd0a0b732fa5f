// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/occl/batch.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

#include "distributed/occl/data_type.h"
#include "distributed/occl/reduction.h"
#include "runtime/device/openreg_emulation.h"

namespace openreg::occl {
namespace {

// Returns the size of a rank's output from a collective, in blocks of `count` elements.
size_t ReceiveBlocks(Operation operation, bool is_root, int ranks) {
  const auto all = static_cast<size_t>(ranks);
  switch (operation) {
    case Operation::kAllGather:
    case Operation::kAllToAll:
      return all;
    case Operation::kGather:
      return is_root ? all : 0;
    case Operation::kReduce:
      return is_root ? 1 : 0;
    case Operation::kAllReduce:
    case Operation::kBroadcast:
    case Operation::kReduceScatter:
    case Operation::kScatter:
    case Operation::kReceive:
      return 1;
    default:
      return 0;
  }
}

bool HasRoot(Operation operation) {
  return operation == Operation::kBroadcast || operation == Operation::kReduce ||
         operation == Operation::kGather || operation == Operation::kScatter;
}

bool IsTransfer(Operation operation) {
  return operation == Operation::kSend || operation == Operation::kReceive;
}

const char* KernelName(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return "occl::AllReduce";
    case Operation::kBroadcast:
      return "occl::Broadcast";
    case Operation::kReduce:
      return "occl::Reduce";
    case Operation::kAllGather:
      return "occl::AllGather";
    case Operation::kReduceScatter:
      return "occl::ReduceScatter";
    case Operation::kAllToAll:
      return "occl::AllToAll";
    case Operation::kGather:
      return "occl::Gather";
    case Operation::kScatter:
      return "occl::Scatter";
    case Operation::kBarrier:
      return "occl::Barrier";
    case Operation::kSend:
      return "occl::Send";
    case Operation::kReceive:
      return "occl::Recv";
    default:
      return "occl::Group";
  }
}

}  // namespace

size_t SendBlocks(Operation operation, bool is_root, int ranks) {
  const auto all = static_cast<size_t>(ranks);
  switch (operation) {
    case Operation::kReduceScatter:
    case Operation::kAllToAll:
      return all;
    case Operation::kScatter:
      return is_root ? all : 0;
    case Operation::kBroadcast:
      return is_root ? 1 : 0;
    case Operation::kAllReduce:
    case Operation::kReduce:
    case Operation::kAllGather:
    case Operation::kGather:
    case Operation::kSend:
      return 1;
    default:
      return 0;
  }
}

bool Reduces(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduce ||
         operation == Operation::kReduceScatter;
}

Batch::Batch(std::shared_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {}

Batch::~Batch() {
  for (Step& step : steps_) {
    for (const Buffer* buffer : {&step.send, &step.receive}) {
      if (buffer->bounce != nullptr) {
        (void)orFree(buffer->bounce);
      }
    }
  }
}

// ------------------------------------------------------------------------------------- requests

Status Batch::Find(const char* which, const void* pointer, size_t bytes, bool shared,
                   Buffer* buffer) {
  buffer->bytes = bytes;
  if (bytes == 0) {
    return {};
  }
  orPointerAttributes attributes{};
  if (const orError_t error = orPointerGetAttributes(&attributes, pointer); error != orSuccess) {
    return DeviceStatus(error);
  }
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const auto base = reinterpret_cast<uintptr_t>(attributes.base);
  if (attributes.type != orMemoryTypeDevice || attributes.device != communicator_->device()) {
    return Error(occlInvalidArgument, std::string(which) + " is not memory of device " +
                                          std::to_string(communicator_->device()) +
                                          ", the device of the communicator");
  }
  if (bytes > attributes.size - (address - base)) {
    return Error(occlInvalidArgument, std::string(which) + " needs " + std::to_string(bytes) +
                                          " bytes, but its allocation has only " +
                                          std::to_string(attributes.size - (address - base)) +
                                          " bytes from this address on");
  }
  void* view = nullptr;
  if (const orError_t error = orGetKernelPointer(&view, pointer); error != orSuccess) {
    return DeviceStatus(error);
  }
  buffer->view = static_cast<unsigned char*>(view);
  if (!shared) {
    return {};
  }
  const void* named = pointer;
  if (attributes.imported != 0) {
    buffer->original = buffer->view;
    if (const orError_t error = orMalloc(&buffer->bounce, bytes); error != orSuccess) {
      return DeviceStatus(error);
    }
    if (const orError_t error = orGetKernelPointer(&view, buffer->bounce); error != orSuccess) {
      return DeviceStatus(error);
    }
    buffer->view = static_cast<unsigned char*>(view);
    named = buffer->bounce;
  }
  size_t place = 0;
  if (const orError_t error = orIpcGetFileOffset(&place, named); error != orSuccess) {
    return DeviceStatus(error);
  }
  buffer->place = place;
  return {};
}

Status Batch::Add(const Request& request) {
  const int ranks = communicator_->ranks();
  const Operation operation = request.operation;
  if (TypeSize(request.type) == 0) {
    return Error(occlInvalidArgument,
                 "data type " + std::to_string(request.type) + " is not an occlDataType_t");
  }
  if (request.count > (size_t{1} << 46) / TypeSize(request.type) / static_cast<size_t>(ranks)) {
    return Error(occlInvalidArgument, std::to_string(request.count) + " elements of " +
                                          TypeName(request.type) + " on each of " +
                                          std::to_string(ranks) +
                                          " ranks exceed the limit of 2^46 bytes in total");
  }
  if (HasRoot(operation) && (request.root < 0 || request.root >= ranks)) {
    return Error(occlInvalidArgument, "the root, rank " + std::to_string(request.root) +
                                          ", is out of range: the communicator has " +
                                          std::to_string(ranks) + " ranks");
  }
  const bool any = operation == Operation::kReceive && request.peer == occlAnyRank;
  if (IsTransfer(operation) && !any && (request.peer < 0 || request.peer >= ranks)) {
    return Error(occlInvalidArgument, "there is no rank " + std::to_string(request.peer) +
                                          ": the communicator has " + std::to_string(ranks) +
                                          " ranks");
  }
  steps_.emplace_back();
  Step& step = steps_.back();
  step.request = request;
  step.block = request.count * TypeSize(request.type);
  step.descriptor = {operation, request.type, request.op, request.root, request.count, 0, 0, {}};
  if (request.scaled) {
    std::memcpy(step.descriptor.scale, request.scale, sizeof(step.descriptor.scale));
    // Makes a scaled sum differ from a plain sum when the ranks compare their operations.
    step.descriptor.op = occlNumOps;
  } else if (Reduces(operation) && !CanReduce(request.type, request.op)) {
    return Error(occlInvalidArgument, std::string(TypeName(request.type)) +
                                          " does not support reduction " +
                                          std::to_string(request.op));
  }
  const bool is_root = request.root == communicator_->rank();
  const size_t send = SendBlocks(operation, is_root, ranks) * step.block;
  const size_t receive = ReceiveBlocks(operation, is_root, ranks) * step.block;
  if (Status status = Find("send", request.send, send, /*shared=*/true, &step.send); !status.ok()) {
    return status;
  }
  const bool read_by_others = operation == Operation::kAllReduce;
  if (Status status = Find("receive", request.receive, receive, read_by_others, &step.receive);
      !status.ok()) {
    return status;
  }
  step.descriptor.send = step.send.place;
  step.descriptor.receive = step.receive.place;
  return {};
}

Status Batch::Launch(std::unique_ptr<Batch> batch, orStream_t stream) {
  static constexpr orRepeatable kRepeatable{&Batch::RunKernel, &Batch::Release};
  const std::shared_ptr<Communicator> communicator = batch->communicator_;
  communicator->DropFinished();
  if (const Status ended = communicator->Ended(); !ended.ok()) {
    return ended;
  }
  const bool transfers =
      std::all_of(batch->steps_.begin(), batch->steps_.end(),
                  [](const Step& step) { return IsTransfer(step.request.operation); });
  // Sends and receives match by peer and tag, so they need no order. Collectives must run in the
  // order of the calls. This includes collectives that consist of messages, whose tags are
  // negative.
  const bool in_order =
      !transfers || std::any_of(batch->steps_.begin(), batch->steps_.end(),
                                [](const Step& step) { return step.request.tag < 0; });
  if (const Status status = communicator->OrderAfterLast(stream, in_order); !status.ok()) {
    return status;
  }
  const char* const name = batch->steps_.size() == 1
                               ? KernelName(batch->steps_[0].request.operation)
                               : KernelName(Operation::kNone);
  // The flags are those of a long kernel: it runs on the stream's own thread, because it waits for
  // other processes.
  const orLaunchAttributes attributes{name, orLaunchHasRepeatable, 0, &kRepeatable};
  Batch* const raw = batch.release();
  communicator->BeginBatch();
  const orError_t error = orLaunchKernel(stream, &Batch::RunOnce, &raw, sizeof(raw), &attributes);
  // Either the launch was rejected, or the kernel has run and failed (with launch blocking).
  // owners_ distinguishes these cases, because a kernel that has run no longer owns the batch. When
  // the process is exiting, the kernel may still be running.
  const bool refused = error != orSuccess && error != orErrorShutdown &&
                       raw->owners_.load(std::memory_order_acquire) == 2;
  if (refused || communicator->captured()) {
    communicator->EndBatch();
  }
  raw->Drop(refused ? 2 : 1);
  if (error != orSuccess) {
    return DeviceStatus(error);
  }
  return in_order ? communicator->RecordLast(stream) : Status();
}

void Batch::Drop(int owners) {
  if (owners_.fetch_sub(owners, std::memory_order_acq_rel) == owners) {
    const std::unique_ptr<Batch> last(this);
  }
}

// Runs the operations. Called at each graph replay, or by RunOnce().
orError_t Batch::RunKernel(void* argument) {
  Batch* const self = *static_cast<Batch**>(argument);
  const Status status = self->Run();
  if (status.ok()) {
    return orSuccess;
  }
  const std::string text = "occl: " + status.text;
  return orKernelFail(orErrorLaunchFailure, text.c_str(), nullptr, nullptr);
}

orError_t Batch::RunOnce(void* argument) {
  const orError_t error = RunKernel(argument);
  Batch* const self = *static_cast<Batch**>(argument);
  // The communicator stays alive until its finished batches are destroyed, which cannot happen
  // before EndBatch.
  Communicator* const communicator = self->communicator_.get();
  communicator->AddFinished(self, [](void* batch) { static_cast<Batch*>(batch)->Drop(1); });
  communicator->EndBatch();
  return error;
}

void Batch::Release(void* argument) { (*static_cast<Batch**>(argument))->Drop(1); }

Status Batch::Run() {
  std::vector<Transfer> transfers;
  const std::shared_lock memory(communicator_->memory_mutex());
  if (Status status = communicator_->CheckResumed(); !status.ok()) {
    return status;
  }
  {
    const std::lock_guard lock(communicator_->run_mutex());
    for (Step& step : steps_) {
      if (IsTransfer(step.request.operation)) {
        transfers.push_back({&step});
      } else if (const Status status = RunCollective(step); !status.ok()) {
        return status;
      }
    }
  }
  return transfers.empty() ? Status() : RunTransfers(std::move(transfers));
}

}  // namespace openreg::occl
