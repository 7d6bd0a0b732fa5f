// SPDX-License-Identifier: BSD-3-Clause
//
// sparse_reduction.cc - the all-reduce of sparse COO tensors, for example gradients of
// nn.Embedding(sparse=True). Each rank gathers the indices and values of all ranks and adds them.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "distributed/arguments.h"
#include "distributed/process_group.h"
#include "runtime/c10/device.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

constexpr char kName[] = "occl: all_reduce of a sparse tensor";

// Returns the tensor that the program passed. torch.distributed replaces a complex tensor with its
// view_as_real(). The view of a sparse tensor shares only the values with the tensor, but a
// reduction also changes the indices.
at::Tensor program_tensor(const at::Tensor& tensor) {
  if (!tensor.is_view()) {
    return tensor;
  }
  const at::Tensor base(tensor._base());
  return base.is_complex() ? base : tensor;
}

// Gathers the shapes of all ranks, checks that they are compatible, and returns the number of
// elements of each rank.
std::vector<int64_t> gather_counts(Transport& transport, const at::Tensor& tensor, int rank,
                                   int64_t ranks) {
  std::vector<int64_t> mine{tensor._nnz(), tensor.sparse_dim()};
  mine.insert(mine.end(), tensor.sizes().begin(), tensor.sizes().end());
  const auto length = static_cast<int64_t>(mine.size());
  const auto options = at::TensorOptions().dtype(at::kLong).device(tensor.device());
  const at::Tensor gathered = at::empty({ranks, length}, options);
  transport.all_gather(gathered, at::tensor(mine, at::kLong).to(tensor.device()));
  const at::Tensor host = gathered.cpu();
  std::vector<int64_t> counts;
  for (int64_t other = 0; other < ranks; ++other) {
    const int64_t* const row = host.const_data_ptr<int64_t>() + other * length;
    TORCH_CHECK_VALUE(
        std::equal(mine.begin() + 1, mine.end(), row + 1), kName,
        ": all ranks must have the same shape and sparse_dim, but rank ", rank, " has shape ",
        tensor.sizes(), " with sparse_dim ", mine[1], " and rank ", other, " has shape ",
        at::IntArrayRef(row + 2, static_cast<size_t>(length - 2)), " with sparse_dim ", row[1]);
    counts.push_back(row[0]);
  }
  return counts;
}

// Gathers the parts of all ranks, which may differ in size along `dim`, and concatenates them.
at::Tensor gather_parts(Transport& transport, const at::Tensor& part, int64_t dim,
                        const std::vector<int64_t>& counts) {
  std::vector<int64_t> sizes = part.sizes().vec();
  sizes[static_cast<size_t>(dim)] = *std::max_element(counts.begin(), counts.end());
  const at::Tensor padded = at::zeros(sizes, part.options());
  padded.narrow(dim, 0, part.size(dim)).copy_(part);
  sizes.insert(sizes.begin(), static_cast<int64_t>(counts.size()));
  const at::Tensor gathered = at::empty(sizes, part.options());
  transport.all_gather(gathered, padded);
  std::vector<at::Tensor> parts;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    parts.push_back(gathered[static_cast<int64_t>(rank)].narrow(dim, 0, counts[rank]));
  }
  return at::cat(parts, dim);
}

void reduce_sparse(Transport& transport, const at::Tensor& tensor, bool average, int rank,
                   int64_t ranks) {
  const at::Tensor coalesced = tensor.coalesce();
  const std::vector<int64_t> counts = gather_counts(transport, coalesced, rank, ranks);
  if (std::all_of(counts.begin(), counts.end(), [](int64_t count) { return count == 0; })) {
    tensor.copy_(coalesced);
    return;
  }
  const at::Tensor indices = gather_parts(transport, coalesced.indices(), /*dim=*/1, counts);
  const at::Tensor values = gather_parts(transport, coalesced.values(), /*dim=*/0, counts);
  const at::Tensor sum = at::sparse_coo_tensor(indices, values, tensor.sizes()).coalesce();
  if (average) {
    if (c10::isIntegralType(sum.scalar_type(), /*includeBool=*/true)) {
      sum.values().div_(ranks, "trunc");
    } else {
      sum.values().div_(ranks);
    }
  }
  tensor.copy_(sum);
}

}  // namespace

c10::intrusive_ptr<c10d::Work> ProcessGroupOCCL::allreduce_sparse(
    std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) {
  TORCH_CHECK_VALUE(tensors.size() == 1, kName, " takes one tensor, but got ", tensors.size());
  const at::Tensor tensor = program_tensor(tensors[0]);
  TORCH_CHECK_TYPE(tensor.layout() == at::kSparse && tensor.device().type() == kOpenRegType, kName,
                   ": the tensor has layout ", tensor.layout(), " on ", tensor.device(),
                   ": it must be a COO tensor on ", kOpenRegType);
  const c10d::ReduceOp::RedOpType op = options.reduceOp;
  TORCH_CHECK_VALUE(op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG, kName,
                    " supports only SUM and AVG, but got ", name_of(op),
                    ": for other reductions, reduce tensor.to_dense()");
  TORCH_CHECK_TYPE(op == c10d::ReduceOp::SUM || tensor.scalar_type() != at::kBool, kName,
                   ": an average of bool is not supported: convert the tensor to another dtype");
  TORCH_CHECK(
      !coalesced_.has_value(), kName,
      " cannot be coalesced, because it makes the host wait: call it outside the coalescing "
      "block");
  TORCH_CHECK(
      !is_capturing(native_stream(current_stream(tensor.device().index()))), kName,
      " cannot be captured by a graph, because the host must wait for each rank's number of "
      "elements: reduce tensor.to_dense() instead");
  const at::Tensor values = tensor._values();
  auto work =
      run(c10d::OpType::_ALLREDUCE_SPARSE, "occl:all_reduce_sparse", options.asyncOp, {values},
          {values}, [&](Transport& transport, WorkOCCL& work) {
            reduce_sparse(transport, tensor, op == c10d::ReduceOp::AVG, getRank(), getSize());
            work.set_outputs({tensor});
          });
  if (options.asyncOp) {
    // The new indices and values were allocated on the group's stream, but the caller will use them
    // on the current stream.
    const c10::Stream current = current_stream(tensor.device().index());
    tensor._indices().record_stream(current);
    tensor._values().record_stream(current);
  }
  return work;
}

namespace {

std::tuple<std::vector<at::Tensor>, c10::intrusive_ptr<c10d::Work>> all_reduce_sparse(
    at::TensorList tensors, const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const c10::intrusive_ptr<c10d::ReduceOp>& op,
    const std::optional<at::Tensor>& /*sparse_indices*/, bool async, int64_t timeout) {
  std::vector<at::Tensor> all = tensors.vec();
  c10d::AllreduceOptions options;
  options.reduceOp = *op;
  options.timeout = std::chrono::milliseconds(timeout);
  options.asyncOp = async;
  auto work = group->getBackend(kOpenRegType)->allreduce_sparse(all, options);
  return {std::move(all), std::move(work)};
}

// Register the operator for this device's sparse tensors, because torch registers it only for the
// CPU and CUDA.
TORCH_LIBRARY_IMPL(c10d, SparsePrivateUse1, library) {
  library.impl("allreduce_", &all_reduce_sparse);
}

}  // namespace

}  // namespace openreg
