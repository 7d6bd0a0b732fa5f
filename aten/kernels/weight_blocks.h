// SPDX-License-Identifier: BSD-3-Clause
//
// Products of floats with weights of narrow dtypes. One cache-sized block of the weight's rows at a
// time is converted to float and multiplied. The function runs on the kernel's thread, and the
// products use this thread's team.
#ifndef ATEN_KERNELS_WEIGHT_BLOCKS_H_
#define ATEN_KERNELS_WEIGHT_BLOCKS_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cstdint>

namespace openreg {

// The number of elements in a block: half a megabyte of floats, or two megabytes if the product is
// more work than the conversion of the block.
constexpr int64_t kWeightBlock = 128 * 1024;
constexpr int64_t kLargeWeightBlock = 512 * 1024;
constexpr int64_t kManyRows = 16;        // a large block is used for at least this many input rows
constexpr int64_t kWeightBlockRows = 8;  // the number of rows in a block is a multiple of this

// Returns the product of `self` (M, columns) and the transposed weight (rows, columns), as float
// (M, rows). unpack(first row, block) fills `block` with weight rows, starting with the first row.
// The block is contiguous float (rows of the block, columns).
template <class Unpack>
at::Tensor multiply_by_blocks(const at::Tensor& self, int64_t rows, const Unpack& unpack) {
  const at::Tensor input = self.to(at::kFloat);
  const int64_t columns = input.size(1);
  at::Tensor product = at::empty({input.size(0), rows}, input.options());
  const int64_t numbers = input.size(0) < kManyRows ? kWeightBlock : kLargeWeightBlock;
  const int64_t in_cache = numbers / std::max<int64_t>(columns, 1);
  const int64_t step = std::max(kWeightBlockRows, in_cache / kWeightBlockRows * kWeightBlockRows);
  const at::Tensor block = at::empty({std::min(step, rows), columns}, input.options());
  for (int64_t first = 0; first < rows; first += step) {
    const at::Tensor unpacked = block.narrow(0, 0, std::min(step, rows - first));
    unpack(first, unpacked);
    at::Tensor part = product.narrow(1, first, unpacked.size(0));
    at::mm_out(part, input, unpacked.t());
  }
  return product;
}

}  // namespace openreg

#endif  // ATEN_KERNELS_WEIGHT_BLOCKS_H_
