// SPDX-License-Identifier: BSD-3-Clause
//
// collectives.cc - the operations of ProcessGroupOCCL. Each one checks its tensors and calls the
// transport.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
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

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::broadcast(std::vector<at::Tensor>& tensors,
                                                           const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = only_tensor("broadcast", tensors);
  const auto root = static_cast<int>(options.rootRank);
  return run(
      OpType::BROADCAST, "occl:broadcast", options.asyncOp, {tensor}, {tensor},
      [=](Transport& all, auto&) { all.broadcast(tensor, tensor, root); }, root);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::allreduce(std::vector<at::Tensor>& tensors,
                                                           const c10d::AllreduceOptions& options) {
  const at::Tensor tensor = only_tensor("all_reduce", tensors);
  return run(
      OpType::ALLREDUCE, "occl:all_reduce", options.asyncOp, {tensor}, {tensor},
      [tensor, op = options.reduceOp](Transport& all, auto&) { all.all_reduce(tensor, op); });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::allreduce_coalesced(
    std::vector<at::Tensor>& tensors, const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(),
                    "occl: all_reduce_coalesced got no tensors: pass at least one");
  for (const at::Tensor& tensor : tensors) {
    check_tensor("all_reduce_coalesced", tensor);
  }
  return run(OpType::ALLREDUCE_COALESCED, "occl:allreduce_coalesced", options.asyncOp, tensors,
             tensors, [tensors, op = options.reduceOp](Transport& all, auto&) {
               TransportGroup group(all);
               for (const at::Tensor& tensor : tensors) {
                 all.all_reduce(tensor, op);
               }
               group.end();
             });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::reduce(std::vector<at::Tensor>& tensors,
                                                        const c10d::ReduceOptions& options) {
  const at::Tensor tensor = only_tensor("reduce", tensors);
  const auto root = static_cast<int>(options.rootRank);
  return run(
      OpType::REDUCE, "occl:reduce", options.asyncOp, {tensor}, {tensor},
      [tensor, root, op = options.reduceOp](Transport& all, auto&) {
        all.reduce(tensor, tensor, op, root);
      },
      root);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  check_gathered("all_gather_into_tensor", input, output, getSize());
  return run(OpType::_ALLGATHER_BASE, "occl:_all_gather_base", options.asyncOp, {input}, {output},
             [=](Transport& all, auto&) { all.all_gather(output, input); });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::allgather(
    std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::AllgatherOptions& options) {
  const at::Tensor input = only_tensor("all_gather", inputs);
  const auto size = static_cast<size_t>(getSize());
  TORCH_CHECK_VALUE(outputs.size() == 1 && outputs[0].size() == size,
                    "occl: all_gather needs one list of ", size, " outputs, got ", outputs.size(),
                    " lists, the first with ", outputs.empty() ? 0 : outputs[0].size());
  const std::vector<at::Tensor>& to = outputs[0];
  for (const at::Tensor& output : to) {
    check_compatible("all_gather", input, output);
  }
  check_same("all_gather", input, to[static_cast<size_t>(getRank())]);
  // Use one broadcast per rank, because outputs may be anywhere in memory and differ in size.
  return run(OpType::ALLGATHER, "occl:all_gather", options.asyncOp, {input}, to,
             [=](Transport& all, auto&) {
               TransportGroup group(all);
               for (size_t root = 0; root < size; ++root) {
                 all.broadcast(to[root], input, static_cast<int>(root));
               }
               group.end();
             });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::allgather_coalesced(
    std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::AllgatherOptions& options) {
  const auto size = static_cast<size_t>(getSize());
  TORCH_CHECK_VALUE(
      outputs.size() == size && !inputs.empty(),
      "occl: all_gather_coalesced needs at least one input and a list of outputs for each of ",
      size, " ranks, got ", inputs.size(), " inputs and ", outputs.size(), " lists");
  std::vector<at::Tensor> all_outputs;
  for (const std::vector<at::Tensor>& of_rank : outputs) {
    TORCH_CHECK_VALUE(of_rank.size() == inputs.size(), "occl: all_gather_coalesced got ",
                      inputs.size(), " inputs but ", of_rank.size(), " outputs for a rank");
    for (size_t i = 0; i < inputs.size(); ++i) {
      check_same("all_gather_coalesced", inputs[i], of_rank[i]);
    }
    all_outputs.insert(all_outputs.end(), of_rank.begin(), of_rank.end());
  }
  return run(OpType::ALLGATHER_COALESCED, "occl:all_gather_coalesced", options.asyncOp, inputs,
             all_outputs, [=](Transport& all, auto&) {
               TransportGroup group(all);
               for (size_t root = 0; root < size; ++root) {
                 for (size_t i = 0; i < inputs.size(); ++i) {
                   all.broadcast(outputs[root][i], inputs[i], static_cast<int>(root));
                 }
               }
               group.end();
             });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::allgather_into_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(),
                    "occl: all_gather_into_tensor_coalesced needs inputs and as many outputs, got ",
                    inputs.size(), " inputs and ", outputs.size(), " outputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_gathered("all_gather_into_tensor_coalesced", inputs[i], outputs[i], getSize());
  }
  return run(OpType::COALESCED, "occl:all_gather_into_tensor_coalesced", options.asyncOp, inputs,
             outputs, [=](Transport& all, auto&) {
               TransportGroup group(all);
               for (size_t i = 0; i < inputs.size(); ++i) {
                 all.all_gather(outputs[i], inputs[i]);
               }
               group.end();
             });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::gather(
    std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::GatherOptions& options) {
  TORCH_CHECK(!coalesced_.has_value(), "occl: gather cannot be coalesced: call it separately");
  const at::Tensor input = only_tensor("gather", inputs);
  const auto root = static_cast<int>(options.rootRank);
  const bool is_root = root == getRank();
  TORCH_CHECK_VALUE(is_root
                        ? outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(getSize())
                        : outputs.empty(),
                    "occl: gather needs one list of ", getSize(),
                    " outputs on the destination rank and no list on other ranks, got ",
                    outputs.size(), " lists on rank ", getRank());
  check_contiguous("gather", input);
  std::vector<at::Tensor> to = is_root ? outputs[0] : std::vector<at::Tensor>();
  for (const at::Tensor& output : to) {
    check_same("gather", input, output);
  }
  return run(
      OpType::GATHER, "occl:gather", options.asyncOp, {input}, to,
      [=, size = getSize()](Transport& all, auto&) {
        const at::Tensor flat =
            is_root ? at::empty({size, input.numel()}, input.options()) : at::Tensor();
        all.gather(flat, input, root);
        for (size_t i = 0; i < to.size(); ++i) {
          to[i].copy_(flat[static_cast<int64_t>(i)].view_as(to[i]));
        }
      },
      root);
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
                    "occl: scatter needs one list of ", getSize(),
                    " inputs on the source rank and no list on other ranks, got ", inputs.size(),
                    " lists on rank ", getRank());
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
      [=](Transport& all, auto&) { all.scatter(output, flat, root); }, root);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  check_scattered("reduce_scatter_tensor", input, output, getSize());
  return run(OpType::_REDUCE_SCATTER_BASE, "occl:_reduce_scatter_base", options.asyncOp, {input},
             {output}, [output, input, op = options.reduceOp](Transport& all, auto&) {
               all.reduce_scatter(output, input, op);
             });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::reduce_scatter(
    std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
    const c10d::ReduceScatterOptions& options) {
  const at::Tensor output = only_tensor("reduce_scatter", outputs);
  const auto size = static_cast<size_t>(getSize());
  TORCH_CHECK_VALUE(inputs.size() == 1 && inputs[0].size() == size,
                    "occl: reduce_scatter needs one list of ", size, " inputs, got ", inputs.size(),
                    " lists, the first with ", inputs.empty() ? 0 : inputs[0].size());
  const std::vector<at::Tensor>& from = inputs[0];
  for (const at::Tensor& input : from) {
    check_compatible("reduce_scatter", input, output);
  }
  check_same("reduce_scatter", from[static_cast<size_t>(getRank())], output);
  // Use one reduction per rank, because inputs may differ in size.
  return run(OpType::REDUCE_SCATTER, "occl:reduce_scatter", options.asyncOp, from, {output},
             [=, op = options.reduceOp](Transport& all, auto&) {
               TransportGroup group(all);
               for (size_t root = 0; root < size; ++root) {
                 all.reduce(output, from[root], op, static_cast<int>(root));
               }
               group.end();
             });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::reduce_scatter_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(),
                    "occl: reduce_scatter_tensor_coalesced needs inputs and as many outputs, got ",
                    inputs.size(), " inputs and ", outputs.size(), " outputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_scattered("reduce_scatter_tensor_coalesced", inputs[i], outputs[i], getSize());
  }
  return run(OpType::COALESCED, "occl:reduce_scatter_tensor_coalesced", options.asyncOp, inputs,
             outputs, [=, op = options.reduceOp](Transport& all, auto&) {
               TransportGroup group(all);
               for (size_t i = 0; i < inputs.size(); ++i) {
                 all.reduce_scatter(outputs[i], inputs[i], op);
               }
               group.end();
             });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::alltoall_base(
    at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
    std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& options) {
  const bool even = output_sizes.empty() && input_sizes.empty();
  (even ? check_same : check_compatible)("all_to_all_single", input, output);
  check_contiguous("all_to_all_single", input);
  check_contiguous("all_to_all_single", output);
  if (even) {
    TORCH_CHECK_VALUE(input.numel() % getSize() == 0, "occl: all_to_all_single: ", input.numel(),
                      " elements are not divisible by ", getSize(),
                      " ranks: pass input_split_sizes and output_split_sizes");
    return run(OpType::ALLTOALL_BASE, "occl:all_to_all", options.asyncOp, {input}, {output},
               [=](Transport& all, auto&) { all.all_to_all(output, input); });
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
                 Transport& all, auto&) { all.exchange(to, from); });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::alltoall(std::vector<at::Tensor>& outputs,
                                                          std::vector<at::Tensor>& inputs,
                                                          const c10d::AllToAllOptions& options) {
  const auto size = static_cast<size_t>(getSize());
  TORCH_CHECK_VALUE(outputs.size() == size && inputs.size() == size,
                    "occl: all_to_all needs lists of ", size, " tensors, got ", inputs.size(),
                    " inputs and ", outputs.size(), " outputs");
  for (const std::vector<at::Tensor>* tensors : {&outputs, &inputs}) {
    for (const at::Tensor& tensor : *tensors) {
      check_compatible("all_to_all", inputs[0], tensor);
    }
  }
  return run(OpType::ALLTOALL, "occl:all_to_all", options.asyncOp, inputs, outputs,
             [=](Transport& all, auto&) { all.exchange(outputs, inputs); });
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::barrier(const c10d::BarrierOptions& options) {
  // All ranks must use the same communicator, so prefer the group's first device to the current
  // device.
  const c10::DeviceIndex index =
      !options.device_ids.empty()      ? static_cast<c10::DeviceIndex>(options.device_ids[0])
      : getBoundDeviceId().has_value() ? getBoundDeviceId()->index()
                                       : first_device().value_or(current_device());
  const at::Tensor token = at::empty({0}, at::TensorOptions().device(kOpenRegType, index));
  return run(OpType::BARRIER, "occl:barrier", options.asyncOp, {token}, {},
             [](Transport& all, auto&) { all.barrier(); });
}

// ------------------------------------------------------------------------------- point to point

namespace {

// Returns an operation's name, for example "occl:send 0->1", in the format that torch's flight
// recorder and its analysis use.
std::string message(const char* kind, int rank, const char* arrow, int peer) {
  return std::string("occl:") + kind + " " + std::to_string(rank) + arrow + std::to_string(peer);
}

}  // namespace

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::send(std::vector<at::Tensor>& tensors, int peer,
                                                      int tag) {
  const at::Tensor tensor = only_tensor("send", tensors);
  return run(
      OpType::SEND, message("send", getRank(), "->", peer), /*async=*/true, {tensor}, {tensor},
      [=](Transport& all, auto&) { all.send(tensor, peer, tag); }, peer);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::recv(std::vector<at::Tensor>& tensors, int peer,
                                                      int tag) {
  const at::Tensor tensor = only_tensor("recv", tensors);
  return run(
      OpType::RECV, message("recv", getRank(), "<-", peer), /*async=*/true, {tensor}, {tensor},
      [=](Transport& all, auto&) { all.receive(tensor, peer, tag, nullptr); }, peer);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::recvAnysource(std::vector<at::Tensor>& tensors,
                                                               int tag) {
  const at::Tensor tensor = only_tensor("recv", tensors);
  return run(OpType::RECVANYSOURCE, message("recv", getRank(), "<-", occlAnyRank), /*async=*/true,
             {tensor}, {tensor}, [=](Transport& all, WorkOCCL& work) {
               all.receive(tensor, occlAnyRank, tag, &work.events()->source);
             });
}

}  // namespace openreg
