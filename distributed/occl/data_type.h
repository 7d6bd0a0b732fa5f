// SPDX-License-Identifier: BSD-3-Clause
//
// data_type.h - the sizes and names of data types, and conversions of small floating-point types.
// The functions are stateless.
#ifndef DISTRIBUTED_OCCL_DATA_TYPE_H_
#define DISTRIBUTED_OCCL_DATA_TYPE_H_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "distributed/occl/occl.h"

namespace openreg::occl {

constexpr size_t TypeSize(occlDataType_t type) {
  switch (type) {
    case occlInt8:
    case occlUint8:
    case occlFloat8e4m3:
    case occlFloat8e5m2:
    case occlBool:
    case occlByte:
      return 1;
    case occlInt16:
    case occlUint16:
    case occlFloat16:
    case occlBfloat16:
      return 2;
    case occlInt32:
    case occlUint32:
    case occlFloat32:
      return 4;
    case occlInt64:
    case occlUint64:
    case occlFloat64:
    case occlComplex64:
      return 8;
    case occlComplex128:
      return 16;
    case occlNumTypes:
    case occlMaxType:
      break;
  }
  return 0;
}

constexpr const char* TypeName(occlDataType_t type) {
  constexpr const char* kNames[] = {
      "int8",          "uint8",       "int16",     "uint16",     "int32",   "uint32",
      "int64",         "uint64",      "float16",   "bfloat16",   "float32", "float64",
      "float8_e4m3fn", "float8_e5m2", "complex64", "complex128", "bool",    "bytes"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == occlNumTypes);
  return type >= 0 && type < occlNumTypes ? kNames[type] : "unknown type";
}

constexpr bool IsInteger(occlDataType_t type) {
  return (type >= occlInt8 && type <= occlUint64) || type == occlBool;
}

constexpr bool IsComplex(occlDataType_t type) {
  return type == occlComplex64 || type == occlComplex128;
}

// A floating-point format of 8 or 16 bits, with conversions from and to float. Conversions from
// float round to nearest, ties to even.
template <int kExponentBits, int kMantissaBits, bool kHasInfinity, class Bits>
struct SmallFloat {
  Bits bits;

  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr Bits kSign = static_cast<Bits>(1 << (kExponentBits + kMantissaBits));
  static constexpr uint32_t kInfinity = ((1U << kExponentBits) - 1) << kMantissaBits;
  // In a format without infinities, only the largest code of each sign is a NaN.
  static constexpr uint32_t kNan =
      kHasInfinity ? kInfinity | 1U << (kMantissaBits - 1) : kSign - 1U;

  operator float() const {
    const uint32_t magnitude = bits & (kSign - 1U);
    const bool negative = (bits & kSign) != 0;
    float value;
    if (kHasInfinity ? magnitude > kInfinity : magnitude == kNan) {
      value = std::bit_cast<float>(0x7fc00000U);
    } else if (kHasInfinity && magnitude == kInfinity) {
      value = INFINITY;
    } else if (magnitude >> kMantissaBits != 0) {
      value = std::bit_cast<float>((magnitude << kShift) + ((127U - kBias) << 23));
    } else {
      value = std::ldexp(static_cast<float>(magnitude), 1 - kBias - kMantissaBits);
    }
    return negative ? -value : value;
  }

  SmallFloat() = default;
  explicit SmallFloat(float value) {
    const uint32_t whole = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = whole & 0x7fffffffU;
    const auto sign = static_cast<Bits>(whole >> 31 != 0 ? kSign : 0);
    bits = static_cast<Bits>(sign | Round(magnitude));
  }

 private:
  static uint32_t Round(uint32_t magnitude) {
    if (magnitude > 0x7f800000U) {
      return kNan;
    }
    constexpr uint32_t kSmallestNormal = (127U - kBias + 1U) << 23;
    uint32_t rounded;
    if (magnitude < kSmallestNormal) {
      // Round to a multiple of the format's smallest number. To make the processor do this, add a
      // constant whose last bit has that value.
      constexpr float kMagic =
          std::bit_cast<float>(static_cast<uint32_t>(127 + 1 - kBias - kMantissaBits + 23) << 23);
      rounded = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + kMagic) -
                std::bit_cast<uint32_t>(kMagic);
    } else {
      const uint32_t odd = magnitude >> kShift & 1;
      rounded = (magnitude - ((127U - kBias) << 23) + (1U << (kShift - 1)) - 1 + odd) >> kShift;
    }
    constexpr uint32_t kTooLarge = kHasInfinity ? kInfinity : kNan;
    return rounded >= kTooLarge ? kTooLarge : rounded;
  }
};

using Half = SmallFloat<5, 10, true, uint16_t>;
using Bfloat16 = SmallFloat<8, 7, true, uint16_t>;
using Float8e4m3 = SmallFloat<4, 3, false, uint8_t>;
using Float8e5m2 = SmallFloat<5, 2, true, uint8_t>;

}  // namespace openreg::occl

#endif  // DISTRIBUTED_OCCL_DATA_TYPE_H_
