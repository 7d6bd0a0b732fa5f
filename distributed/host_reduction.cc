// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/host_reduction.h"

#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>

#include "distributed/arguments.h"

namespace openreg {
namespace {

using c10d::ReduceOp;

// Returns the type in which to reduce. For unsigned integers of 16 to 64 bits, this is the signed
// type of the same size: the CPU has no kernels that add or multiply these unsigned types, and the
// kernels for the signed types compute the same bits.
at::ScalarType signed_type(at::ScalarType type) {
  switch (type) {
    case at::kUInt16:
      return at::kShort;
    case at::kUInt32:
      return at::kInt;
    case at::kUInt64:
      return at::kLong;
    default:
      return type;
  }
}

// Returns whether `type` is an 8-bit or 16-bit float. These types are reduced in float32 and
// rounded once.
bool is_small_float(at::ScalarType type) {
  return c10::isFloatingType(type) && c10::elementSize(type) < sizeof(float);
}

// Flips the sign bit of each integer, so that a signed comparison orders the results like the
// unsigned originals. A second call restores the integers.
at::Tensor flip_order(const at::Tensor& numbers) {
  const int bits = static_cast<int>(8 * numbers.element_size());
  return numbers.bitwise_xor(at::Scalar(-(int64_t{1} << (bits - 2)) * 2));
}

template <class T>
at::Tensor divide(at::Tensor numbers, int by) {
  T* const number = numbers.mutable_data_ptr<T>();
  std::transform(number, number + numbers.numel(), number,
                 [by](T value) { return static_cast<T>(value / static_cast<T>(by)); });
  return numbers;
}

// Divides the sum by the number of ranks. Integers are rounded toward zero.
at::Tensor average(const at::Tensor& sum, int ranks) {
  switch (sum.scalar_type()) {  // the CPU cannot divide the first three types
    case at::kUInt16:
      return divide<uint16_t>(sum, ranks);
    case at::kUInt32:
      return divide<uint32_t>(sum, ranks);
    case at::kUInt64:
      return divide<uint64_t>(sum, ranks);
    default:
      return c10::isIntegralType(sum.scalar_type(), /*includeBool=*/false) ? sum.div(ranks, "trunc")
                                                                           : sum.div(ranks);
  }
}

at::Tensor combine(const at::Tensor& left, const at::Tensor& right, const ReduceOp& op) {
  const bool is_bool = left.scalar_type() == at::kBool;
  switch (op) {
    case ReduceOp::SUM:
    case ReduceOp::AVG:
    case ReduceOp::PREMUL_SUM:
      return is_bool ? at::bitwise_or(left, right) : left.add(right);
    case ReduceOp::PRODUCT:
      return is_bool ? at::bitwise_and(left, right) : left.mul(right);
    case ReduceOp::MIN:
      return at::minimum(left, right);
    case ReduceOp::MAX:
      return at::maximum(left, right);
    case ReduceOp::BAND:
      return at::bitwise_and(left, right);
    case ReduceOp::BOR:
      return at::bitwise_or(left, right);
    case ReduceOp::BXOR:
      return at::bitwise_xor(left, right);
    default:
      TORCH_CHECK(false, "occl: reduction ", name_of(op),
                  " is not supported: use SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR or BXOR");
  }
}

}  // namespace

ReduceOp within_machine(const ReduceOp& op, at::ScalarType type) {
  TORCH_CHECK_TYPE(
      op != ReduceOp::AVG || type != at::kBool,
      "occl: an average of bool is not supported: convert the tensor to another dtype");
  return op == ReduceOp::AVG ? ReduceOp(ReduceOp::SUM) : op;
}

bool sum_is_wider(const ReduceOp& op, at::ScalarType type) {
  return op == ReduceOp::AVG && is_small_float(type);
}

at::Tensor reduce_on_host(const at::Tensor& parts, const ReduceOp& op, int ranks) {
  const at::ScalarType type = parts.scalar_type();
  const at::ScalarType plain = signed_type(type);
  const bool flipped = plain != type && (op == ReduceOp::MIN || op == ReduceOp::MAX);
  at::Tensor rows = is_small_float(type) ? parts.to(at::kFloat) : parts.view(plain);
  if (flipped) {
    rows = flip_order(rows);
  }
  at::Tensor result = rows[0].contiguous();
  for (int64_t row = 1; row < rows.size(0); ++row) {
    result = combine(result, rows[row], op);
  }
  if (flipped) {
    result = flip_order(result);
  }
  if (!is_small_float(type)) {
    result = result.view(type);
  }
  if (op == ReduceOp::AVG) {
    result = average(result, ranks);
  }
  return result.to(type);
}

}  // namespace openreg
