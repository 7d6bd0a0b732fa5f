// SPDX-License-Identifier: BSD-3-Clause
//
// Determines which dtypes can represent a scalar. This matters because kernels reject a scalar that
// the tensor's dtype cannot represent. Any thread may call these functions.
#ifndef ATEN_TENSORS_SCALAR_WIDTH_H_
#define ATEN_TENSORS_SCALAR_WIDTH_H_

#include <c10/core/Scalar.h>
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

namespace openreg {

// Returns the number of the interval between limits of torch's dtypes that contains a value, or 0
// if every dtype can represent the value. Integer limits are listed twice, because some operators
// also accept the first integer beyond the limit.
inline uint64_t width_of(double value) {
  constexpr double kLimits[] = {127,
                                128,
                                255,
                                256,
                                448 /* Float8_e4m3fn */,
                                2048 /* 2^11: Half */,
                                32767,
                                32768,
                                65504 /* Half */,
                                65535,
                                65536,
                                0x1p24 /* float */,
                                0x1p31 - 1,
                                0x1p31,
                                0x1p32 - 1,
                                0x1p32,
                                0x1p53 /* double */,
                                0x1p63,
                                0x1p64,
                                std::numeric_limits<float>::max(),
                                std::numeric_limits<double>::max()};
  uint64_t width = 0;
  for (const double limit : kLimits) {
    if (std::abs(value) <= limit) {
      break;
    }
    ++width;
  }
  // Infinity is one interval beyond the last limit; NaN is two intervals beyond it.
  return width == 0 ? 0 : (width + (std::isnan(value) ? 1 : 0)) * 2 + (value < 0 ? 1 : 0);
}

// Returns the width of a scalar, for operators whose meta() has checked everything else. Complex
// scalars have a separate width, because real dtypes cannot represent them.
inline uint64_t width_of(const c10::Scalar& scalar) {
  constexpr uint64_t kComplex = 64;
  if (scalar.isComplex()) {
    return kComplex;
  }
  return scalar.isSymbolic() ? 0 : width_of(scalar.to<double>());
}

inline uint64_t width_of(const std::optional<c10::Scalar>& scalar) {
  return scalar.has_value() ? width_of(*scalar) : 0;
}

// Returns the width of the widest scalar.
inline uint64_t width_of(c10::ArrayRef<c10::Scalar> scalars) {
  uint64_t widest = 0;
  for (const c10::Scalar& scalar : scalars) {
    widest = std::max(widest, width_of(scalar));
  }
  return widest;
}

}  // namespace openreg

#endif  // ATEN_TENSORS_SCALAR_WIDTH_H_
