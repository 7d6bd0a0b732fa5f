// SPDX-License-Identifier: BSD-3-Clause
//
// Visits and replaces the tensors in boxed arguments, including those in lists. Any thread may call
// these functions.
#ifndef ATEN_FALLBACK_BOXED_TENSORS_H_
#define ATEN_FALLBACK_BOXED_TENSORS_H_

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <utility>

namespace openreg {

// Calls visit(tensor) for every tensor in the value, including undefined ones.
template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      visit(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      visit(tensor.value_or(at::Tensor()));
    }
  }
}

// Replaces every defined tensor in the value with replace(tensor).
template <class Replace>
void replace_tensors(c10::IValue& value, Replace&& replace) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      value = replace(value.toTensor());
    }
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(tensor.defined() ? replace(tensor) : tensor);
    }
    value = std::move(list);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor.has_value() && tensor->defined() ? replace(*tensor) : tensor);
    }
    value = std::move(list);
  }
}

}  // namespace openreg

#endif  // ATEN_FALLBACK_BOXED_TENSORS_H_
