// SPDX-License-Identifier: BSD-3-Clause
//
// Matrix products with 4-bit weights: _convert_weight_to_int4pack and _weight_int4pack_mm, which
// torch has only for accelerators. (The CPU has separate operators with a different packing.)
//
// A weight is a matrix of N rows and K columns of numbers from 0 to 15. Each group of G columns of
// a row has a scale and a zero; a number represents the value (number - 8) * scale + zero. The
// packed weight is an int32 tensor of sizes (N / 8, K / (16 T), 32, T / 2), where T is the argument
// innerKTiles. torch defines only these sizes; each device defines the order of the bits. Here the
// last two dimensions form a tile, which contains 8 consecutive rows of 16 T numbers. Therefore a
// slice of tiles is a packed weight, too. A tile stores each row in 8 T bytes: the first half of
// the row in the lower 4 bits and the second half in the upper 4 bits. Thus one load reads 16
// adjacent columns.
//
// The product is computed in float32, one block of rows at a time (weight_blocks.h). Any thread may
// call these operators.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "aten/kernels/weight_blocks.h"
#include "aten/launch/launch.h"
#include "aten/launch/store.h"
#include "aten/tensors/factories.h"

namespace openreg {
namespace {

constexpr int64_t kTileRows = kWeightBlockRows;
constexpr int64_t kTileColumns = 16;  // number of columns in a tile, divided by T
constexpr int64_t kRun = 16;          // number of bytes (and columns) that are unpacked together
constexpr float kZero = 8;            // the number whose value is `zero`
constexpr int64_t kMultiplyAddsPerCost = 8;

// The layout of a packed weight.
struct Packing {
  int64_t rows;
  int64_t columns;
  int64_t tiles;      // number of tiles that a row spans
  int64_t row_bytes;  // number of bytes of a row in one tile

  int64_t tile_bytes() const { return kTileRows * row_bytes; }
  // Returns the byte offset of the first part of `row`, which is in the row's first tile.
  int64_t start(int64_t row) const {
    return row / kTileRows * tiles * tile_bytes() + row % kTileRows * row_bytes;
  }
};

Packing packing_of(int64_t rows, int64_t columns, int64_t inner_k_tiles) {
  return {rows, columns, columns / (kTileColumns * inner_k_tiles),
          kTileColumns * inner_k_tiles / 2};
}

// Packs a row. `source` contains two numbers per byte; the first one is in the upper bits.
void pack_row(const Packing& packing, const uint8_t* source, uint8_t* packed) {
  const auto number = [source](int64_t column) {
    return static_cast<uint8_t>(column % 2 == 0 ? source[column / 2] >> 4
                                                : source[column / 2] & 15);
  };
  for (int64_t tile = 0; tile < packing.tiles; ++tile) {
    const int64_t first = tile * 2 * packing.row_bytes;
    for (int64_t i = 0; i < packing.row_bytes; ++i) {
      packed[tile * packing.tile_bytes() + i] =
          static_cast<uint8_t>(number(first + i) | (number(first + packing.row_bytes + i) << 4));
    }
  }
}

// The parameters of a group. The value (number - 8) * scale + zero is rewritten as number * scale +
// offset.
struct Group {
  float scale;
  float offset;
};

[[gnu::always_inline]] inline void unpack_run(const uint8_t* __restrict__ packed, Group low,
                                              Group high, float* __restrict__ lows,
                                              float* __restrict__ highs) {
  for (int64_t i = 0; i < kRun; ++i) {
    lows[i] = static_cast<float>(packed[i] & 15) * low.scale + low.offset;
  }
  for (int64_t i = 0; i < kRun; ++i) {
    highs[i] = static_cast<float>(packed[i] >> 4) * high.scale + high.offset;
  }
}

// Unpacks a row to floats. Column c uses the scale and offset of group c >> group_shift.
[[gnu::always_inline]] inline void unpack_row_inline(const Packing& packing, const uint8_t* packed,
                                                     const Group* groups, int group_shift,
                                                     float* values) {
  for (int64_t tile = 0; tile < packing.tiles; ++tile) {
    for (int64_t i = 0; i < packing.row_bytes; i += kRun) {
      const int64_t low = tile * 2 * packing.row_bytes + i;
      const int64_t high = low + packing.row_bytes;
      unpack_run(packed + tile * packing.tile_bytes() + i, groups[low >> group_shift],
                 groups[high >> group_shift], values + low, values + high);
    }
  }
}

#if defined(__x86_64__)

// Runs the same loops, compiled for wider instructions.
[[gnu::target("avx2,fma")]] void unpack_row_avx2(const Packing& packing, const uint8_t* packed,
                                                 const Group* groups, int group_shift,
                                                 float* values) {
  unpack_row_inline(packing, packed, groups, group_shift, values);
}

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  return has;
}

#endif

void unpack_row(const Packing& packing, const uint8_t* packed, const Group* groups, int group_shift,
                float* values) {
#if defined(__x86_64__)
  if (has_avx2()) {
    unpack_row_avx2(packing, packed, groups, group_shift, values);
    return;
  }
#endif
  unpack_row_inline(packing, packed, groups, group_shift, values);
}

struct Int4Matmul {
  at::Tensor self;
  at::Tensor weight;
  at::Tensor scales_and_zeros;
  at::Tensor out;
  Packing packing;
  int group_shift;

