// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/process_group.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/exception.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <sstream>
#include <string_view>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "distributed/arguments.h"
#include "distributed/local_transport.h"
#include "distributed/machine_transport.h"
#include "distributed/rendezvous.h"
#include "runtime/c10/device.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

using c10d::OpType;

int64_t elements_of(const std::vector<at::Tensor>& tensors) {
  int64_t all = 0;
  for (const at::Tensor& tensor : tensors) {
    all += tensor.numel();
  }
  return all;
}

// The prefix of operation names.
constexpr std::string_view kPrefix = "occl:";

// Returns an operation's name in profiles. It is the name that ProcessGroupNCCL uses, because tools
// search for that name.
std::string collective_name(OpType type, const std::string& name) {
  switch (type) {
    case OpType::ALLREDUCE:
      return "allreduce";
    case OpType::_ALLGATHER_BASE:
      return "_allgather_base";
    default:
      return name.substr(kPrefix.size(), name.find(' ') - kPrefix.size());
  }
}

}  // namespace

ProcessGroupOCCL::ProcessGroupOCCL(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                   c10::intrusive_ptr<Options> options)
    : Backend(rank, size), store_(std::move(store)), options_(std::move(options)) {
  init();
}

ProcessGroupOCCL::~ProcessGroupOCCL() {
  // If the program drops the group without shutdown(), for example at process exit, end the pending
  // operations. Otherwise they might wait for ranks that never arrive.
  retire();
  if (!pending_.empty()) {
    abort();
  }
  // Destroy the communicators before the events, because the device writes to the events until its
  // operations have finished.
  connections_.clear();
  for (const Pending& pending : pending_) {
    for (const RecordedOperation& operation : pending.records) {
      retire_operation(*recorded_, operation, /*passed=*/false, /*timed=*/false);
    }
  }
}

void ProcessGroupOCCL::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  const std::lock_guard lock(mutex_);
  for (const auto& [device, connection] : connections_) {
    connection.transport->set_timeout(timeout);
  }
}

occlComm_t ProcessGroupOCCL::connect(c10d::Store& store, const std::string& key,
                                     const std::vector<int>& ranks, size_t position) {
  const occlConfig_t config{options_->timeout.count(), ranks.data()};
  occlUniqueId id;
  if (position == 0) {
    check_occl(occlGetUniqueId(&id));
    std::vector<uint8_t> bytes(sizeof(id));
    std::memcpy(bytes.data(), &id, sizeof(id));
    store.set(key, bytes);
  } else {
    store.wait({key}, options_->timeout);
    const std::vector<uint8_t> bytes = store.get(key);
    TORCH_CHECK_WITH(DistBackendError, bytes.size() == sizeof(id),
                     "occl: the store has no valid communicator id at ", key, ": found ",
                     bytes.size(), " bytes, expected ", sizeof(id));
    std::memcpy(&id, bytes.data(), sizeof(id));
  }
  occlComm_t comm = nullptr;
  check_occl(occlCommInitRankConfig(&comm, static_cast<int>(ranks.size()), id,
                                    static_cast<int>(position), &config));
  return comm;
}

std::shared_ptr<Transport> ProcessGroupOCCL::make_transport(c10::Device device,
                                                            const std::string& key) {
  std::ostringstream what;
  what << "group " << getGroupUid() << ", rank " << getRank() << ", first collective on " << device
       << " (" << key << "; each rank numbers its devices in the order of their first use)";
  const c10::intrusive_ptr<c10d::Store> store = separate_client(store_);
  const RendezvousResult rendezvous = run_rendezvous(
      *store, key, getRank(), getSize(), machine_identity(), options_->timeout, what.str());
  const Topology topology(rendezvous.notes, getRank());
  const std::string id_key = rendezvous.prefix + "/" + std::to_string(topology.machine);
  auto local = std::make_unique<LocalTransport>(
      connect(*store, id_key, topology.local(), topology.position));
  std::shared_ptr<Transport> transport;
  if (topology.machines.size() == 1) {
    transport = std::move(local);
  } else {
    auto prefixed = c10::make_intrusive<c10d::PrefixStore>(rendezvous.prefix + "/gloo/", store);
    transport = std::make_shared<MachineTransport>(
        device, topology, std::move(local),
        make_gloo(std::move(prefixed), getRank(), getSize(), options_->timeout), options_->timeout);
  }
  // All ranks are connected, so all ranks have read the id.
  if (topology.leads()) {
    store->deleteKey(id_key);
  }
  delete_rendezvous_keys(*store, key, rendezvous, getRank());
  return transport;
}

