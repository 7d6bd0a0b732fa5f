// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/occl/communicator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "distributed/occl/data_type.h"

namespace openreg::occl {
namespace {

constexpr uint64_t kMagic = 0x6f63636c00000001;  // "occl", version 1
constexpr auto kDefaultTimeout = std::chrono::minutes(30);

// The internal structure of an occlUniqueId.
struct Id {
  uint64_t magic;
  orIpcFileHandle segment;
};
static_assert(sizeof(Id) <= sizeof(occlUniqueId));

// A segment that this process has created for an id. The process keeps it until all ranks have
// joined.
struct Rendezvous {
  MappedFile file;
  Segment* segment() const { return reinterpret_cast<Segment*>(file.memory()); }
  bool Complete() const {
    const uint32_t ranks = segment()->ranks.load();
    return ranks != 0 && segment()->joined.load() == ranks;
  }
};
std::mutex rendezvous_mutex;
std::vector<Rendezvous>& Rendezvouses() {
  static auto& all = *new std::vector<Rendezvous>;
  return all;
}

}  // namespace

// ---------------------------------------------------------------------------------------- files

MappedFile::MappedFile(MappedFile&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    Reset();
    memory_ = std::exchange(other.memory_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

Status MappedFile::Create(size_t size, orIpcFileHandle* handle) {
  Reset();
  void* memory = nullptr;
  if (const orError_t error = orIpcCreateFile(handle, &memory, size); error != orSuccess) {
    return DeviceStatus(error);
  }
  memory_ = static_cast<unsigned char*>(memory);
  size_ = size;
  return {};
}

Status MappedFile::Map(const orIpcFileHandle& handle) {
  Reset();
  void* memory = nullptr;
  if (const orError_t error = orIpcMapFile(&memory, &size_, &handle); error != orSuccess) {
    return error == orErrorProcessEnded ? Error(occlRemoteError, orGetLastErrorDetail())
                                        : DeviceStatus(error);
  }
  memory_ = static_cast<unsigned char*>(memory);
  return {};
}

void MappedFile::Reset() {
  if (memory_ != nullptr) {
    (void)orIpcUnmapFile(memory_);
    memory_ = nullptr;
  }
}

// ------------------------------------------------------------------------------ beginning and end

Status Communicator::MakeId(occlUniqueId* id) {
  Id content{kMagic, {}};
  Rendezvous made;
  if (const Status status = made.file.Create(sizeof(Segment), &content.segment); !status.ok()) {
    return status;
  }
  *id = {};
  std::memcpy(id->internal, &content, sizeof(content));
  const std::lock_guard lock(rendezvous_mutex);
  std::erase_if(Rendezvouses(), [](const Rendezvous& known) { return known.Complete(); });
  Rendezvouses().push_back(std::move(made));
  return {};
}

Status Communicator::Join(const occlUniqueId& id, int ranks, int rank, const occlConfig_t& config,
                          std::shared_ptr<Communicator>* joined) {
  WatchExit();
  Id content;
  std::memcpy(&content, id.internal, sizeof(content));
  if (content.magic != kMagic) {
    return Error(occlInvalidArgument,
                 "the id is not from occlGetUniqueId: pass its bytes unchanged to all ranks");
  }
  std::shared_ptr<Communicator> self(new Communicator);
  self->rank_ = rank;
  self->ranks_ = ranks;
  self->process_ = getpid();
  if (config.labels != nullptr) {
    self->labels_.assign(config.labels, config.labels + ranks);
  }
  self->timeout_ = config.timeout_ms > 0 ? config.timeout_ms
                                         : std::chrono::milliseconds(kDefaultTimeout).count();
  self->messages_.resize(static_cast<size_t>(ranks));
  if (const orError_t error = orGetDevice(&self->device_); error != orSuccess) {
    return DeviceStatus(error);
  }
  if (Status status = self->file_.Map(content.segment); !status.ok()) {
    status.text =
        "the process that created the id has exited or is on another machine: " + status.text;
    return status;
  }
  Segment& segment = *self->segment();
  uint32_t known = 0;
  if (!segment.ranks.compare_exchange_strong(known, static_cast<uint32_t>(ranks)) &&
      known != static_cast<uint32_t>(ranks)) {
    return Error(occlInvalidUsage, self->Name(rank) + " was created with " + std::to_string(ranks) +
                                       " ranks, but another rank with " + std::to_string(known) +
                                       ": all ranks must pass the same number");
  }
  RankState& state = segment.states[rank];
  if (const orError_t error = orIpcGetDeviceFile(&state.device, self->device_);
      error != orSuccess) {
    return DeviceStatus(error);
  }
  uint32_t absent = RankState::kAbsent;
  if (!state.presence.compare_exchange_strong(absent, RankState::kJoined)) {
    return Error(occlInvalidUsage,
                 self->Name(rank) + " has already joined: two processes use the same rank");
  }
  self->Notify();
  const auto missing = [&] {
    for (int other = 0; other < ranks; ++other) {
      if (segment.states[other].presence.load() == RankState::kAbsent) {
        return other;
      }
    }
    return -1;
  };
  if (const Status status =
          self->WaitUntil([&] { return missing() < 0; }, [] { return -1; }, self->Deadline(),
                          [&] { return self->Name(missing()) + " has not joined"; });
      !status.ok()) {
    return self->End(status.result, status.text);
  }
  if (const Status status = self->MapDevices(); !status.ok()) {
    return self->End(status.result, status.text);
  }
  if (const orError_t error = orEventCreate(&self->last_event_); error != orSuccess) {
    return DeviceStatus(error);
  }
  segment.joined.fetch_add(1);
  self->Notify();
  // Wait until all ranks have mapped each other's devices. Otherwise a rank that has its
  // communicator could exit before another rank has mapped its device.
  if (const Status status = self->WaitUntil(
          [&] { return segment.joined.load() == static_cast<uint32_t>(ranks); }, [] { return -1; },
          self->Deadline(), [] { return "not all ranks have mapped each other's devices"; });
      !status.ok()) {
    return self->End(status.result, status.text);
  }
  *joined = std::move(self);
  return {};
}

Communicator::~Communicator() {
  if (getpid() == process_ && last_event_ != nullptr) {
    (void)orEventDestroy(last_event_);
  }
}

Status Communicator::CheckProcess() const {
  return getpid() == process_
             ? Status()
             : Error(occlInvalidUsage,
                     "this communicator belongs to process " + std::to_string(process_) +
                         ", but this process is a fork of it: create a new communicator");
}

void Communicator::Leave() {
  if (getpid() == process_) {
    segment()->states[rank_].presence.store(RankState::kLeft);
    Notify();
  }
}

Status Communicator::End(occlResult_t result, const std::string& text) {
  Failure& failure = segment()->failure;
  uint32_t none = Failure::kNone;
  if (failure.state.compare_exchange_strong(none, Failure::kBeingWritten)) {
    failure.rank = rank_;
    failure.result = result;
    std::snprintf(failure.text, sizeof(failure.text), "%s", text.c_str());
    failure.state.store(Failure::kWritten);
    Notify();
    return Error(result, text);
  }
  const Status ended = Ended();
  return ended.ok() ? Error(result, text) : ended;
}

Status Communicator::Ended() const {
  const Failure& failure = segment()->failure;
  if (failure.state.load(std::memory_order_acquire) != Failure::kWritten) {
    return {};
  }
  if (failure.rank == rank_) {
    return Error(failure.result, failure.text);
  }
  // Timeouts and mismatches affect all ranks, so keep their kind, and that of an abort. Any other
  // failure is reported as an error of the rank that detected it.
  const occlResult_t result = failure.result == occlInvalidUsage || failure.result == occlTimeout
                                  ? failure.result
                              : failure.result == occlAborted ? occlAborted
                                                              : occlRemoteError;
  return Error(result, Name(failure.rank) + " reported: " + failure.text);
}

// --------------------------------------------------------------------------------------- memory

Status Communicator::MapDevices() {
  std::vector<MappedFile> devices(static_cast<size_t>(ranks_));
  for (int rank = 0; rank < ranks_; ++rank) {
    Status status = devices[static_cast<size_t>(rank)].Map(segment()->states[rank].device);
    if (!status.ok()) {
      status.text = Name(rank) + " has exited: " + status.text;
      return status;
    }
  }
  devices_ = std::move(devices);
  return {};
}

Status Communicator::Suspend() {
  const std::unique_lock lock(memory_mutex_);
  if (const Status status = CheckResumed(); !status.ok()) {
    return status;
  }
  {
    const std::lock_guard run(run_mutex_);
    const Descriptor descriptor{Operation::kSuspend, occlByte, occlSum, -1, 0, 0, 0, {}};
    if (const Status status = CheckedBarrier(descriptor, Deadline()); !status.ok()) {
      return status;
    }
  }
  // From here on, no rank reads a slot or a device, because all ranks have finished their
  // operations.
  suspended_ = true;
  devices_.clear();
  void* const slots = segment()->slots[rank_];
  if (madvise(slots, sizeof(segment()->slots[rank_]), MADV_REMOVE) != 0) {
    return Error(occlSystemError, std::string("madvise: ") + std::strerror(errno));
  }
  return {};
}

Status Communicator::Resume() {
  const std::unique_lock lock(memory_mutex_);
  if (!suspended_) {
    return Error(occlInvalidUsage, "the communicator is not suspended: call occlCommSuspend first");
  }
  if (const Status status = MapDevices(); !status.ok()) {
    return End(status.result, status.text);
  }
  suspended_ = false;
  return {};
}

Status Communicator::CheckResumed() const {
  return suspended_
             ? Error(occlInvalidUsage, "the communicator is suspended: call occlCommResume first")
             : Status();
}

occlMemoryStats_t Communicator::MemoryStats() {
  const std::shared_lock lock(memory_mutex_);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto resident = [page](void* memory, size_t bytes) {
    std::vector<unsigned char> pages((bytes + page - 1) / page);
    if (mincore(memory, bytes, pages.data()) != 0) {
      return size_t{0};
    }
    const auto is_resident = [](unsigned char one) { return (one & 1) != 0; };
    return static_cast<size_t>(std::count_if(pages.begin(), pages.end(), is_resident)) * page;
  };
  occlMemoryStats_t stats{};
  stats.persistent = resident(segment(), offsetof(Segment, slots));
  stats.suspendable = resident(segment()->slots[rank_], sizeof(segment()->slots[rank_]));
  for (const MappedFile& device : devices_) {
    stats.mapped += device.size();
  }
  stats.suspended = suspended_ ? 1 : 0;
  return stats;
}

// ---------------------------------------------------------------------------------- enqueueing

Status Communicator::OrderAfterLast(orStream_t stream, bool in_order) {
  orStreamCaptureStatus capture = orStreamCaptureStatusNone;
  if (const orError_t error = orStreamGetCaptureInfo(stream, &capture, nullptr);
      error != orSuccess) {
    return DeviceStatus(error);
  }
  captured_ = capture != orStreamCaptureStatusNone;
  return in_order && has_last_ && !captured_ && stream != last_stream_
             ? DeviceStatus(orStreamWaitEvent(stream, last_event_, 0))
             : Status();
}

void Communicator::AddFinished(void* batch, void (*drop)(void*)) {
  const std::lock_guard lock(finished_mutex_);
  finished_.emplace_back(batch, drop);
}

void Communicator::DropFinished() {
  std::vector<std::pair<void*, void (*)(void*)>> finished;
  {
    const std::lock_guard lock(finished_mutex_);
    finished.swap(finished_);
  }
  for (const auto& [batch, drop] : finished) {
    drop(batch);
  }
}

Status Communicator::RecordLast(orStream_t stream) {
  if (captured_) {
    return {};
  }
  last_stream_ = stream;
  has_last_ = true;
  return DeviceStatus(orEventRecord(last_event_, stream));
}

occlRedOp_t Communicator::AddScale(occlDataType_t type, const unsigned char* scalar) {
  Scale scale{type, {}};
  std::memcpy(scale.bytes, scalar, TypeSize(type));
  scales_[next_scale_] = scale;
  return static_cast<occlRedOp_t>(next_scale_++);
}

bool Communicator::RemoveScale(occlRedOp_t op) { return scales_.erase(op) != 0; }

const unsigned char* Communicator::FindScale(occlRedOp_t op, occlDataType_t* type) const {
  const auto found = scales_.find(op);
  if (found == scales_.end()) {
    return nullptr;
  }
  *type = found->second.type;
  return found->second.bytes;
}

}  // namespace openreg::occl