  // Unpacks the weight's rows, starting with row `begin`, into `block`.
  template <class T>
  void unpack(int64_t begin, const at::Tensor& block) const {
    const auto* const packed = static_cast<const uint8_t*>(weight.const_data_ptr());
    const T* const parameters = scales_and_zeros.const_data_ptr<T>();
    auto* const values = block.mutable_data_ptr<float>();
    at::parallel_for(0, block.size(0), kTileRows, [&](int64_t first, int64_t last) {
      std::vector<Group> groups(static_cast<size_t>(packing.columns >> group_shift));
      for (int64_t i = first; i < last; ++i) {
        const int64_t row = begin + i;
        for (size_t g = 0; g < groups.size(); ++g) {
          const T* const pair = parameters + (static_cast<int64_t>(g) * packing.rows + row) * 2;
          const auto scale = static_cast<float>(pair[0]);
          groups[g] = {scale, static_cast<float>(pair[1]) - kZero * scale};
        }
        unpack_row(packing, packed + packing.start(row), groups.data(), group_shift,
                   values + i * packing.columns);
      }
    });
  }

  void operator()() const {
    store(multiply_by_blocks(self, packing.rows,
                             [&](int64_t begin, const at::Tensor& block) {
                               AT_DISPATCH_FLOATING_TYPES_AND2(
                                   at::kHalf, at::kBFloat16, scales_and_zeros.scalar_type(),
                                   "_weight_int4pack_mm", [&] { unpack<scalar_t>(begin, block); });
                             }),
          out);
  }
};

at::Tensor convert_weight_to_int4pack(const at::Tensor& self, int64_t inner_k_tiles) {
  Operands operands;
  operands.add_device(self);
  TORCH_CHECK(self.dim() == 2, "_convert_weight_to_int4pack: expected a matrix, but got ",
              self.dim(), " dimensions");
  TORCH_CHECK(self.scalar_type() == at::kByte,
              "_convert_weight_to_int4pack: expected a uint8 weight with two 4-bit numbers in "
              "each byte, but got ",
              self.scalar_type());
  TORCH_CHECK(inner_k_tiles == 2 || inner_k_tiles == 4 || inner_k_tiles == 8,
              "_convert_weight_to_int4pack: innerKTiles must be 2, 4 or 8, but is ", inner_k_tiles);
  const Packing packing = packing_of(self.size(0), self.size(1) * 2, inner_k_tiles);
  TORCH_CHECK(packing.rows % kTileRows == 0,
              "_convert_weight_to_int4pack: the number of rows must be a multiple of ", kTileRows,
              ", but is ", packing.rows);
  TORCH_CHECK(packing.columns % (kTileColumns * inner_k_tiles) == 0,
              "_convert_weight_to_int4pack: the number of columns must be a multiple of ",
              kTileColumns * inner_k_tiles, " (16 * innerKTiles), but is ", packing.columns);
  at::Tensor packed =
      empty_on(operands.device(), {packing.rows / kTileRows, packing.tiles, 32, inner_k_tiles / 2},
               at::kInt);
  launch_kernel({"aten::_convert_weight_to_int4pack", packing.rows * packing.columns},
                operands.device(), [&](AliasPool& aliases) {
                  return [self = aliases.alias(self), packed = aliases.alias(packed), packing] {
                    const at::Tensor source = self.contiguous();
                    const uint8_t* const numbers = source.const_data_ptr<uint8_t>();
                    auto* const bytes = static_cast<uint8_t*>(packed.mutable_data_ptr());
                    at::parallel_for(0, packing.rows, kTileRows, [&](int64_t begin, int64_t end) {
                      for (int64_t row = begin; row < end; ++row) {
                        pack_row(packing, numbers + row * packing.columns / 2,
                                 bytes + packing.start(row));
                      }
                    });
                  };
                });
  return packed;
}

at::Tensor weight_int4pack_mm(const at::Tensor& self, const at::Tensor& mat2, int64_t group_size,
                              const at::Tensor& scales_and_zeros) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(mat2);
  operands.add_device(scales_and_zeros);
  const at::ScalarType dtype = self.scalar_type();
  TORCH_CHECK(self.dim() == 2, "_weight_int4pack_mm: expected the input to be a matrix, but got ",
              self.dim(), " dimensions");
  TORCH_CHECK(dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16,
              "_weight_int4pack_mm: expected a float32, float16 or bfloat16 input, but got ",
              dtype);
  TORCH_CHECK(mat2.dim() == 4 && mat2.scalar_type() == at::kInt && mat2.size(2) == 32 &&
                  (mat2.size(3) == 1 || mat2.size(3) == 2 || mat2.size(3) == 4) &&
                  mat2.is_contiguous(),
              "_weight_int4pack_mm: expected a contiguous weight from _convert_weight_to_int4pack, "
              "int32 with sizes (N / 8, K / (16 * innerKTiles), 32, innerKTiles / 2), but got ",
              mat2.scalar_type(), " of sizes ", mat2.sizes(), " and strides ", mat2.strides());
  const int64_t inner_k_tiles = mat2.size(3) * 2;
  const Packing packing = packing_of(mat2.size(0) * kTileRows,
                                     mat2.size(1) * kTileColumns * inner_k_tiles, inner_k_tiles);
  TORCH_CHECK(self.size(1) == packing.columns, "_weight_int4pack_mm: the input has ", self.size(1),
              " columns, but the weight has ", packing.columns);
  TORCH_CHECK(group_size == 32 || group_size == 64 || group_size == 128 || group_size == 256,
              "_weight_int4pack_mm: qGroupSize must be 32, 64, 128 or 256, but is ", group_size);
  TORCH_CHECK(packing.columns % group_size == 0, "_weight_int4pack_mm: the weight's ",
              packing.columns, " columns are not a multiple of qGroupSize ", group_size);
  TORCH_CHECK(scales_and_zeros.dim() == 3 &&
                  scales_and_zeros.size(0) == packing.columns / group_size &&
                  scales_and_zeros.size(1) == packing.rows && scales_and_zeros.size(2) == 2 &&
                  scales_and_zeros.is_contiguous(),
              "_weight_int4pack_mm: expected contiguous scales and zeros of sizes [",
              packing.columns / group_size, ", ", packing.rows, ", 2], but got sizes ",
              scales_and_zeros.sizes(), " and strides ", scales_and_zeros.strides());
  TORCH_CHECK(scales_and_zeros.scalar_type() == dtype,
              "_weight_int4pack_mm: expected scales and zeros with the input's dtype ", dtype,
              ", but got ", scales_and_zeros.scalar_type());
  at::Tensor out = empty_on(operands.device(), {self.size(0), packing.rows}, dtype);
  if (out.numel() > 0) {
    const int64_t numbers = packing.rows * packing.columns;
    launch_kernel({.name = "aten::_weight_int4pack_mm",
                   .cost = numbers + self.size(0) * numbers / kMultiplyAddsPerCost,
                   .check = Check::kNever},
                  operands.device(), [&](AliasPool& aliases) {
                    return Int4Matmul{aliases.alias(self),
                                      aliases.alias(mat2),
                                      aliases.alias(scales_and_zeros),
                                      aliases.alias(out),
                                      packing,
                                      std::countr_zero(static_cast<uint64_t>(group_size))};
                  });
  }
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_convert_weight_to_int4pack", TORCH_FN(convert_weight_to_int4pack));
  library.impl("_weight_int4pack_mm", TORCH_FN(weight_int4pack_mm));
}

}  // namespace openreg
