// SPDX-License-Identifier: BSD-3-Clause
//
// The short way of pointwise operators: tensors that are alike.
//
// Most of what an operator on few elements costs is its meta(): TensorIterator::build finds out how
// to visit the elements of any tensors in one loop. For contiguous tensors of one device, one
// floating dtype and one size the answer is known: a single dimension, nothing to broadcast, to
// convert or to check for overlap. So the iterator is written down at once, over kernel pointers;
// there are no aliases, because impl() of these operators looks at nothing but its iterator:
//
//   if (const Alike<2> alike(self, other); alike.suits() && is_plain(alpha)) {
//     at::Tensor result = alike.make_output(alike.dtype());
//     launch<Pointwise>(..., alike, result, alpha);  // Pointwise is a PointwiseKernel
//
// A Python number among the tensors is an element that every step of the loop sees.
// Everything else (other dtypes, layouts, sizes, out=) goes the long way, structured.h.
// Threads: as a closure of launch.h.
#ifndef ATEN_STRUCTURED_POINTWISE_H_
#define ATEN_STRUCTURED_POINTWISE_H_

#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "aten/launch/alias.h"
#include "aten/tensors/factories.h"

namespace openreg {

// Whether a number asks for nothing special: meta() and impl() would accept it for floating
// tensors, and impl() has one kernel for all of these. Some refuse what float does not hold.
inline bool is_plain(const at::Scalar& scalar) {
  return !scalar.isSymbolic() &&
         (scalar.isFloatingPoint()
              ? std::abs(scalar.to<double>()) <= std::numeric_limits<float>::max()
              : scalar.isIntegral(/*includeBool=*/false));
}

// The operands of a call, in order; only borrowed.
template <size_t kCount>
class Alike {
 public:
  struct Operand {
    const c10::TensorImpl* tensor;  // null: a number
    double number;
  };

  template <class... Arguments>
  explicit Alike(const Arguments&... arguments) {
    static_assert(sizeof...(Arguments) == kCount);
    suits_ = (add(arguments) && ...) && model_ != nullptr && model_->numel() != 0 &&
             (!has_number_ || is_canonical());
  }

  bool suits() const { return suits_; }

  // Whether the first operand can be written: no other one shares a part of its memory. That two
  // tensors have storages of their own is said here, at once.
  bool suits_inplace() const {
    if (!suits_ || operands_[0].tensor == nullptr) {
      return false;
    }
    const c10::TensorImpl& out = *operands_[0].tensor;
    for (size_t i = 1; i < kCount; ++i) {
      const c10::TensorImpl* const other = operands_[i].tensor;
      if (other != nullptr &&
          other->unsafe_storage().unsafeGetStorageImpl() ==
              out.unsafe_storage().unsafeGetStorageImpl() &&
          at::get_overlap_status(&out, other) == at::MemOverlapStatus::Partial) {
        return false;
      }
    }
    return true;
  }

  c10::DeviceIndex device() const { return model_->device().index(); }
  c10::ScalarType dtype() const { return c10::typeMetaToScalarType(model_->dtype()); }
  int64_t numel() const { return model_->numel(); }
  at::Tensor make_output(c10::ScalarType dtype) const {
    return empty_on(device(), model_->sizes(), dtype);
  }
  const Operand& operator[](size_t index) const { return operands_[index]; }

 private:
  bool add(const at::Tensor& tensor) {
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    if (C10_UNLIKELY(!is_device(tensor))) {
      return impl.is_wrapped_number() && add(read_number(impl));
    }
    if (model_ == nullptr) {
      if (impl.dtype() != caffe2::TypeMeta::Make<float>() &&
          impl.dtype() != caffe2::TypeMeta::Make<double>()) {
        return false;
      }
      model_ = &impl;
    } else if (impl.dtype() != model_->dtype() || impl.device() != model_->device() ||
               !same_numbers(impl.sizes(), model_->sizes())) {
      return false;
    }
    operands_[count_++] = {&impl, 0};
    return impl.is_contiguous() && !impl.is_neg();
  }

  // A Python number, as torch wraps it.
  static at::Scalar read_number(const c10::TensorImpl& impl) {
    const void* const data = impl.data();
    switch (c10::typeMetaToScalarType(impl.dtype())) {
      case c10::kDouble:
        return *static_cast<const double*>(data);
      case c10::kLong:
        return *static_cast<const int64_t*>(data);
      case c10::kBool:
        return *static_cast<const bool*>(data);
      default:
        return c10::complex<double>();  // not for here
    }
  }

