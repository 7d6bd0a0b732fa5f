// SPDX-License-Identifier: BSD-3-Clause
//
// collectives.cc - the operations of ProcessGroupOCCL: each checks its tensors and calls occl.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

#include <string>
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <utility>

#include "distributed/arguments.h"
#include "distributed/process_group.h"
#include "runtime/c10/device.h"
#include "runtime/c10/stream.h"

namespace openreg {

using c10d::OpType;
using c10d::ReduceOp;

namespace {

const void* data(const at::Tensor& tensor) { return tensor.const_data_ptr(); }
void* mutable_data(const at::Tensor& tensor) { return tensor.mutable_data_ptr(); }

}  // namespace

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::broadcast(std::vector<at::Tensor>& tensors,
                                                           const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = only_tensor("broadcast", tensors);
  const auto root = static_cast<int>(options.rootRank);
  return run(
      OpType::BROADCAST, "occl:broadcast", options.asyncOp, {tensor}, {tensor},
      [=](auto comm, auto stream, auto&) {
        return occlBroadcast(data(tensor), mutable_data(tensor), count_of(tensor), type_of(tensor),
                             root, comm, stream);
      },
      root);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::allreduce(std::vector<at::Tensor>& tensors,
                                                           const c10d::AllreduceOptions& options) {
  const at::Tensor tensor = only_tensor("all_reduce", tensors);
  const ReduceOp op = options.reduceOp;
  return run(OpType::ALLREDUCE, "occl:all_reduce", options.asyncOp, {tensor}, {tensor},
             [=](auto comm, auto stream, auto&) {
               return occlAllReduce(data(tensor), mutable_data(tensor), count_of(tensor),
                                    type_of(tensor), Reduction(op, tensor, comm), comm, stream);
             });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::allreduce_coalesced(
    std::vector<at::Tensor>& tensors, const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "occl: all_reduce_coalesced got no tensors");
  for (const at::Tensor& tensor : tensors) {
    check_tensor("all_reduce_coalesced", tensor);
  }
  const ReduceOp op = options.reduceOp;
  return run(OpType::ALLREDUCE_COALESCED, "occl:allreduce_coalesced", options.asyncOp, tensors,
             tensors, [=](auto comm, auto stream, auto&) {
               OcclGroup group;
               for (const at::Tensor& tensor : tensors) {
                 (void)occlAllReduce(data(tensor), mutable_data(tensor), count_of(tensor),
                                     type_of(tensor), Reduction(op, tensor, comm), comm, stream);
               }
               return group.end();
             });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::reduce(std::vector<at::Tensor>& tensors,
                                                        const c10d::ReduceOptions& options) {
  const at::Tensor tensor = only_tensor("reduce", tensors);
  const ReduceOp op = options.reduceOp;
  const auto root = static_cast<int>(options.rootRank);
  return run(
      OpType::REDUCE, "occl:reduce", options.asyncOp, {tensor}, {tensor},
      [=](auto comm, auto stream, auto&) {
        return occlReduce(data(tensor), mutable_data(tensor), count_of(tensor), type_of(tensor),
                          Reduction(op, tensor, comm), root, comm, stream);
      },
      root);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  check_gathered("all_gather_into_tensor", input, output, getSize());
  return run(OpType::_ALLGATHER_BASE, "occl:_all_gather_base", options.asyncOp, {input}, {output},
             [=](auto comm, auto stream, auto&) {
               return occlAllGather(data(input), mutable_data(output), count_of(input),
                                    type_of(input), comm, stream);
             });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::allgather(
    std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::AllgatherOptions& options) {
  const at::Tensor input = only_tensor("all_gather", inputs);
  const auto size = static_cast<size_t>(getSize());
  TORCH_CHECK_VALUE(outputs.size() == 1 && outputs[0].size() == size,
                    "occl: all_gather takes a list of ", size, " outputs");
  const std::vector<at::Tensor> to = outputs[0];
  for (const at::Tensor& output : to) {
    check_alike("all_gather", input, output);
  }
  check_same("all_gather", input, to[static_cast<size_t>(getRank())]);
  // As broadcasts: outputs need not lie one after the other, nor be of one size.
  return run(OpType::ALLGATHER, "occl:all_gather", options.asyncOp, {input}, to,
             [=, rank = getRank()](auto comm, auto stream, auto&) {
               OcclGroup group;
               for (size_t root = 0; root < size; ++root) {
                 const bool mine = static_cast<int>(root) == rank;
                 (void)occlBroadcast(mine ? data(input) : nullptr, mutable_data(to[root]),
                                     count_of(to[root]), type_of(to[root]), static_cast<int>(root),
                                     comm, stream);
               }
               return group.end();
             });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::allgather_into_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(),
                    "occl: all_gather_into_tensor_coalesced needs as many outputs as inputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_gathered("all_gather_into_tensor_coalesced", inputs[i], outputs[i], getSize());
  }
  return run(OpType::COALESCED, "occl:all_gather_into_tensor_coalesced", options.asyncOp, inputs,
             outputs, [=](auto comm, auto stream, auto&) {
               OcclGroup group;
               for (size_t i = 0; i < inputs.size(); ++i) {
                 (void)occlAllGather(data(inputs[i]), mutable_data(outputs[i]), count_of(inputs[i]),
                                     type_of(inputs[i]), comm, stream);
               }
               return group.end();
             });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::gather(
    std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::GatherOptions& options) {
  TORCH_CHECK(!coalesced_.has_value(), "occl: gather cannot be coalesced: call it by itself");
  const at::Tensor input = only_tensor("gather", inputs);
  const auto root = static_cast<int>(options.rootRank);
  const bool is_root = root == getRank();
  TORCH_CHECK_VALUE(is_root
                        ? outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(getSize())
                        : outputs.empty(),
                    "occl: gather takes a list of ", getSize(),
                    " outputs on the destination rank, and none elsewhere");
  check_contiguous("gather", input);
  std::vector<at::Tensor> to = is_root ? outputs[0] : std::vector<at::Tensor>();
  for (const at::Tensor& output : to) {
    check_same("gather", input, output);
  }
  const auto flat =
      is_root ? at::empty({getSize() * input.numel()}, input.options()) : at::Tensor();
  return run(OpType::GATHER, "occl:gather", options.asyncOp, {input}, to,
             [=, size = getSize()](auto comm, auto stream, auto&) {
               const occlResult_t result =
                   occlGather(data(input), is_root ? mutable_data(flat) : nullptr, count_of(input),
                              type_of(input), root, comm, stream);
               if (result == occlSuccess && is_root) {
                 const c10::StreamGuard guard(external_stream(stream, input.get_device()));
                 flat.record_stream(guard.current_stream());
                 const std::vector<at::Tensor> parts = flat.chunk(size);
                 for (size_t i = 0; i < to.size(); ++i) {
                   to[i].copy_(flat.numel() != 0 ? parts[i].view_as(to[i]) : to[i]);
                 }
               }
               return result;
             });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::scatter(
    std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
    const c10d::ScatterOptions& options) {
  const at::Tensor output = only_tensor("scatter", outputs);
  check_contiguous("scatter", output);
  const auto root = static_cast<int>(options.rootRank);
  const bool is_root = root == getRank();
  TORCH_CHECK_VALUE(is_root
                        ? inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(getSize())
                        : inputs.empty(),
                    "occl: scatter takes a list of ", getSize(),
                    " inputs on the source rank, and none elsewhere");
  at::Tensor flat;
  if (is_root) {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& input : inputs[0]) {
      check_same("scatter", input, output);
      parts.push_back(input.reshape({-1}));
    }
    flat = at::cat(parts);
  }
  return run(
      OpType::SCATTER, "occl:scatter", options.asyncOp,
      is_root ? std::vector<at::Tensor>{flat} : std::vector<at::Tensor>{}, {output},
      [=](auto comm, auto stream, auto&) {
        return occlScatter(is_root ? data(flat) : nullptr, mutable_data(output), count_of(output),
                           type_of(output), root, comm, stream);
      },
      root);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  check_scattered("reduce_scatter_tensor", input, output, getSize());
  const ReduceOp op = options.reduceOp;
  return run(OpType::_REDUCE_SCATTER_BASE, "occl:_reduce_scatter_base", options.asyncOp, {input},
             {output}, [=](auto comm, auto stream, auto&) {
               return occlReduceScatter(data(input), mutable_data(output), count_of(output),
                                        type_of(output), Reduction(op, output, comm), comm, stream);
             });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::reduce_scatter(
    std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
    const c10d::ReduceScatterOptions& options) {
  const at::Tensor output = only_tensor("reduce_scatter", outputs);
  const auto size = static_cast<size_t>(getSize());
  TORCH_CHECK_VALUE(inputs.size() == 1 && inputs[0].size() == size,
                    "occl: reduce_scatter takes a list of ", size, " inputs");
  const std::vector<at::Tensor> from = inputs[0];
  for (const at::Tensor& input : from) {
    check_alike("reduce_scatter", input, output);
  }
  check_same("reduce_scatter", from[static_cast<size_t>(getRank())], output);
  const ReduceOp op = options.reduceOp;
  return run(OpType::REDUCE_SCATTER, "occl:reduce_scatter", options.asyncOp, from, {output},
             [=, rank = getRank()](auto comm, auto stream, auto&) {
               OcclGroup group;
               for (size_t root = 0; root < size; ++root) {
                 const bool mine = static_cast<int>(root) == rank;
                 (void)occlReduce(data(from[root]), mine ? mutable_data(output) : nullptr,
                                  count_of(from[root]), type_of(from[root]),
                                  Reduction(op, from[root], comm), static_cast<int>(root), comm,
                                  stream);
               }
               return group.end();
             });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::reduce_scatter_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(),
                    "occl: reduce_scatter_tensor_coalesced needs as many outputs as inputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_scattered("reduce_scatter_tensor_coalesced", inputs[i], outputs[i], getSize());
  }
  const ReduceOp op = options.reduceOp;
  return run(OpType::COALESCED, "occl:reduce_scatter_tensor_coalesced", options.asyncOp, inputs,
             outputs, [=](auto comm, auto stream, auto&) {
               OcclGroup group;
               for (size_t i = 0; i < inputs.size(); ++i) {
                 (void)occlReduceScatter(data(inputs[i]), mutable_data(outputs[i]),
                                         count_of(outputs[i]), type_of(outputs[i]),
                                         Reduction(op, outputs[i], comm), comm, stream);
               }
               return group.end();
             });
}

namespace {

// Tags of programs are not negative.
constexpr int kAllToAllTag = -2;

// All-to-all of parts of any sizes, as messages.
occlResult_t exchange(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                      occlComm_t comm, orStream_t stream) {
  OcclGroup group;
  for (size_t peer = 0; peer < inputs.size(); ++peer) {
    const auto rank = static_cast<int>(peer);
    (void)occlSend(data(inputs[peer]), count_of(inputs[peer]), type_of(inputs[peer]), rank,
                   kAllToAllTag, comm, stream);
    (void)occlRecv(mutable_data(outputs[peer]), count_of(outputs[peer]), type_of(outputs[peer]),
                   rank, kAllToAllTag, comm, stream, nullptr);
  }
  return group.end();
}

}  // namespace

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::alltoall_base(
    at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
    std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& options) {
  const bool even = output_sizes.empty() && input_sizes.empty();
  (even ? check_same : check_alike)("all_to_all_single", input, output);
  check_contiguous("all_to_all_single", input);
  check_contiguous("all_to_all_single", output);
  if (even) {
    TORCH_CHECK_VALUE(input.numel() % getSize() == 0, "occl: all_to_all_single: ", input.numel(),
                      " elements are not divisible by ", getSize(), " ranks");
    return run(OpType::ALLTOALL_BASE, "occl:all_to_all", options.asyncOp, {input}, {output},
               [=, size = static_cast<size_t>(getSize())](auto comm, auto stream, auto&) {
                 return occlAllToAll(data(input), mutable_data(output), count_of(input) / size,
                                     type_of(input), comm, stream);
               });
  }
  c10d::checkSplitSizes(input_sizes, input, getSize());
  c10d::checkSplitSizes(output_sizes, output, getSize());
  const auto parts = [&](const at::Tensor& tensor, const std::vector<int64_t>& sizes) {
    const int64_t equal = tensor.dim() == 0 ? 0 : tensor.size(0) / getSize();
    std::vector<at::Tensor> all;
    for (int64_t rank = 0, begin = 0; rank < getSize(); ++rank) {
      const int64_t size = sizes.empty() ? equal : sizes[static_cast<size_t>(rank)];
      all.push_back(tensor.narrow(0, begin, size));
      begin += size;
    }
    return all;
  };
  return run(OpType::ALLTOALL_BASE, "occl:all_to_all", options.asyncOp, {input}, {output},
             [to = parts(output, output_sizes), from = parts(input, input_sizes)](
                 auto comm, auto stream, auto&) { return exchange(to, from, comm, stream); });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::alltoall(std::vector<at::Tensor>& outputs,
                                                          std::vector<at::Tensor>& inputs,
                                                          const c10d::AllToAllOptions& options) {
  const auto size = static_cast<size_t>(getSize());
  TORCH_CHECK_VALUE(outputs.size() == size && inputs.size() == size,
                    "occl: all_to_all takes lists of ", size, " tensors");
  for (const std::vector<at::Tensor>* tensors : {&outputs, &inputs}) {
    for (const at::Tensor& tensor : *tensors) {
      check_alike("all_to_all", inputs[0], tensor);
    }
  }
  return run(
      OpType::ALLTOALL, "occl:all_to_all", options.asyncOp, inputs, outputs,
      [=](auto comm, auto stream, auto&) { return exchange(outputs, inputs, comm, stream); });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::barrier(const c10d::BarrierOptions& options) {
  // All ranks have to choose a device of the same communicator.
  const c10::DeviceIndex index =
      !options.device_ids.empty()      ? static_cast<c10::DeviceIndex>(options.device_ids[0])
      : getBoundDeviceId().has_value() ? getBoundDeviceId()->index()
                                       : first_device().value_or(current_device());
  const at::Tensor token = at::empty({0}, at::TensorOptions().device(kOpenRegType, index));
  return run(OpType::BARRIER, "occl:barrier", options.asyncOp, {token}, {},
             [](auto comm, auto stream, auto&) { return occlBarrier(comm, stream); });
}

// ------------------------------------------------------------------------------- point to point

namespace {

// "occl:send 0->1", as torch's flight recorder and its analysis have it.
std::string message(const char* kind, int rank, const char* arrow, int peer) {
  return std::string("occl:") + kind + " " + std::to_string(rank) + arrow + std::to_string(peer);
}

}  // namespace

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::send(std::vector<at::Tensor>& tensors, int peer,
                                                      int tag) {
  const at::Tensor tensor = only_tensor("send", tensors);
  return run(
      OpType::SEND, message("send", getRank(), "->", peer), /*async=*/true, {tensor}, {tensor},
      [=](auto comm, auto stream, auto&) {
        return occlSend(data(tensor), count_of(tensor), type_of(tensor), peer, tag, comm, stream);
      },
      peer);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::recv(std::vector<at::Tensor>& tensors, int peer,
                                                      int tag) {
  const at::Tensor tensor = only_tensor("recv", tensors);
  return run(
      OpType::RECV, message("recv", getRank(), "<-", peer), /*async=*/true, {tensor}, {tensor},
      [=](auto comm, auto stream, auto&) {
        return occlRecv(mutable_data(tensor), count_of(tensor), type_of(tensor), peer, tag, comm,
                        stream, nullptr);
      },
      peer);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::recvAnysource(std::vector<at::Tensor>& tensors,
                                                               int tag) {
  const at::Tensor tensor = only_tensor("recv", tensors);
  return run(OpType::RECVANYSOURCE, message("recv", getRank(), "<-", occlAnyRank), /*async=*/true,
             {tensor}, {tensor}, [=](auto comm, auto stream, WorkOCCL& work) {
               return occlRecv(mutable_data(tensor), count_of(tensor), type_of(tensor), occlAnyRank,
                               tag, comm, stream, &work.events()->source);
             });
}

}  // namespace openreg
