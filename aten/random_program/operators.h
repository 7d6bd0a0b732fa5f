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

// Keeps values small, so that floating-point arithmetic is exact.
at::Tensor wrap(const at::Tensor& tensor);

const Table<const at::Tensor&, int64_t>& views();

// New tensors.
const Table<const at::Tensor&, const at::Tensor&>& binary_operators();
const Table<const at::Tensor&>& unary_operators();

// In place, with another tensor or with an integer.
const Table<const at::Tensor&, const at::Tensor&>& changes();
const Table<const at::Tensor&, int64_t>& changes_by_number();

// New tensors, whose storage or size is replaced.
const Table<const at::Tensor&, const at::Tensor&>& swaps();

// Random numbers in a new tensor like the first argument.
const Table<const at::Tensor&, const at::Generator&>& draws();

// The dtypes that new tensors may have.
const Dtypes& dtypes();

}  // namespace openreg::programs

#endif  // ATEN_RANDOM_PROGRAM_OPERATORS_H_
