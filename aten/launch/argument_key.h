// SPDX-License-Identifier: BSD-3-Clause
//
// Argument keys. A key is a hash of the argument properties, except dtypes, that may make a kernel
// reject a call.
//
// When kernels run, they check scalars: `std >= 0`, `0 <= p <= 1`, `from <= to`, and that the dtype
// of a tensor can represent the value. Many kernels also check whether their outputs overlap. If
// two calls to an operator have equal keys, both pass these checks or both fail them. Therefore a
// call does not wait for its kernel if the operator has already accepted a call with the same key
// (accepted_calls.h). The key 0 means that the kernel has nothing to reject.
//
// Any thread may call these functions.
#ifndef ATEN_LAUNCH_ARGUMENT_KEY_H_
#define ATEN_LAUNCH_ARGUMENT_KEY_H_

#include <ATen/MemoryOverlap.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "aten/tensors/scalar_width.h"

namespace openreg {

// Returns the key of a number. It encodes the number's width, its sign, and whether its magnitude
// is less than, equal to or greater than one. The key is never 0, because some kernels reject the
// value zero.
inline uint64_t range_of(double value) {
  const double magnitude = std::abs(value);
  const uint64_t sign = value < 0 ? 1 : value > 0 ? 2 : 3;
  const uint64_t unit = magnitude < 1 ? 0 : magnitude > 1 ? 2 : 1;
  return width_of(value) * 16 + sign * 4 + unit;
}

// Returns the key of an option's name.
inline uint64_t text_key(std::string_view text) { return std::hash<std::string_view>()(text); }
inline uint64_t text_key(const std::optional<std::string_view>& text) {
  return text.has_value() ? text_key(*text) : 0;
}

// Returns a key for the integers and floating-point numbers among boxed arguments. It encodes the
// range_of() of each number, and whether the number is less than, equal to or greater than the
// previous one.
inline uint64_t range_key(c10::ArrayRef<c10::IValue> arguments) {
  uint64_t key = 0;
  std::optional<double> last;
  for (const c10::IValue& argument : arguments) {
    if (!argument.isDouble() && !argument.isInt()) {
      continue;
    }
    const double value =
        argument.isDouble() ? argument.toDouble() : static_cast<double>(argument.toInt());
    const uint64_t order = !last.has_value() || value == *last ? 0 : value < *last ? 1 : 2;
    key = key * 1009 + range_of(value) * 4 + order;
    last = value;
  }
  return key;
}

// Returns the key of an output. It encodes whether elements of the output share memory.
inline uint64_t overlap_of(const at::Tensor& output) {
  return at::has_internal_overlap(output.unsafeGetTensorImpl()) == at::MemOverlap::Yes ? 1 : 0;
}

// Returns the key of an output and another argument. It encodes how much memory they share: none,
// some or all of it.
inline uint64_t overlap_of(const at::Tensor& output, const at::Tensor& other) {
  const c10::TensorImpl* const left = output.unsafeGetTensorImpl();
  const c10::TensorImpl* const right = other.unsafeGetTensorImpl();
  if (left == right || !other.defined() || !left->has_storage() || !right->has_storage() ||
      left->unsafe_storage().unsafeGetStorageImpl() !=
          right->unsafe_storage().unsafeGetStorageImpl()) {
    return 0;
  }
  switch (at::get_overlap_status(left, right)) {
    case at::MemOverlapStatus::Partial:
      return 1;
    case at::MemOverlapStatus::Full:
      return 2;
    default:
      return 0;
  }
}

inline uint64_t overlap_of(const at::Tensor& output, const std::optional<at::Tensor>& other) {
  return other.has_value() ? overlap_of(output, *other) : 0;
}

inline uint64_t overlap_of(const at::Tensor& output, const at::ITensorListRef& others) {
  uint64_t key = 0;
  for (const at::Tensor& other : others) {
    key = key * 3 + overlap_of(output, other);
  }
  return key;
}

// Returns 0: arguments that are not tensors have no memory to share.
template <class T>
  requires(!std::is_convertible_v<const T&, const at::Tensor&> &&
           !std::is_convertible_v<const T&, at::ITensorListRef> &&
           !std::is_convertible_v<const T&, std::optional<at::Tensor>>)
uint64_t overlap_of(const at::Tensor& /*output*/, const T& /*other*/) {
  return 0;
}

// Returns the combined overlap key of an output and all other arguments.
template <class... Others>
uint64_t overlap_key(const at::Tensor& output, const Others&... others) {
  uint64_t key = overlap_of(output);
  ((key = key * 3 + overlap_of(output, others)), ...);
  return key;
}

// Combines several keys.
template <class... Keys>
uint64_t argument_key(Keys... keys) {
  uint64_t key = 0;
  ((key = key * 131 + keys), ...);
  return key;
}

// Returns the overlap key of the outputs, which are the last kOutputs arguments, with all
// arguments.
template <size_t kOutputs, class... Arguments>
uint64_t output_overlaps(const Arguments&... arguments) {
  const auto all = std::tie(arguments...);
  return [&]<size_t... kIndices>(std::index_sequence<kIndices...>) {
    return argument_key(
        overlap_key(std::get<sizeof...(Arguments) - kOutputs + kIndices>(all), arguments...)...);
  }(std::make_index_sequence<kOutputs>());
}

}  // namespace openreg

#endif  // ATEN_LAUNCH_ARGUMENT_KEY_H_
