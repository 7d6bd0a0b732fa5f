// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/occl/reduction.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <type_traits>

#include "distributed/occl/data_type.h"

namespace openreg::occl {
namespace {

// The number of elements per step. Their sums stay in the L1 cache while the ranks' buffers are
// read one after the other.
constexpr size_t kBlock = 1024;

// The stored form of a bool. A sum or maximum is "or", and a product or minimum is "and".
struct Bool {
  uint8_t bits;
};

// The type in which to sum and multiply values of type T.
template <class T>
struct WideOf {
  using Type = T;
};
template <int kE, int kM, bool kI, class Bits>
struct WideOf<SmallFloat<kE, kM, kI, Bits>> {
  using Type = float;
};
template <>
struct WideOf<Bool> {
  using Type = uint8_t;
};
// int8 is computed as uint8_t, so that overflow wraps around.
template <>
struct WideOf<int8_t> {
  using Type = uint8_t;
};

template <class T, class Wide>
Wide Widen(T value) {
  if constexpr (std::is_same_v<T, Bool>) {
    return value.bits != 0 ? 1 : 0;
  } else {
    return static_cast<Wide>(value);
  }
}

template <class T, class Wide>
T Narrow(Wide value) {
  if constexpr (std::is_same_v<T, Bool>) {
    return {static_cast<uint8_t>(value != 0 ? 1 : 0)};
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
constexpr bool kIsComplex = false;
template <class T>
constexpr bool kIsComplex<std::complex<T>> = true;

struct Sum {
  template <class T>
  static T Of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};
struct Product {
  template <class T>
  static T Of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      // Multiply in uint64_t: the promotion of uint16_t to int could overflow.
      return static_cast<T>(static_cast<uint64_t>(static_cast<U>(a)) * static_cast<U>(b));
    } else {
      return a * b;
    }
  }
};
// Returns the larger value, or NaN if either value is NaN.
struct Maximum {
  template <class T>
  static T Of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::isnan(a) || a > b ? a : b;
    } else {
      return std::max(a, b);
    }
  }
};
struct Minimum {
  template <class T>
  static T Of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::isnan(a) || a < b ? a : b;
    } else {
      return std::min(a, b);
    }
  }
};
struct And {
  template <class T>
  static T Of(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T Of(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T Of(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// Computes to[i] = input[0][i] op input[1][i] ... for types that need no conversion. The output may
// be one of the inputs, because no iteration depends on another.
template <class T, class Function>
void ReducePlain(int inputs, const void* const* input, T* to, size_t count) {
  T sums[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t size = std::min(kBlock, count - begin);
    const T* left = static_cast<const T*>(input[0]) + begin;
    for (int rank = 1; rank < inputs; ++rank) {
      const T* const right = static_cast<const T*>(input[rank]) + begin;
      T* const result = rank + 1 == inputs ? to + begin : sums;
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
      for (size_t i = 0; i < size; ++i) {
        result[i] = Function::Of(left[i], right[i]);
      }
      left = sums;
    }
  }
}

// Reduces in the general case: with scales, for an average, or in a wider type.
template <class T, class Function>
void ReduceWide(int inputs, const void* const* input, const void* const* scales, bool average,
                T* to, size_t count) {
  // Sums of int8 use uint8_t, so that they wrap around, but comparisons need the sign.
  using Wide = std::conditional_t<
      std::is_same_v<Function, Maximum> || std::is_same_v<Function, Minimum>,
      std::conditional_t<std::is_same_v<T, int8_t>, int8_t, typename WideOf<T>::Type>,
      typename WideOf<T>::Type>;
  Wide sums[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t size = std::min(kBlock, count - begin);
    for (int rank = 0; rank < inputs; ++rank) {
      const T* const from = static_cast<const T*>(input[rank]) + begin;
      const auto* const scale = static_cast<const T*>(scales[rank]);
      if (scale != nullptr) {
        const Wide factor = Widen<T, Wide>(*scale);
        for (size_t i = 0; i < size; ++i) {
          const Wide value = Product::Of(Widen<T, Wide>(from[i]), factor);
          sums[i] = rank == 0 ? value : Function::Of(sums[i], value);
        }
      } else if (rank == 0) {
        for (size_t i = 0; i < size; ++i) {
          sums[i] = Widen<T, Wide>(from[i]);
        }
      } else {
        for (size_t i = 0; i < size; ++i) {
          sums[i] = Function::Of(sums[i], Widen<T, Wide>(from[i]));
        }
      }
    }
    if (average) {
      if constexpr (kIsComplex<Wide>) {
        const auto ranks = static_cast<typename Wide::value_type>(inputs);
        for (size_t i = 0; i < size; ++i) {
          sums[i] /= ranks;
        }
      } else if constexpr (std::is_same_v<T, int8_t>) {
        for (size_t i = 0; i < size; ++i) {
          sums[i] = static_cast<Wide>(static_cast<int8_t>(sums[i]) / inputs);
        }
      } else {
        for (size_t i = 0; i < size; ++i) {
          sums[i] = static_cast<Wide>(sums[i] / static_cast<Wide>(inputs));
        }
      }
    }
    for (size_t i = 0; i < size; ++i) {
      to[begin + i] = Narrow<T, Wide>(sums[i]);
    }
  }
}

template <class T, class Function>
void ReduceAs(int inputs, const void* const* input, const void* const* scales, bool average,
              void* output, size_t count) {
  auto* const to = static_cast<T*>(output);
  if constexpr (std::is_arithmetic_v<T> || kIsComplex<T>) {
    if (inputs > 1 && scales[0] == nullptr && !average) {
      ReducePlain<T, Function>(inputs, input, to, count);
      return;
    }
  }
  ReduceWide<T, Function>(inputs, input, scales, average, to, count);
}

template <class T>
void ReduceType(occlRedOp_t op, int inputs, const void* const* input, const void* const* scales,
                void* output, size_t count) {
  constexpr bool kBits = std::is_integral_v<T> || std::is_same_v<T, Bool>;
  const auto reduce = [&]<class Function>(Function, bool average = false) {
    ReduceAs<T, Function>(inputs, input, scales, average, output, count);
  };
  switch (op) {
    case occlSum:
      std::is_same_v<T, Bool> ? ReduceAs<T, std::conditional_t<std::is_same_v<T, Bool>, Or, Sum>>(
                                    inputs, input, scales, false, output, count)
                              : reduce(Sum());
      return;
    case occlAvg:
      reduce(Sum(), /*average=*/true);
      return;
    case occlProd:
      reduce(Product());
      return;
    case occlMax:
      if constexpr (!kIsComplex<T>) {
        reduce(Maximum());
      }
      return;
    case occlMin:
      if constexpr (!kIsComplex<T>) {
        reduce(Minimum());
      }
      return;
    case occlBitAnd:
      if constexpr (kBits) {
        reduce(And());
      }
      return;
    case occlBitOr:
      if constexpr (kBits) {
        reduce(Or());
      }
      return;
    case occlBitXor:
      if constexpr (kBits) {
        reduce(Xor());
      }
      return;
    case occlNumOps:
    case occlMaxOp:
      return;
  }
}

}  // namespace

bool CanReduce(occlDataType_t type, occlRedOp_t op) {
  switch (op) {
    case occlSum:
    case occlProd:
      return type != occlByte;
    case occlAvg:
      return type != occlByte && type != occlBool;
    case occlMax:
    case occlMin:
      return type != occlByte && !IsComplex(type);
    case occlBitAnd:
    case occlBitOr:
    case occlBitXor:
      return IsInteger(type);
    case occlNumOps:
    case occlMaxOp:
      break;
  }
  return false;
}

void Reduce(occlDataType_t type, occlRedOp_t op, int inputs, const void* const* input,
            const void* const* scales, void* output, size_t count) {
  const auto reduce = [&]<class T>(T*) { ReduceType<T>(op, inputs, input, scales, output, count); };
  switch (type) {
    case occlInt8:
      return reduce(static_cast<int8_t*>(nullptr));
    case occlUint8:
      return reduce(static_cast<uint8_t*>(nullptr));
    case occlInt16:
      return reduce(static_cast<int16_t*>(nullptr));
    case occlUint16:
      return reduce(static_cast<uint16_t*>(nullptr));
    case occlInt32:
      return reduce(static_cast<int32_t*>(nullptr));
    case occlUint32:
      return reduce(static_cast<uint32_t*>(nullptr));
    case occlInt64:
      return reduce(static_cast<int64_t*>(nullptr));
    case occlUint64:
      return reduce(static_cast<uint64_t*>(nullptr));
    case occlFloat16:
      return reduce(static_cast<Half*>(nullptr));
    case occlBfloat16:
      return reduce(static_cast<Bfloat16*>(nullptr));
    case occlFloat32:
      return reduce(static_cast<float*>(nullptr));
    case occlFloat64:
      return reduce(static_cast<double*>(nullptr));
    case occlFloat8e4m3:
      return reduce(static_cast<Float8e4m3*>(nullptr));
    case occlFloat8e5m2:
      return reduce(static_cast<Float8e5m2*>(nullptr));
    case occlComplex64:
      return reduce(static_cast<std::complex<float>*>(nullptr));
    case occlComplex128:
      return reduce(static_cast<std::complex<double>*>(nullptr));
    case occlBool:
      return reduce(static_cast<Bool*>(nullptr));
    case occlByte:
    case occlNumTypes:
    case occlMaxType:
      return;
  }
}

}  // namespace openreg::occl
