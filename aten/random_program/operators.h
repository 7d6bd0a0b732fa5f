// SPDX-License-Identifier: BSD-3-Clause
//
// The operators that random programs call, keyed by their names in steps. All results are small
// integers. Any thread may use the tables, which never change.
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

// Returns the values modulo 97: they stay small, so that floating-point arithmetic is exact.
at::Tensor wrap(const at::Tensor& tensor);

const Table<const at::Tensor&, int64_t>& views();

// Operators that return a new tensor.
const Table<const at::Tensor&, const at::Tensor&>& binary_operators();
const Table<const at::Tensor&>& unary_operators();

// Operators that modify their first argument, with another tensor or with an integer.
const Table<const at::Tensor&, const at::Tensor&>& changes();
const Table<const at::Tensor&, int64_t>& changes_by_number();

// Functions that return a new tensor and replace its storage or size.
const Table<const at::Tensor&, const at::Tensor&>& swaps();

// Functions that return random numbers in a new tensor like the first argument.
const Table<const at::Tensor&, const at::Generator&>& draws();

// Returns the dtypes that new tensors may have, by name.
const Dtypes& dtypes();

}  // namespace openreg::programs

#endif  // ATEN_RANDOM_PROGRAM_OPERATORS_H_