ProcessGroupOCCL::Connection ProcessGroupOCCL::connection(c10::Device device) {
  size_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK_WITH(DistBackendError, ended_.empty(), "occl: process group ", getGroupUid(), " ",
                     ended_);
    if (const auto found = connections_.find(device.index()); found != connections_.end()) {
      return found->second;
    }
    number = connections_.size();
  }
  const DeviceScope scope(device.index());
  Connection made{make_transport(device, "occl/" + std::to_string(number)),
                  pooled_stream(device.index(), stream_priority())};
  const std::lock_guard lock(mutex_);
  TORCH_CHECK_WITH(DistBackendError, ended_.empty(), "occl: process group ", getGroupUid(), " ",
                   ended_);
  if (!first_device_.has_value()) {
    first_device_ = device.index();
  }
  return connections_.emplace(device.index(), std::move(made)).first->second;
}

std::optional<c10::DeviceIndex> ProcessGroupOCCL::first_device() {
  const std::lock_guard lock(mutex_);
  return first_device_;
}

std::map<c10::DeviceIndex, ProcessGroupOCCL::Connection> ProcessGroupOCCL::connections() {
  const std::lock_guard lock(mutex_);
  return connections_;
}

void ProcessGroupOCCL::eagerConnectSingleDevice(at::Device device) { (void)connection(device); }

GroupLabel ProcessGroupOCCL::label() const {
  const std::vector<uint64_t>& members = options_->global_ranks_in_group;
  return {{getGroupUid(), getGroupDesc()},
          getRank(),
          getSize(),
          members.empty() ? 0 : static_cast<int>(members[0]),
          members.size() < 2 ? 1 : static_cast<int>(members[1] - members[0])};
}

void ProcessGroupOCCL::retire() {
  const auto retire_one = [this](const Pending& pending) {
    for (const RecordedOperation& operation : pending.records) {
      retire_operation(*recorded_, operation, /*passed=*/true, pending.timed);
    }
  };
  while (!pending_.empty() && pending_.front().events->passed()) {
    retire_one(pending_.front());
    pending_.pop_front();
  }
  // A message may wait for a long time while later operations finish, so check the later operations
  // as well.
  if (pending_.size() >= retire_all_at_) {
    std::erase_if(pending_, [&](const Pending& pending) {
      const bool passed = pending.events->passed();
      if (passed) {
        retire_one(pending);
      }
      return passed;
    });
    retire_all_at_ = std::max(2 * pending_.size(), kRetireAllAt);
  }
}

void ProcessGroupOCCL::record(const WorkOCCL::Operation& operation, uint64_t sequence,
                              Pending& pending) {
  if (!recorded_.has_value()) {
    std::vector<uint64_t> members = options_->global_ranks_in_group;
    if (members.empty()) {  // an empty list means all ranks
      members.resize(static_cast<size_t>(getSize()));
      std::iota(members.begin(), members.end(), 0);
    }
    recorded_ = record_group(getGroupUid(), getGroupDesc(), members);
  }
  RecordedOperation recorded{operation.name.substr(kPrefix.size()), c10d::isP2POp(operation.type),
                             sequence, ++operations_};
  record_operation(*recorded_, recorded, operation.inputs, operation.outputs, *pending.events,
                   options_->timeout);
  pending.records.push_back(std::move(recorded));
}

