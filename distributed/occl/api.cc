// SPDX-License-Identifier: BSD-3-Clause
//
// Implements the C functions of occl.h. They check their arguments and call Communicator and Batch.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "distributed/occl/batch.h"
#include "distributed/occl/communicator.h"
#include "distributed/occl/data_type.h"
#include "distributed/occl/error.h"
#include "runtime/device/host_wait.h"

// The object behind a communicator's handle. Lives until occlCommDestroy.
struct occlComm {
  std::shared_ptr<openreg::occl::Communicator> communicator;
  bool finalized = false;
};

namespace openreg::occl {
namespace {

// The calls that a thread has made between occlGroupStart and occlGroupEnd.
struct Group {
  struct Call {
    std::shared_ptr<Communicator> communicator;
    orStream_t stream;
    Request request;
  };
  int depth = 0;
  std::vector<Call> calls;
  Status failed;  // the error of the first call that failed
};
thread_local Group group;

constexpr char kFinalized[] = "the communicator is finalized: only occlCommDestroy may be called";

Status CheckHandle(const char* function, occlComm_t comm) {
  if (comm == nullptr) {
    return Error(occlInvalidArgument,
                 std::string(function) + ": the communicator must not be null");
  }
  Status status = comm->communicator->CheckProcess();
  if (!status.ok()) {
    status.text = std::string(function) + ": " + status.text;
  }
  return status;
}

Status Named(const char* function, Status status) {
  if (!status.ok()) {
    status.text = std::string(function) + ": " + status.text;
  }
  return status;
}

// Makes the device of a communicator the thread's current device during the lifetime of the object.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    (void)orGetDevice(&before_);
    if (before_ != device) {
      (void)orSetDevice(device);
    }
  }
  ~CurrentDevice() { (void)orSetDevice(before_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
};

// Launches one batch for each communicator and stream. The batches are launched in the order of
// their first calls.
Status LaunchAll(const std::vector<Group::Call>& calls) {
  struct Part {
    const Group::Call* first;
    std::unique_ptr<Batch> batch;
  };
  std::vector<Part> parts;
  for (const Group::Call& call : calls) {
    const auto same = [&](const Part& part) {
      return part.first->communicator == call.communicator && part.first->stream == call.stream;
    };
    auto part = std::find_if(parts.begin(), parts.end(), same);
    if (part == parts.end()) {
      part = parts.insert(parts.end(), {&call, std::make_unique<Batch>(call.communicator)});
    }
    const CurrentDevice device(call.communicator->device());
    if (Status status = part->batch->Add(call.request); !status.ok()) {
      return status;
    }
  }
  for (Part& part : parts) {
    const CurrentDevice device(part.first->communicator->device());
    if (Status status = Batch::Launch(std::move(part.batch), part.first->stream); !status.ok()) {
      return status;
    }
  }
  return {};
}

// Copies the scalar of an operator from occlRedOpCreatePreMulSum into the request, because the
// program may destroy the operator before the end of a group.
Status ResolveScale(const Communicator& communicator, Request* request) {
  if (!Reduces(request->operation) || request->op < occlNumOps) {
    return {};
  }
  occlDataType_t type;
  const unsigned char* const scale = communicator.FindScale(request->op, &type);
  if (scale == nullptr) {
    return Error(occlInvalidArgument,
                 "reduction " + std::to_string(request->op) +
                     " is neither an occlRedOp_t nor an operator of this communicator");
  }
  if (type != request->type) {
    return Error(occlInvalidArgument, std::string("the reduction's scalar is ") + TypeName(type) +
                                          ", but the data is " + TypeName(request->type) +
                                          ": both must have the same type");
  }
  request->op = occlSum;
  request->scaled = true;
  std::memcpy(request->scale, scale, sizeof(request->scale));
  return {};
}

occlResult_t Enqueue(const char* function, occlComm_t comm, orStream_t stream, Request request) {
  Status status = CheckHandle(function, comm);
  if (status.ok() && comm->finalized) {
    status = Error(occlInvalidUsage, kFinalized);
  }
  if (status.ok()) {
    status = comm->communicator->CheckResumed();
  }
  if (status.ok()) {
    status = ResolveScale(*comm->communicator, &request);
  }
  if (status.ok()) {
    std::vector<Group::Call> call{{comm->communicator, stream, request}};
    if (group.depth == 0) {
      status = LaunchAll(call);
    } else {
      group.calls.push_back(std::move(call[0]));
    }
  }
  status = Named(function, std::move(status));
  if (!status.ok() && group.depth != 0 && group.failed.ok()) {
    group.failed = status;
  }
  return Return(status);
}

Status WaitIdle(const Communicator& communicator) {
  if (communicator.Idle()) {
    return communicator.Ended();
  }
  const HostWait wait;
  for (int round = 0; !communicator.Idle(); ++round) {
    if (round < 100) {
      std::this_thread::yield();
    } else if (orInit() == orErrorShutdown) {
      break;  // the process is exiting, and the device has discarded the enqueued work
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  return communicator.Ended();
}

// The arguments of one rank for a split. Ranks exchange them through the slots.
struct SplitArguments {
  int32_t color;
  int32_t key;
  int32_t failed;
  occlUniqueId id;
};
static_assert(sizeof(SplitArguments) <= kSlotBytes);

// Splits the communicator on the host. The function first waits for all operations of this rank, so
// that nothing else uses the barriers.
Status Split(Communicator& parent, int color, int key, const occlConfig_t& config,
             std::shared_ptr<Communicator>* child) {
  if (Status status = parent.CheckResumed(); !status.ok()) {
    return status;
  }
  if (const Status status = WaitIdle(parent); !status.ok()) {
    return status;
  }
  const std::lock_guard lock(parent.run_mutex());
  const Clock::time_point deadline = parent.Deadline();
  Descriptor descriptor{Operation::kSplit, occlByte, occlSum, -1, 0, 0, 0, {}};
  SplitArguments arguments{color, key, 0, {}};
  std::memcpy(parent.NextSlot(), &arguments, sizeof(arguments));
  if (Status status = parent.CheckedBarrier(descriptor, deadline); !status.ok()) {
    return status;
  }
  // Collect the ranks with this color, ordered by their keys.
  std::vector<std::pair<int, int>> members;
  for (int rank = 0; rank < parent.ranks(); ++rank) {
    SplitArguments other;
    std::memcpy(&other, parent.LastSlot(rank), sizeof(other));
    if (other.color == color) {
      members.emplace_back(other.key, rank);
    }
  }
  std::sort(members.begin(), members.end());
  const int first = members[0].second;
  Status made;
  if (color >= 0 && first == parent.rank()) {
    made = Communicator::MakeId(&arguments.id);
    arguments.failed = made.ok() ? 0 : 1;
  }
  std::memcpy(parent.NextSlot(), &arguments, sizeof(arguments));
  if (Status status = parent.Barrier(deadline); !status.ok()) {
    return status;
  }
  if (color < 0) {
    return {};
  }
  SplitArguments leader;
  std::memcpy(&leader, parent.LastSlot(first), sizeof(leader));
  if (leader.failed != 0) {
    return first == parent.rank()
               ? made
               : Error(occlRemoteError,
                       parent.Name(first) + " could not create the id for the split communicator");
  }
  const auto me = std::find_if(members.begin(), members.end(),
                               [&](const auto& member) { return member.second == parent.rank(); });
  return Communicator::Join(leader.id, static_cast<int>(members.size()),
                            static_cast<int>(me - members.begin()), config, child);
}

Status ReturnHandle(Status status, std::shared_ptr<Communicator> communicator, occlComm_t* comm) {
  if (status.ok() && communicator != nullptr) {
    *comm = std::make_unique<occlComm>(occlComm{std::move(communicator)}).release();
  }
  return status;
}

}  // namespace

extern "C" {

OPENREG_API occlResult_t occlGetVersion(int* version) {
  if (version == nullptr) {
    return Return(Error(occlInvalidArgument, "occlGetVersion: version must not be null"));
  }
  *version = OCCL_VERSION;
  return occlSuccess;
}

OPENREG_API occlResult_t occlGetUniqueId(occlUniqueId* id) {
  if (id == nullptr) {
    return Return(Error(occlInvalidArgument, "occlGetUniqueId: id must not be null"));
  }
  return Return(Named("occlGetUniqueId", Communicator::MakeId(id)));
}

OPENREG_API occlResult_t occlCommInitRankConfig(occlComm_t* comm, int nranks, occlUniqueId id,
                                                int rank, const occlConfig_t* config) {
  constexpr char kFunction[] = "occlCommInitRank";
  if (comm == nullptr || nranks < 1 || nranks > kMaxRanks || rank < 0 || rank >= nranks) {
    return Return(Error(occlInvalidArgument,
                        std::string(kFunction) + ": nranks is " + std::to_string(nranks) +
                            " and rank is " + std::to_string(rank) + ": nranks must be from 1 to " +
                            std::to_string(kMaxRanks) +
                            ", rank must be from 0 to nranks - 1, and comm "
                            "must not be null"));
  }
  *comm = nullptr;
  std::shared_ptr<Communicator> joined;
  const HostWait wait;
  Status status =
      Communicator::Join(id, nranks, rank, config != nullptr ? *config : occlConfig_t{}, &joined);
  return Return(Named(kFunction, ReturnHandle(std::move(status), std::move(joined), comm)));
}

OPENREG_API occlResult_t occlCommInitRank(occlComm_t* comm, int nranks, occlUniqueId id, int rank) {
  return occlCommInitRankConfig(comm, nranks, id, rank, nullptr);
}

OPENREG_API occlResult_t occlCommSplit(occlComm_t comm, int color, int key, occlComm_t* split,
                                       const occlConfig_t* config) {
  constexpr char kFunction[] = "occlCommSplit";
  if (const Status status = CheckHandle(kFunction, comm); !status.ok()) {
    return Return(status);
  }
  if (split == nullptr) {
    return Return(Error(occlInvalidArgument, "occlCommSplit: split must not be null"));
  }
  *split = nullptr;
  const std::shared_ptr<Communicator> communicator = comm->communicator;
  const CurrentDevice device(communicator->device());
  std::shared_ptr<Communicator> child;
  const HostWait wait;
  Status status =
      Split(*communicator, color, key, config != nullptr ? *config : occlConfig_t{}, &child);
  return Return(Named(kFunction, ReturnHandle(std::move(status), std::move(child), split)));
}

OPENREG_API occlResult_t occlCommFinalize(occlComm_t comm) {
  if (const Status status = CheckHandle("occlCommFinalize", comm); !status.ok()) {
    return Return(status);
  }
  const Status status = WaitIdle(*comm->communicator);
  comm->finalized = true;
  comm->communicator->Leave();
  return Return(Named("occlCommFinalize", status));
}

OPENREG_API occlResult_t occlCommSuspend(occlComm_t comm) {
  constexpr char kFunction[] = "occlCommSuspend";
  if (const Status status = CheckHandle(kFunction, comm); !status.ok()) {
    return Return(status);
  }
  if (group.depth != 0) {
    return Return(
        Error(occlInvalidUsage, "occlCommSuspend: a group is open: call occlGroupEnd first"));
  }
  Communicator& communicator = *comm->communicator;
  Status status = comm->finalized ? Error(occlInvalidUsage, kFinalized) : WaitIdle(communicator);
  if (status.ok()) {
    const HostWait wait;
    status = communicator.Suspend();
  }
  return Return(Named(kFunction, std::move(status)));
}

OPENREG_API occlResult_t occlCommResume(occlComm_t comm) {
  constexpr char kFunction[] = "occlCommResume";
  if (const Status status = CheckHandle(kFunction, comm); !status.ok()) {
    return Return(status);
  }
  return Return(Named(kFunction, comm->communicator->Resume()));
}

OPENREG_API occlResult_t occlCommMemoryStats(occlComm_t comm, occlMemoryStats_t* stats) {
  constexpr char kFunction[] = "occlCommMemoryStats";
  if (const Status status = CheckHandle(kFunction, comm); !status.ok()) {
    return Return(status);
  }
  if (stats == nullptr) {
    return Return(Error(occlInvalidArgument, "occlCommMemoryStats: stats must not be null"));
  }
  *stats = comm->communicator->MemoryStats();
  return occlSuccess;
}

OPENREG_API occlResult_t occlCommDestroy(occlComm_t comm) {
  if (comm == nullptr) {
    return occlSuccess;
  }
  const std::unique_ptr<occlComm> owned(comm);
  if (comm->communicator->CheckProcess().ok()) {
    (void)WaitIdle(*comm->communicator);
    if (!comm->finalized) {
      comm->communicator->Leave();
    }
    comm->communicator->DropFinished();
  }
  return occlSuccess;
}

OPENREG_API occlResult_t occlCommAbort(occlComm_t comm) {
  return occlCommAbortWithReason(comm, "the communicator was aborted");
}

OPENREG_API occlResult_t occlCommAbortWithReason(occlComm_t comm, const char* reason) {
  if (const Status status = CheckHandle("occlCommAbort", comm); !status.ok()) {
    return Return(status);
  }
  (void)comm->communicator->End(occlAborted, reason);
  return occlSuccess;
}

OPENREG_API occlResult_t occlCommGetAsyncError(occlComm_t comm, occlResult_t* error,
                                               const char** text) {
  if (const Status status = CheckHandle("occlCommGetAsyncError", comm); !status.ok()) {
    return Return(status);
  }
  if (error == nullptr) {
    return Return(Error(occlInvalidArgument, "occlCommGetAsyncError: error must not be null"));
  }
  thread_local std::string words;
  const Status ended = comm->communicator->Ended();
  words = ended.text;
  *error = ended.result;
  if (text != nullptr) {
    *text = words.c_str();
  }
  return occlSuccess;
}

OPENREG_API occlResult_t occlCommSetTimeout(occlComm_t comm, int64_t timeout_ms) {
  if (const Status status = CheckHandle("occlCommSetTimeout", comm); !status.ok()) {
    return Return(status);
  }
  if (timeout_ms <= 0) {
    return Return(
        Error(occlInvalidArgument, "occlCommSetTimeout: the timeout must be positive, but is " +
                                       std::to_string(timeout_ms) + " ms"));
  }
  comm->communicator->SetTimeout(std::chrono::milliseconds(timeout_ms));
  return occlSuccess;
}

#define OCCL_QUERY(FUNCTION, OUT, VALUE)                                                  \
  OPENREG_API occlResult_t FUNCTION(occlComm_t comm, int* OUT) {                          \
    if (const Status status = CheckHandle(#FUNCTION, comm); !status.ok()) {               \
      return Return(status);                                                              \
    }                                                                                     \
    if (OUT == nullptr) {                                                                 \
      return Return(Error(occlInvalidArgument, #FUNCTION ": " #OUT " must not be null")); \
    }                                                                                     \
    *OUT = comm->communicator->VALUE();                                                   \
    return occlSuccess;                                                                   \
  }
OCCL_QUERY(occlCommCount, nranks, ranks)
OCCL_QUERY(occlCommUserRank, rank, rank)
OCCL_QUERY(occlCommDevice, device, device)
#undef OCCL_QUERY

OPENREG_API occlResult_t occlRedOpCreatePreMulSum(occlRedOp_t* op, const void* scalar,
                                                  occlDataType_t type, occlComm_t comm) {
  constexpr char kFunction[] = "occlRedOpCreatePreMulSum";
  if (const Status status = CheckHandle(kFunction, comm); !status.ok()) {
    return Return(status);
  }
  if (op == nullptr || scalar == nullptr || TypeSize(type) == 0 || type == occlByte) {
    return Return(Error(occlInvalidArgument, std::string(kFunction) +
                                                 ": op and scalar must not be null, and " +
                                                 TypeName(type) + " must be a numeric type"));
  }
  *op = comm->communicator->AddScale(type, static_cast<const unsigned char*>(scalar));
  return occlSuccess;
}

OPENREG_API occlResult_t occlRedOpDestroy(occlRedOp_t op, occlComm_t comm) {
  if (const Status status = CheckHandle("occlRedOpDestroy", comm); !status.ok()) {
    return Return(status);
  }
  if (!comm->communicator->RemoveScale(op)) {
    return Return(Error(occlInvalidArgument, "occlRedOpDestroy: reduction " + std::to_string(op) +
                                                 " was not created by this communicator"));
  }
  return occlSuccess;
}

OPENREG_API occlResult_t occlAllReduce(const void* send, void* receive, size_t count,
                                       occlDataType_t type, occlRedOp_t op, occlComm_t comm,
                                       orStream_t stream) {
  return Enqueue("occlAllReduce", comm, stream,
                 {.operation = Operation::kAllReduce,
                  .send = send,
                  .receive = receive,
                  .count = count,
                  .type = type,
                  .op = op});
}

OPENREG_API occlResult_t occlBroadcast(const void* send, void* receive, size_t count,
                                       occlDataType_t type, int root, occlComm_t comm,
                                       orStream_t stream) {
  return Enqueue("occlBroadcast", comm, stream,
                 {.operation = Operation::kBroadcast,
                  .send = send,
                  .receive = receive,
                  .count = count,
                  .type = type,
                  .root = root});
}

OPENREG_API occlResult_t occlReduce(const void* send, void* receive, size_t count,
                                    occlDataType_t type, occlRedOp_t op, int root, occlComm_t comm,
                                    orStream_t stream) {
  return Enqueue("occlReduce", comm, stream,
                 {.operation = Operation::kReduce,
                  .send = send,
                  .receive = receive,
                  .count = count,
                  .type = type,
                  .op = op,
                  .root = root});
}

OPENREG_API occlResult_t occlAllGather(const void* send, void* receive, size_t count,
                                       occlDataType_t type, occlComm_t comm, orStream_t stream) {
  return Enqueue("occlAllGather", comm, stream,
                 {.operation = Operation::kAllGather,
                  .send = send,
                  .receive = receive,
                  .count = count,
                  .type = type});
}

OPENREG_API occlResult_t occlReduceScatter(const void* send, void* receive, size_t count,
                                           occlDataType_t type, occlRedOp_t op, occlComm_t comm,
                                           orStream_t stream) {
  return Enqueue("occlReduceScatter", comm, stream,
                 {.operation = Operation::kReduceScatter,
                  .send = send,
                  .receive = receive,
                  .count = count,
                  .type = type,
                  .op = op});
}

OPENREG_API occlResult_t occlAllToAll(const void* send, void* receive, size_t count,
                                      occlDataType_t type, occlComm_t comm, orStream_t stream) {
  return Enqueue("occlAllToAll", comm, stream,
                 {.operation = Operation::kAllToAll,
                  .send = send,
                  .receive = receive,
                  .count = count,
                  .type = type});
}

OPENREG_API occlResult_t occlGather(const void* send, void* receive, size_t count,
                                    occlDataType_t type, int root, occlComm_t comm,
                                    orStream_t stream) {
  return Enqueue("occlGather", comm, stream,
                 {.operation = Operation::kGather,
                  .send = send,
                  .receive = receive,
                  .count = count,
                  .type = type,
                  .root = root});
}

OPENREG_API occlResult_t occlScatter(const void* send, void* receive, size_t count,
                                     occlDataType_t type, int root, occlComm_t comm,
                                     orStream_t stream) {
  return Enqueue("occlScatter", comm, stream,
                 {.operation = Operation::kScatter,
                  .send = send,
                  .receive = receive,
                  .count = count,
                  .type = type,
                  .root = root});
}

OPENREG_API occlResult_t occlBarrier(occlComm_t comm, orStream_t stream) {
  return Enqueue("occlBarrier", comm, stream, {.operation = Operation::kBarrier});
}

OPENREG_API occlResult_t occlSend(const void* send, size_t count, occlDataType_t type, int peer,
                                  int tag, occlComm_t comm, orStream_t stream) {
  return Enqueue("occlSend", comm, stream,
                 {.operation = Operation::kSend,
                  .send = send,
                  .count = count,
                  .type = type,
                  .peer = peer,
                  .tag = tag});
}

OPENREG_API occlResult_t occlRecv(void* receive, size_t count, occlDataType_t type, int peer,
                                  int tag, occlComm_t comm, orStream_t stream, int* source) {
  return Enqueue("occlRecv", comm, stream,
                 {.operation = Operation::kReceive,
                  .receive = receive,
                  .count = count,
                  .type = type,
                  .peer = peer,
                  .tag = tag,
                  .source = source});
}

OPENREG_API occlResult_t occlGroupStart(void) {
  ++group.depth;
  return occlSuccess;
}

OPENREG_API occlResult_t occlGroupEnd(void) {
  if (group.depth == 0) {
    return Return(Error(occlInvalidUsage, "occlGroupEnd: occlGroupStart was not called"));
  }
  if (--group.depth != 0) {
    return occlSuccess;
  }
  const std::vector<Group::Call> calls = std::exchange(group.calls, {});
  const Status failed = std::exchange(group.failed, {});
  // After an error, do not run any call of the group, because the other ranks would wait for all of
  // them.
  return Return(failed.ok() ? Named("occlGroupEnd", LaunchAll(calls)) : failed);
}

}  // extern "C"
}  // namespace openreg::occl
