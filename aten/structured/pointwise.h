// SPDX-License-Identifier: BSD-3-Clause
//
// The fast path of pointwise operators. It supports contiguous tensors that have the same device,
// floating-point dtype and sizes.
//
// For few elements, most of the host cost of an operator is its meta(): TensorIterator::build
// decides how one loop can visit the elements of arbitrary tensors. For the tensors above, the
// answer is known in advance: there is a single dimension, and nothing to broadcast, convert or
// check for overlap. Therefore the fast path fills in the iterator directly, with kernel addresses.
// It needs no aliases, because impl() of these operators uses only its iterator:
//
//   if (const FastPath<2> fast_path(self, other); fast_path.eligible() && is_plain(alpha)) {
//     at::Tensor result = fast_path.make_output(fast_path.dtype());
//     launch<Pointwise>(..., fast_path, result, alpha);  // Pointwise is a PointwiseKernel
//
// A Python scalar among the tensors becomes an operand of stride 0. All other calls (other dtypes,
// layouts or sizes, or out=) use the general path, structured.h. The rules for the threads that
// build and run a PointwiseKernel are the same as for any closure (launch.h).
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

// Returns whether a scalar needs no special treatment. That is, meta() and impl() accept it for
// floating-point tensors, and impl() uses the same kernel for all such values. Values that float
// cannot represent are excluded, because some operators reject them.
inline bool is_plain(const at::Scalar& scalar) {
  return !scalar.isSymbolic() &&
         (scalar.isFloatingPoint()
              ? std::abs(scalar.to<double>()) <= std::numeric_limits<float>::max()
              : scalar.isIntegral(/*includeBool=*/false));
}

// The operands of a call, in order, and whether they are eligible for the fast path. Borrows the
// tensors.
template <size_t kCount>
class FastPath {
 public:
  struct Operand {
    const c10::TensorImpl* tensor;  // null if the operand is a scalar
    double scalar;
  };

  template <class... Arguments>
  explicit FastPath(const Arguments&... arguments) {
    static_assert(sizeof...(Arguments) == kCount);
    eligible_ = (add(arguments) && ...) && model_ != nullptr && model_->numel() != 0 &&
                (!has_scalar_ || is_canonical());
  }

  bool eligible() const { return eligible_; }

  // Returns whether the first operand may also be written, because no other operand partially
  // overlaps it. Most tensors do not share storages, so the storages are compared first as a
  // shortcut.
  bool eligible_inplace() const {
    if (!eligible_ || operands_[0].tensor == nullptr) {
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
      return impl.is_wrapped_number() && add(read_wrapped_number(impl));
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
    return impl.is_contiguous() && !impl.is_neg() && impl.storage_initialized();
  }

  // Returns the value of a Python scalar that torch wrapped in a 0-dim CPU tensor.
  static at::Scalar read_wrapped_number(const c10::TensorImpl& impl) {
    const void* const data = impl.data();
    switch (c10::typeMetaToScalarType(impl.dtype())) {
      case c10::kDouble:
        return *static_cast<const double*>(data);
      case c10::kLong:
        return *static_cast<const int64_t*>(data);
      case c10::kBool:
        return *static_cast<const bool*>(data);
      default:
        return c10::complex<double>();  // not used: add() rejects complex scalars
    }
  }

  bool add(const at::Scalar& scalar) {
    if (scalar.isComplex() || scalar.isSymbolic()) {
      return false;
    }
    // A larger integer would be rounded twice: to double here, and to float later.
    constexpr int64_t kExact = int64_t{1} << std::numeric_limits<double>::digits;
    if (scalar.isIntegral(/*includeBool=*/false)) {
      const auto integer = scalar.to<int64_t>();
      if (integer > kExact || integer < -kExact) {
        return false;
      }
    }
    const double value = scalar.to<double>();
    operands_[count_++] = {nullptr, value};
    has_scalar_ = true;
    // Some operators reject a finite value that float cannot represent.
    return !std::isfinite(value) || std::abs(value) <= std::numeric_limits<float>::max();
  }

  // Returns whether the tensor has canonical strides, as the results of the fast path always have.
  // For a call with a scalar operand, meta() copies the tensor's strides to the result, and strides
  // of dimensions of size 1 are arbitrary.
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
  bool has_scalar_ = false;
  bool eligible_;
};

// A closure (launch.h) that fills in its TensorIterator instead of building it. A derived class
// calls the impl() of Base with undefined tensors.
template <class Base, size_t kCount>
class PointwiseKernel : public Base {
 public:
  // The kernel calls no operators; it is only a loop.
  static constexpr bool kLeaf = true;
  static constexpr bool kPointwise = true;

  PointwiseKernel(const FastPath<kCount>& fast_path, const at::Tensor& output) {
    const c10::ScalarType dtype = fast_path.dtype();
    this->shape_.push_back(fast_path.numel());
    this->perm_.push_back(0);
    this->num_outputs_ = 1;
    this->all_ops_same_shape_ = true;
    this->common_dtype_ = dtype;
    add(*output.unsafeGetTensorImpl(), output.scalar_type()).is_output = true;
    for (size_t i = 0; i < kCount; ++i) {
      if (fast_path[i].tensor != nullptr) {
        add(*fast_path[i].tensor, dtype);
        continue;
      }
      if (dtype == c10::kFloat) {
        const auto value = static_cast<float>(fast_path[i].scalar);
        std::memcpy(&scalars_[i], &value, sizeof(value));
      } else {
        scalars_[i] = fast_path[i].scalar;
      }
      add(&scalars_[i], 0, dtype);
    }
  }

  std::nullptr_t result() const { return nullptr; }

  // These overrides have no effect, because meta() is not called and requests no outputs.
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

  std::array<double, kCount> scalars_;  // stored in the dtype of the tensors
};

}  // namespace openreg

#endif  // ATEN_STRUCTURED_POINTWISE_H_