  bool add(const at::Scalar& scalar) {
    if (scalar.isComplex() || scalar.isSymbolic()) {
      return false;
    }
    // A larger integer would be rounded twice: to double here, to float later.
    constexpr int64_t kExact = int64_t{1} << std::numeric_limits<double>::digits;
    if (scalar.isIntegral(/*includeBool=*/false)) {
      const auto integer = scalar.to<int64_t>();
      if (integer > kExact || integer < -kExact) {
        return false;
      }
    }
    const double number = scalar.to<double>();
    operands_[count_++] = {nullptr, number};
    has_number_ = true;
    // One that float can not hold is an error of some operators.
    return !std::isfinite(number) || std::abs(number) <= std::numeric_limits<float>::max();
  }

  // Next to a number the strides of the result follow those of the tensor, which are anything in
  // dimensions of one element.
  bool is_canonical() const {
    int64_t stride = 1;
    for (int64_t i = model_->dim(); i-- > 0;) {
      if (model_->strides()[static_cast<size_t>(i)] != stride) {
        return false;
      }
      stride *= model_->sizes()[static_cast<size_t>(i)];
    }
    return true;
  }

  std::array<Operand, kCount> operands_;
  size_t count_ = 0;
  const c10::TensorImpl* model_ = nullptr;  // the first tensor
  bool has_number_ = false;
  bool suits_;
};

// A closure (launch.h) with an iterator in its final form. A derived class calls impl() of Base,
// with undefined tensors.
template <class Base, size_t kCount>
class PointwiseKernel : public Base {
 public:
  // It calls no operator, only a loop.
  static constexpr bool kLeaf = true;
  static constexpr bool kPointwise = true;

  PointwiseKernel(const Alike<kCount>& alike, const at::Tensor& output) {
    const c10::ScalarType dtype = alike.dtype();
    this->shape_.push_back(alike.numel());
    this->perm_.push_back(0);
    this->num_outputs_ = 1;
    this->all_ops_same_shape_ = true;
    this->common_dtype_ = dtype;
    add(*output.unsafeGetTensorImpl(), output.scalar_type()).is_output = true;
    for (size_t i = 0; i < kCount; ++i) {
      if (alike[i].tensor != nullptr) {
        add(*alike[i].tensor, dtype);
        continue;
      }
      if (dtype == c10::kFloat) {
        const auto number = static_cast<float>(alike[i].number);
        std::memcpy(&numbers_[i], &number, sizeof(number));
      } else {
        numbers_[i] = alike[i].number;
      }
      add(&numbers_[i], 0, dtype);
    }
  }

  std::nullptr_t result() const { return nullptr; }

  // meta() is not called: nobody asks for outputs.
  const at::Tensor& maybe_get_output(int64_t /*index*/) override { return none_; }
  void set_output_strided(int64_t /*index*/, at::IntArrayRef /*sizes*/, at::IntArrayRef /*strides*/,
                          at::TensorOptions /*options*/) override {}
  void set_output_raw_strided(int64_t /*index*/, at::IntArrayRef /*sizes*/,
                              at::IntArrayRef /*strides*/, at::TensorOptions /*options*/) override {
  }

 protected:
  const at::Tensor none_;

 private:
  at::OperandInfo& add(const c10::TensorImpl& tensor, c10::ScalarType dtype) {
    const auto size = static_cast<int64_t>(c10::elementSize(dtype));
    auto* const start = static_cast<std::byte*>(
        kernel_pointer(tensor.unsafe_storage().unsafeGetStorageImpl()->data()));
    return add(start + tensor.storage_offset() * size, size, dtype);
  }

  at::OperandInfo& add(void* data, int64_t stride, c10::ScalarType dtype) {
    at::OperandInfo& operand = this->operands_.emplace_back();
    operand.data = data;
    operand.stride_bytes.push_back(stride);
    operand.device = c10::Device(c10::kCPU);
    operand.target_dtype = dtype;
    operand.current_dtype = dtype;
    return operand;
  }

  std::array<double, kCount> numbers_;  // of the dtype of the tensors
};

}  // namespace openreg

#endif  // ATEN_STRUCTURED_POINTWISE_H_
