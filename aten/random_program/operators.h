// SPDX-License-Identifier: BSD-3-Clause
//
// The operators that random programs call, keyed by their names in the steps. All results are small
// integers. Any thread may use the tables, which are constant.
#ifndef ATEN_RANDOM_PROGRAM_OPERATORS_H_
#define ATEN_RANDOM_PROGRAM_OPERATORS_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>

namespace openreg::programs {

template <class... Arguments>
using Table = std::map<std::string, at::Tensor (*)(Arguments...)>;
using Dtypes = std::map<std::string, at::ScalarType>;

// Returns the values modulo 97. They stay small, so that floating-point arithmetic is exact.
at::Tensor wrap(const at::Tensor& tensor);

const Table<const at::Tensor&, int64_t>& views();

// Operators that return a new tensor.
const Table<const at::Tensor&, const at::Tensor&>& binary_operators();
const Table<const at::Tensor&>& unary_operators();

// Operators that modify their first argument, with another tensor or with an integer.
const Table<const at::Tensor&, const at::Tensor&>& changes();
const Table<const at::Tensor&, int64_t>& changes_by_number();

// Functions that create a tensor, replace its storage or change its size, and return it.
const Table<const at::Tensor&, const at::Tensor&>& swaps();

// Functions that fill a new tensor like the first argument with random numbers.
const Table<const at::Tensor&, const at::Generator&>& draws();

// Returns the dtypes that new tensors may have, by name.
const Dtypes& dtypes();

}  // namespace openreg::programs

#endif  // ATEN_RANDOM_PROGRAM_OPERATORS_H_
