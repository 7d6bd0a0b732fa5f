// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/local_transport.h"

#include "distributed/arguments.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

// The tag of messages within exchange(). It is negative, because tags of programs are not.
constexpr int kExchangeTag = -2;

const void* data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}
void* mutable_data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
}

}  // namespace

orStream_t LocalTransport::stream() const {
  int device = 0;
  check_occl(occlCommDevice(comm_, &device));
  return current_native_stream(static_cast<c10::DeviceIndex>(device));
}

void LocalTransport::check(occlResult_t result) const {
  if (groups_ == 0) {
    check_occl(result);
  }
}

void LocalTransport::all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  check(occlAllReduce(data(tensor), mutable_data(tensor), count_of(tensor), type_of(tensor),
                      Reduction(op, tensor, comm_), comm_, stream()));
}

void LocalTransport::broadcast(const at::Tensor& output, const at::Tensor& input, int root) {
  check(occlBroadcast(data(input), mutable_data(output), count_of(output), type_of(output), root,
                      comm_, stream()));
}

void LocalTransport::reduce(const at::Tensor& output, const at::Tensor& input,
                            const c10d::ReduceOp& op, int root) {
  check(occlReduce(data(input), mutable_data(output), count_of(input), type_of(input),
                   Reduction(op, input, comm_), root, comm_, stream()));
}

void LocalTransport::all_gather(const at::Tensor& output, const at::Tensor& input) {
  check(occlAllGather(data(input), mutable_data(output), count_of(input), type_of(input), comm_,
                      stream()));
}

void LocalTransport::reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                    const c10d::ReduceOp& op) {
  check(occlReduceScatter(data(input), mutable_data(output), count_of(output), type_of(output),
                          Reduction(op, output, comm_), comm_, stream()));
}

void LocalTransport::all_to_all(const at::Tensor& output, const at::Tensor& input) {
  int ranks = 0;
  check_occl(occlCommCount(comm_, &ranks));
  check(occlAllToAll(data(input), mutable_data(output),
                     count_of(input) / static_cast<size_t>(ranks), type_of(input), comm_,
                     stream()));
}

void LocalTransport::exchange(const std::vector<at::Tensor>& outputs,
                              const std::vector<at::Tensor>& inputs) {
  TransportGroup group(*this);
  for (size_t peer = 0; peer < inputs.size(); ++peer) {
    send(inputs[peer], static_cast<int>(peer), kExchangeTag);
    receive(outputs[peer], static_cast<int>(peer), kExchangeTag, nullptr);
  }
  group.end();
}

void LocalTransport::gather(const at::Tensor& output, const at::Tensor& input, int root) {
  check(occlGather(data(input), mutable_data(output), count_of(input), type_of(input), root, comm_,
                   stream()));
}

void LocalTransport::scatter(const at::Tensor& output, const at::Tensor& input, int root) {
  check(occlScatter(data(input), mutable_data(output), count_of(output), type_of(output), root,
                    comm_, stream()));
}

void LocalTransport::barrier() { check(occlBarrier(comm_, stream())); }

void LocalTransport::send(const at::Tensor& tensor, int peer, int tag) {
  check(occlSend(data(tensor), count_of(tensor), type_of(tensor), peer, tag, comm_, stream()));
}

void LocalTransport::receive(const at::Tensor& tensor, int peer, int tag, int* source) {
  check(occlRecv(mutable_data(tensor), count_of(tensor), type_of(tensor), peer, tag, comm_,
                 stream(), source));
}

void LocalTransport::begin_group() {
  check_occl(occlGroupStart());
  ++groups_;
}

void LocalTransport::end_group() {
  --groups_;
  check_occl(occlGroupEnd());
}

void LocalTransport::drop_group() {
  --groups_;
  // An invalid call makes the end of the group discard all its operations.
  (void)occlBarrier(nullptr, nullptr);
  (void)occlGroupEnd();
}

std::optional<std::string> LocalTransport::ended(occlResult_t* result) const {
  occlResult_t error = occlSuccess;
  const char* text = nullptr;
  (void)occlCommGetAsyncError(comm_, &error, &text);
  if (result != nullptr) {
    *result = error;
  }
  return error == occlSuccess ? std::nullopt : std::optional<std::string>(text);
}

void LocalTransport::set_timeout(std::chrono::milliseconds timeout) {
  check_occl(occlCommSetTimeout(comm_, timeout.count()));
}

void LocalTransport::suspend() { check_occl(occlCommSuspend(comm_)); }

void LocalTransport::resume() { check_occl(occlCommResume(comm_)); }

occlMemoryStats_t LocalTransport::memory_stats() const {
  occlMemoryStats_t stats{};
  check_occl(occlCommMemoryStats(comm_, &stats));
  return stats;
}

}  // namespace openreg
