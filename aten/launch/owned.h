// SPDX-License-Identifier: BSD-3-Clause
//
// Owned<T>: stores an operator's argument of C++ type T in a closure until the kernel runs.
//
// Device tensors become aliases. CPU tensors are copied for two reasons: the caller may change them
// after the call, and a worker must not drop the last reference to a tensor that Python knows.
// References, lists and strings become values. Each Owned converts to the type that kernels and
// metas require. A view type without a specialization does not compile; otherwise a dangling
// IntArrayRef would pass nearly every test.
//
// Created on the launching thread; used and destroyed on the thread that runs the kernel.
#ifndef ATEN_LAUNCH_OWNED_H_
#define ATEN_LAUNCH_OWNED_H_

#include <ATen/DimVector.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/util/MaybeOwned.h>
#include <c10/util/OptionalArrayRef.h>

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "aten/launch/alias.h"
#include "aten/tensors/host_tensor.h"

namespace openreg {

// Returns the tensor that a kernel gets for this argument. The tensor is valid until the launch has
// ended.
inline c10::MaybeOwned<at::Tensor> borrow_tensor(AliasPool& aliases, const at::Tensor& tensor) {
  using Borrowed = c10::MaybeOwned<at::Tensor>;
  if (!tensor.defined()) {
    return Borrowed();
  }
  if (C10_LIKELY(is_device(tensor))) {
    return aliases.borrow(tensor);
  }
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (impl.is_wrapped_number()) {
    return Borrowed::owned(at::Tensor(tensor));  // torch made it from a Python scalar
  }
  aliases.add_dtype(impl);
  return Borrowed::owned(copy_host_tensor(tensor));
}

// Returns the same tensor as borrow_tensor(), with a counted reference.
inline at::Tensor own_tensor(AliasPool& aliases, const at::Tensor& tensor) {
  return *borrow_tensor(aliases, tensor);
}

template <class T>
struct is_view : std::false_type {};
template <class T>
struct is_view<c10::ArrayRef<T>> : std::true_type {};
template <class T>
struct is_view<c10::OptionalArrayRef<T>> : std::true_type {};
template <class T>
struct is_view<c10::IListRef<T>> : std::true_type {};
template <>
struct is_view<std::string_view> : std::true_type {};
template <>
struct is_view<at::OptionalTensorRef> : std::true_type {};
template <>
struct is_view<at::OptionalScalarRef> : std::true_type {};
template <class T>
struct is_view<std::optional<T>> : is_view<T> {};

// Stores numbers, bools, enumerations, Scalars and arrays of bool as values.
template <class T>
struct Owned {
  static_assert(!is_view<T>::value,
                "a closure must own its arguments: write Owned<> for this type");
  Owned(AliasPool& /*aliases*/, const T& argument) : value(argument) {}
  operator const T&() const { return value; }
  T value;
};

template <class T>
struct Owned<const T&> : Owned<T> {
  using Owned<T>::Owned;
};

template <class T>
struct Owned<T&> : Owned<T> {
  using Owned<T>::Owned;
};

template <>
struct Owned<at::Tensor> {
  Owned(AliasPool& aliases, const at::Tensor& argument) : value(borrow_tensor(aliases, argument)) {}
  operator const at::Tensor&() const { return *value; }
  c10::MaybeOwned<at::Tensor> value;
};

// Stores an output, which kernels may modify.
template <>
struct Owned<at::Tensor&> {
  Owned(AliasPool& aliases, const at::Tensor& argument) : value(own_tensor(aliases, argument)) {}
  operator at::Tensor&() { return value; }
  at::Tensor value;
};

template <>
struct Owned<std::optional<at::Tensor>> {
  Owned(AliasPool& aliases, const std::optional<at::Tensor>& argument) {
    if (argument.has_value() && argument->defined()) {
      value = own_tensor(aliases, *argument);
    }
  }
  operator at::OptionalTensorRef() const {
    return value.defined() ? at::OptionalTensorRef(value) : at::OptionalTensorRef();
  }
  operator std::optional<at::Tensor>() const {
    return value.defined() ? std::optional<at::Tensor>(value) : std::nullopt;
  }
  at::Tensor value;
};

template <>
struct Owned<at::OptionalTensorRef> : Owned<std::optional<at::Tensor>> {
  Owned(AliasPool& aliases, at::OptionalTensorRef argument)
      : Owned<std::optional<at::Tensor>>(
            aliases, argument.has_value() ? std::optional<at::Tensor>(*argument) : std::nullopt) {}
};

template <>
struct Owned<std::optional<at::Scalar>> {
  Owned(AliasPool& /*aliases*/, const std::optional<at::Scalar>& argument) : value(argument) {}
  operator const std::optional<at::Scalar>&() const { return value; }
  operator at::OptionalScalarRef() const {
    return value.has_value() ? at::OptionalScalarRef(*value) : at::OptionalScalarRef();
  }
  std::optional<at::Scalar> value;
};

template <>
struct Owned<at::IntArrayRef> {
  Owned(AliasPool& /*aliases*/, at::IntArrayRef argument)
      : value(argument.begin(), argument.end()) {}
  operator at::IntArrayRef() const { return value; }
  at::DimVector value;
};

template <>
struct Owned<at::OptionalIntArrayRef> {
  Owned(AliasPool& /*aliases*/, at::OptionalIntArrayRef argument) {
    if (argument.has_value()) {
      value.emplace(argument->begin(), argument->end());
    }
  }
  operator at::OptionalIntArrayRef() const {
    return value.has_value() ? at::OptionalIntArrayRef(*value) : at::OptionalIntArrayRef();
  }
  std::optional<at::DimVector> value;
};

template <>
struct Owned<std::optional<at::ArrayRef<double>>> {
  Owned(AliasPool& /*aliases*/, std::optional<at::ArrayRef<double>> argument) {
    if (argument.has_value()) {
      value = argument->vec();
    }
  }
  operator std::optional<at::ArrayRef<double>>() const {
    return value.has_value() ? std::optional<at::ArrayRef<double>>(*value) : std::nullopt;
  }
  std::optional<std::vector<double>> value;
};

template <>
struct Owned<at::ArrayRef<at::Scalar>> {
  Owned(AliasPool& /*aliases*/, at::ArrayRef<at::Scalar> argument) : value(argument.vec()) {}
  operator at::ArrayRef<at::Scalar>() const { return value; }
  std::vector<at::Scalar> value;
};

template <>
struct Owned<std::string_view> {
  Owned(AliasPool& /*aliases*/, std::string_view argument) : value(argument) {}
  operator std::string_view() const { return value; }
  std::string value;
};

template <>
struct Owned<std::optional<std::string_view>> {
  Owned(AliasPool& /*aliases*/, std::optional<std::string_view> argument) : value(argument) {}
  operator std::optional<std::string_view>() const { return value; }
  std::optional<std::string> value;
};

template <>
struct Owned<at::TensorList> {
  Owned(AliasPool& aliases, at::TensorList argument) {
    value.reserve(argument.size());
    for (const at::Tensor& tensor : argument) {
      value.push_back(own_tensor(aliases, tensor));
    }
  }
  operator at::TensorList() const { return value; }
  operator at::ITensorListRef() const { return at::ITensorListRef(value); }
  std::vector<at::Tensor> value;
};

template <>
struct Owned<at::ITensorListRef> {
  Owned(AliasPool& aliases, at::ITensorListRef argument) {
    value.reserve(argument.size());
    for (const at::Tensor& tensor : argument) {
      value.push_back(own_tensor(aliases, tensor));
    }
  }
  operator at::ITensorListRef() const { return at::ITensorListRef(value); }
  operator at::TensorList() const { return value; }
  std::vector<at::Tensor> value;
};

template <>
struct Owned<c10::List<std::optional<at::Tensor>>> {
  Owned(AliasPool& aliases, const c10::List<std::optional<at::Tensor>>& argument) {
    value.reserve(argument.size());
    for (size_t i = 0; i < argument.size(); ++i) {
      std::optional<at::Tensor> tensor = argument.get(i);
      if (tensor.has_value()) {
        tensor = own_tensor(aliases, *tensor);
      }
      value.push_back(std::move(tensor));
    }
  }
  operator const c10::List<std::optional<at::Tensor>>&() const { return value; }
  operator at::IOptTensorListRef() const { return at::IOptTensorListRef(value); }
  c10::List<std::optional<at::Tensor>> value;
};

template <>
struct Owned<at::IOptTensorListRef> {
  Owned(AliasPool& aliases, at::IOptTensorListRef argument) {
    value.reserve(argument.size());
    for (at::OptionalTensorRef tensor : argument) {
      value.push_back(tensor.has_value() ? std::optional<at::Tensor>(own_tensor(aliases, *tensor))
                                         : std::nullopt);
    }
  }
  operator const c10::List<std::optional<at::Tensor>>&() const { return value; }
  operator at::IOptTensorListRef() const { return at::IOptTensorListRef(value); }
  c10::List<std::optional<at::Tensor>> value;
};

}  // namespace openreg

#endif  // ATEN_LAUNCH_OWNED_H_