std::vector<MessageStreams::Key> ProcessGroupOCCL::messages_of(
    const WorkOCCL::Operation& operation, const std::vector<WorkOCCL::Operation>& parts) {
  std::vector<MessageStreams::Key> keys;
  const auto add = [&](const WorkOCCL::Operation& one) {
    if (c10d::isP2POp(one.type)) {
      keys.push_back({one.device.index(), one.type == OpType::SEND, one.peer});
    }
  };
  add(operation);
  std::for_each(parts.begin(), parts.end(), add);
  return keys;
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::run(OpType type, const std::string& name,
                                                     bool async, std::vector<at::Tensor> inputs,
                                                     std::vector<at::Tensor> outputs,
                                                     const Call& call, int peer,
                                                     std::vector<WorkOCCL::Operation> parts) {
  const c10::Device device = inputs.empty() ? outputs.at(0).device() : inputs[0].device();
  if (coalesced_.has_value()) {
    TORCH_CHECK(!coalesced_->device.has_value() || *coalesced_->device == device, name,
                ": coalesced operations must all use the same device, but got ", device, " after ",
                *coalesced_->device);
    coalesced_->device = device;
    coalesced_->async = coalesced_->async || async;
    coalesced_->inputs.insert(coalesced_->inputs.end(), inputs.begin(), inputs.end());
    coalesced_->outputs.insert(coalesced_->outputs.end(), outputs.begin(), outputs.end());
    coalesced_->calls.push_back(call);
    coalesced_->operations.push_back(
        {type, name, 0, device, std::move(inputs), std::move(outputs), peer});
    return nullptr;
  }
  const bool point_to_point =
      c10d::isP2POp(type) ||
      (!parts.empty() && std::all_of(parts.begin(), parts.end(),
                                     [](const auto& part) { return c10d::isP2POp(part.type); }));
  const uint64_t sequence = point_to_point ? ++point_to_point_ : ++collectives_;
  const std::vector<int64_t> no_sizes;
  const GroupLabel label = this->label();
  // Record the profiler event that contains the name, sizes and group of the collective.
  RECORD_PARAM_COMMS_DATA_WITH_ASYNC_OP(
      (std::make_tuple(static_cast<int64_t>(sequence), point_to_point)), label.name, inputs,
      outputs, peer >= 0 ? peer : getRank(), collective_name(type, name), elements_of(inputs),
      elements_of(outputs), (inputs.empty() ? outputs : inputs)[0].scalar_type(), no_sizes,
      no_sizes, label.first, label.stride, label.size, async);
  const Connection to = connection(device);
  const DeviceScope scope(device.index());
  const c10::Stream current = current_stream(device.index());
  WorkOCCL::Operation operation{type, name, sequence, device, std::move(inputs), std::move(outputs),
                                peer};
  const std::vector<MessageStreams::Key> messages = messages_of(operation, parts);
  const c10::Stream stream = !async ? current
                             : c10d::isP2POp(type)
                                 ? message_streams_.stream(messages[0], stream_priority())
                                 : to.stream;
  if (async) {
    c10::Event ready(kOpenRegType);
    ready.record(current);
    ready.block(stream);
    // The caller may free the tensors before the operation has run.
    for (const std::vector<at::Tensor>* tensors : {&operation.inputs, &operation.outputs}) {
      for (const at::Tensor& tensor : *tensors) {
        tensor.record_stream(stream);
      }
    }
  }
  const bool capturing = is_capturing(native_stream(stream));
  if (!capturing) {
    // Captured work is not ordered here, because it runs later, and the program must order it.
    message_streams_.follow(messages, stream);
  }
  auto work = c10::make_intrusive<WorkOCCL>(label, operation, to.transport, timed_);
  retire();
  work->begin(stream);
  {
    const c10::StreamGuard on_stream(stream);
    // Operations write to tensors as plain memory, even to parameters and inference tensors.
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    try {
      call(*to.transport, *work);
    } catch (...) {
      if (to.transport->ended().has_value()) {
        dump_flight_recorder_after_failure(getRank());
      }
      throw;
    }
  }
  work->end(stream);
  if (capturing) {
    if (type == OpType::RECVANYSOURCE) {
      captured_.push_back(work->events());
    }
    return work;
  }
  message_streams_.record(messages, stream, work->events());
  if (hook_ != nullptr) {
    hook_thread_->add(work, hook_);
  }
  Pending& pending = pending_.emplace_back(Pending{work->events(), {}, timed_});
  for (const WorkOCCL::Operation& part : parts) {
    record(part, sequence, pending);
  }
  record(operation, sequence, pending);
  return work;
}

void ProcessGroupOCCL::registerOnCompletionHook(
    std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  TORCH_CHECK(hook_ == nullptr,
              "occl: the group already has a completion hook, and it can have only one");
  onCompletionHook_ = hook;
  hook_ = std::make_shared<const CompletionThread::Function>(
      [hook = std::move(hook)](const WorkOCCL& work) { hook(work.info()); });
  hook_thread_ = std::make_unique<CompletionThread>(CompletionThread::Order::kOfCalls);
  timed_ = true;
}

void ProcessGroupOCCL::waitForPendingWorks() {
  TORCH_CHECK(hook_ != nullptr,
              "occl: the group has no completion hook to wait for: call "
              "_register_on_completion_hook first");
  hook_thread_->wait();
}

void ProcessGroupOCCL::startCoalescing() {
  TORCH_CHECK(!coalesced_.has_value(),
              "occl: startCoalescing was already called: call endCoalescing first");
  coalesced_.emplace();
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::endCoalescing() {
  TORCH_CHECK(coalesced_.has_value(),
              "occl: endCoalescing was called without startCoalescing: call startCoalescing first");
  Coalesced all = *std::exchange(coalesced_, std::nullopt);
  if (all.calls.empty()) {
    return nullptr;
  }
  return run(
      OpType::COALESCED, "occl:coalesced", all.async, std::move(all.inputs), std::move(all.outputs),
      [calls = std::move(all.calls)](Transport& transport, WorkOCCL& work) {
        TransportGroup group(transport);
        for (const Call& call : calls) {
          call(transport, work);
        }
        group.end();
      },
      /*peer=*/-1, std::move(all.operations));
}

void ProcessGroupOCCL::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const auto timeout = options.timeout == c10d::kUnsetTimeout ? options_->timeout : options.timeout;
  const std::string prefix = "monitored_barrier/" + std::to_string(++monitored_barriers_) + "/";
  const std::vector<uint8_t> token{1};
  const c10::intrusive_ptr<c10d::Store> store = separate_client(store_);
  if (getRank() != 0) {
    store->set(prefix + std::to_string(getRank()), token);
    store->wait({prefix + "done"}, timeout);
    const std::vector<uint8_t> missing = store->get(prefix + "done");
    TORCH_CHECK_WITH(DistBackendError, missing == token,
                     "occl: monitored_barrier failed; rank 0 reported: ",
                     std::string(missing.begin(), missing.end()));
    return;
  }
  std::string missing;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (int rank = 1; rank < getSize() && (missing.empty() || wait_all_ranks); ++rank) {
    // When waiting for the first late rank has used up the time, only poll the other ranks.
    const auto left = std::max(std::chrono::duration_cast<std::chrono::milliseconds>(
                                   deadline - std::chrono::steady_clock::now()),
                               std::chrono::milliseconds(1));
    try {
      store->wait({prefix + std::to_string(rank)}, left);
    } catch (const std::exception&) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  if (missing.empty()) {
    store->set(prefix + "done", token);
    return;
  }
  const std::string text = "rank " + missing + " did not reach monitored_barrier within " +
                           std::to_string(timeout.count()) + " ms";
  store->set(prefix + "done", std::vector<uint8_t>(text.begin(), text.end()));
  TORCH_CHECK_WITH(DistBackendError, false, "occl: ", text);
}

// ------------------------------------------------------------------------------- other groups

std::shared_ptr<c10::Allocator> ProcessGroupOCCL::getMemAllocator() {
  // The pointer owns nothing, because torch's registry keeps the allocator until the process exits.
  return {std::shared_ptr<void>(), c10::GetAllocator(kOpenRegType)};
}

at::Tensor ProcessGroupOCCL::allocateTensor(long size, at::TensorOptions options) {
  return at::empty({size}, options);
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupOCCL::merge(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<c10d::Backend::Options>& options, const int& rank, const int& size) {
  auto own =
      c10::make_intrusive<Options>(options != nullptr ? options->timeout : options_->timeout);
  if (options != nullptr) {
    own->group_name = options->group_name;
    own->global_ranks_in_group = options->global_ranks_in_group;
  }
  own->is_high_priority_stream = options_->is_high_priority_stream;
  return c10::make_intrusive<ProcessGroupOCCL>(store, rank, size, std::move(own));
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupOCCL::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto me = std::find(ranks.begin(), ranks.end(), getRank());
  return me == ranks.end() ? nullptr
                           : merge(store, options, static_cast<int>(me - ranks.begin()),
                                   static_cast<int>(ranks.size()));
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupOCCL::shrink(
    const std::vector<int64_t>& excluded, int flags,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  constexpr int kAbort = 1;  // as in NCCL, abort operations in progress instead of waiting
  std::vector<int> ranks;
  for (int rank = 0; rank < getSize(); ++rank) {
    if (std::find(excluded.begin(), excluded.end(), rank) == excluded.end()) {
      ranks.push_back(rank);
    }
  }
  TORCH_CHECK_VALUE(!excluded.empty() && !ranks.empty() &&
                        ranks.size() + excluded.size() == static_cast<size_t>(getSize()),
                    "occl: shrink: cannot exclude ", excluded.size(), " of ", getSize(),
                    " ranks: name some, but not all, ranks of the group, each once");
  if ((flags & kAbort) != 0) {
    abort();
  }
  const auto store =
      c10::make_intrusive<c10d::PrefixStore>("shrink" + std::to_string(++shrinks_) + "/", store_);
  auto smaller = split(store, ranks, options != nullptr ? options : getBackendOptions());
  TORCH_CHECK_VALUE(smaller != nullptr, "occl: shrink: rank ", getRank(),
                    " is excluded, so it must not call shrink");
  return smaller;
}

// ------------------------------------------------------------------------------------------ end

c10d::ErrorType ProcessGroupOCCL::getError() {
  const std::lock_guard lock(mutex_);
  for (const auto& [device, connection] : connections_) {
    occlResult_t result = occlSuccess;
    if (connection.transport->ended(&result).has_value()) {
      return result == occlTimeout       ? c10d::ErrorType::TIMEOUT
             : result == occlRemoteError ? c10d::ErrorType::REMOTE_ERROR
                                         : c10d::ErrorType::COMM_ERROR;
    }
  }
  return c10d::ErrorType::SUCCESS;
}

void ProcessGroupOCCL::abort() {
  const std::lock_guard lock(mutex_);
  for (const auto& [device, connection] : connections_) {
    connection.transport->abort("the communicator was aborted");
  }
  ended_ = "was aborted: create a new group";
}

void ProcessGroupOCCL::shutdown() {
  if (getError() != c10d::ErrorType::SUCCESS) {
    dump_flight_recorder_after_failure(getRank());
  }
  {
    const std::lock_guard lock(mutex_);
    ended_ = "was shut down: create a new group";
  }
  // Wait for enqueued operations, even if a Work keeps the communicator alive. The mutex must not
  // be locked during the wait, because abort() locks it to end the wait.
  for (const auto& [device, connection] : connections()) {
    connection.transport->finalize();
  }
  if (hook_ != nullptr) {
    hook_thread_->wait();
  }
  const std::lock_guard lock(mutex_);
  connections_.clear();
}

// ---------------------------------------------------------------------------------------- memory

void ProcessGroupOCCL::suspend() {
  TORCH_CHECK(!coalesced_.has_value(),
              "occl: suspend was called during coalescing: call endCoalescing first");
  for (const auto& [device, connection] : connections()) {
    connection.transport->suspend();
  }
}

void ProcessGroupOCCL::resume() {
  for (const auto& [device, connection] : connections()) {
    connection.transport->resume();
  }
}

std::unordered_map<std::string, uint64_t> ProcessGroupOCCL::getMemoryStats() {
  occlMemoryStats_t sum{};
  for (const auto& [device, connection] : connections()) {
    const occlMemoryStats_t one = connection.transport->memory_stats();
    sum.persistent += one.persistent;
    sum.suspendable += one.suspendable;
    sum.mapped += one.mapped;
    sum.suspended |= one.suspended;
  }
  return {{"total", sum.persistent + sum.suspendable},
          {"persistent", sum.persistent},
          {"suspendable", sum.suspendable},
          {"mapped", sum.mapped},
          {"suspended", static_cast<uint64_t>(sum.suspended)}};
}

}  // namespace openreg
