// SPDX-License-Identifier: BSD-3-Clause
//
// Runs torch's structured operators on the device.
//
// torch splits a structured operator into meta() and impl(), two methods of one class, here Base.
// meta() checks the arguments and computes the shape, strides and dtype; for elementwise operators,
// it also builds the TensorIterator. It runs on the launching thread and requests its outputs
// through set_output_*. impl() is the kernel. It runs later, on a thread chosen by the driver.
// There are two ways to use Base, and the generator (generate.py) writes both for each operator:
//
//   StructuredKernel<at::native::structured_X, ...>  runs meta() on aliases, in the launch record,
//       and later only impl(). The TensorIterator is built once. Used if building it reads no data.
//   StructuredMeta<at::meta::structured_X, ...>      runs meta() on the device tensors, only for
//       checks and outputs, and later the whole at::cpu::X_outf on aliases. Used for mixed dtypes,
//       because a TensorIterator over CPU tensors converts such data while it is built.
//
// A StructuredKernel is built on the launching thread; its impl() runs on a thread chosen by the
// driver.
#ifndef ATEN_STRUCTURED_STRUCTURED_H_
#define ATEN_STRUCTURED_STRUCTURED_H_

#include <ATen/EmptyTensor.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "aten/launch/alias.h"
#include "aten/tensors/factories.h"

namespace openreg {

enum class OutputKind { kFunctional, kInplace, kOut };

namespace detail {

// Prepares the output `out` as meta() requested: allocates the output of a functional variant,
// checks the output of an in-place variant, or resizes the output of an out= variant, with torch's
// warning. Returns whether `out` was resized.
template <OutputKind kKind>
bool set_output(at::Tensor& out, c10::DeviceIndex device, at::IntArrayRef sizes,
                at::IntArrayRef strides, const at::TensorOptions& options) {
  const c10::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
  if constexpr (kKind == OutputKind::kFunctional) {
    out = strides.empty() ? empty_on(device, sizes, dtype, options.memory_format_opt())
                          : empty_strided_on(device, sizes, strides, dtype);
    return false;
  } else if constexpr (kKind == OutputKind::kInplace) {
    TORCH_CHECK(options.dtype() == out.dtype(), "Bad in-place call: input tensor dtype ",
                out.dtype(), " and output tensor dtype ", options.dtype(), " should match");
    TORCH_CHECK(sizes == out.sizes(), "Bad in-place call: input tensor size ", out.sizes(),
                " and output tensor size ", sizes, " should match");
    return false;
  } else {
    TORCH_CHECK(options.dtype() == out.dtype(), "Expected out tensor to have dtype ",
                options.dtype(), ", but got ", out.dtype(), " instead");
    const bool resized = at::native::resize_output(out, sizes);
    if (resized) {
      if (!strides.empty()) {
        out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
      } else if (options.memory_format_opt().has_value()) {
        out.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
      }
    }
    return resized;
  }
}

template <size_t kCount>
auto take_outputs(std::array<at::Tensor, kCount>& outputs) {
  if constexpr (kCount == 1) {
    return std::move(outputs[0]);
  } else {
    return std::apply([](auto&... output) { return std::make_tuple(std::move(output)...); },
                      outputs);
  }
}

// The device tensors that a structured operator writes. The caller's tensors are only borrowed
// during the call, because a second counted reference to a tensor with a Python object requires the
// GIL.
template <size_t kCount, OutputKind kKind>
class Outputs {
 public:
  static constexpr bool kGiven = kKind != OutputKind::kFunctional;

  void give(size_t index, const at::Tensor& output)
    requires kGiven
  {
    slots_[index] = &const_cast<at::Tensor&>(output);
  }
  at::Tensor& operator[](size_t index) {
    if constexpr (kGiven) {
      return *slots_[index];
    } else {
      return slots_[index];
    }
  }
  // Returns whether the output at this index already exists.
  bool has(size_t index) const {
    if constexpr (kGiven) {
      return slots_[index] != nullptr && slots_[index]->defined();
    } else {
      return slots_[index].defined();
    }
  }
  // Returns the tensors of a functional variant. Returns nullptr for other variants, because the
  // caller already has the tensors.
  auto take() {
    if constexpr (kGiven) {
      return nullptr;
    } else {
      return take_outputs(slots_);
    }
  }

 private:
  std::array<std::conditional_t<kGiven, at::Tensor*, at::Tensor>, kCount> slots_{};
};

}  // namespace detail

template <class Base, size_t kCount, OutputKind kKind>
class StructuredKernel final : public Base {
 public:
  static constexpr bool kIterates = std::is_base_of_v<at::TensorIteratorBase, Base>;

  StructuredKernel(AliasPool& aliases, c10::DeviceIndex device)
      : aliases_(aliases), device_(device) {}

  // Sets an output that the caller provided, and its alias. For an in-place variant, the output is
  // the input.
  void give_output(size_t index, const at::Tensor& output, const at::Tensor& alias) {
    outputs_.give(index, output);
    output_aliases_[index] = c10::MaybeOwned<at::Tensor>::borrowed(alias);
  }

  // Sets all outputs of an out= variant.
  template <class... Outputs>
  void give_outputs(const Outputs&... outputs) {
    size_t index = 0;
    ((outputs_.give(index, outputs), output_aliases_[index] = aliases_.borrow(outputs), ++index),
     ...);
  }

  const at::Tensor& maybe_get_output(int64_t index) override {
    const auto i = static_cast<size_t>(index);
    if constexpr (kKind != OutputKind::kFunctional) {
      if (C10_UNLIKELY(proxies_[i].defined())) {
        return proxies_[i];
      }
    }
    return *output_aliases_[i];
  }

  void set_output_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options) override {
    set_output(index, sizes, strides, options, /*exact_strides=*/true);
  }

  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options) override {
    set_output(index, sizes, strides, options, /*exact_strides=*/false);
  }

  // Called after meta(). Returns the device tensors, because a closure must not own any. Some metas
  // resize maybe_get_output() themselves (mse_loss with a reduction); then the device tensor is
  // resized to the sizes of its alias.
  auto take_outputs() {
    for (size_t i = 0; i < kCount; ++i) {
      const at::Tensor& alias = *output_aliases_[i];
      if (outputs_.has(i) && alias.defined() &&
          C10_UNLIKELY(outputs_[i].sizes() != alias.sizes())) {
        outputs_[i].resize_(alias.sizes());
        aliases_.refresh(alias, outputs_[i]);
      }
    }
    return outputs_.take();
  }

  // Returns the number of elements that the TensorIterator visits.
  int64_t iterations() const
    requires kIterates
  {
    return Base::numel();
  }

  // Saves the operands and restores them at the end of its lifetime. Kernels that run again need
  // this, because impl() may consume operands. A kernel with two 16-bit operands, one of them a
  // scalar, removes the scalar from its iterator (BinaryOpsKernel.cpp). An output that requires a
  // conversion of dtype is computed in a temporary tensor, which cast_outputs() releases.
  class KeptOperands {
   public:
    explicit KeptOperands(StructuredKernel& kernel) : kernel_(kernel) {
      if (kernel.removes_operands() || kernel.casts_outputs()) {
        operands_ = kernel.operands_;
      }
    }
    KeptOperands(const KeptOperands&) = delete;
    KeptOperands& operator=(const KeptOperands&) = delete;
    ~KeptOperands() {
      if (!operands_.empty()) {
        kernel_.operands_ = std::move(operands_);
      }
    }

   private:
    StructuredKernel& kernel_;
    c10::SmallVector<at::OperandInfo, 4> operands_;
  };

  // Copies the outputs that impl() wrote to CPU tensors. Called after impl().
  void finish() {
    if constexpr (kKind != OutputKind::kFunctional) {
      for (size_t i = 0; i < kCount; ++i) {
        if (C10_UNLIKELY(proxies_[i].defined())) {
          output_aliases_[i]->copy_(proxies_[i]);
        }
      }
    }
  }

 private:
  void set_output(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                  const at::TensorOptions& options, bool exact_strides) {
    const auto i = static_cast<size_t>(index);
    at::Tensor& out = outputs_[i];
    const bool resized = detail::set_output<kKind>(out, device_, sizes, strides, options);
    if constexpr (kKind == OutputKind::kFunctional) {
      output_aliases_[i] = aliases_.borrow(out);
    } else {
      if (resized) {
        aliases_.refresh(*output_aliases_[i], out);
      } else if (exact_strides && !strides.empty() && out.strides() != strides) {
        // The kernel cannot write to these strides. It writes to a CPU tensor, which finish()
        // copies.
        proxies_[i] = at::detail::empty_strided_cpu(sizes, strides, out.scalar_type());
      }
    }
    if constexpr (kIterates) {
      Base::set_output_raw_strided(index, sizes, strides, options);
    }
  }

  bool casts_outputs() const
    requires kIterates
  {
    for (int i = 0; i < this->noutputs(); ++i) {
      if (this->operands_[static_cast<size_t>(i)].original_tensor_base().defined()) {
        return true;
      }
    }
    return false;
  }

  bool removes_operands() const
    requires kIterates
  {
    if (this->common_dtype_ != c10::kBFloat16 && this->common_dtype_ != c10::kHalf) {
      return false;
    }
    for (int i = this->noutputs(); i < this->ntensors(); ++i) {
      if (this->is_scalar(i)) {
        return true;
      }
    }
    return false;
  }

  AliasPool& aliases_;
  const c10::DeviceIndex device_;
  detail::Outputs<kCount, kKind> outputs_;
  std::array<c10::MaybeOwned<at::Tensor>, kCount> output_aliases_;
  std::array<at::Tensor, kKind == OutputKind::kFunctional ? 0 : kCount> proxies_;
};

// Converts an operator's optional argument to the non-owning type that meta() requires.
inline at::OptionalTensorRef optional_tensor(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined() ? at::OptionalTensorRef(*tensor)
                                                 : at::OptionalTensorRef();
}
inline at::OptionalScalarRef optional_scalar(const std::optional<at::Scalar>& scalar) {
  return scalar.has_value() ? at::OptionalScalarRef(*scalar) : at::OptionalScalarRef();
}

template <class Base, size_t kCount, OutputKind kKind>
class StructuredMeta final : public Base {
 public:
  static constexpr bool kIterates = std::is_base_of_v<at::TensorIteratorBase, Base>;

  explicit StructuredMeta(c10::DeviceIndex device) : device_(device) {}

  // Sets the outputs that the caller provided. For an in-place variant, this is the input.
  template <class... Outputs>
  void give_outputs(const Outputs&... outputs) {
    size_t index = 0;
    (outputs_.give(index++, outputs), ...);
  }

  const at::Tensor& maybe_get_output(int64_t index) override {
    return outputs_[static_cast<size_t>(index)];
  }

  void set_output_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options) override {
    set_output_raw_strided(index, sizes, strides, options);
  }

  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options) override {
    (void)detail::set_output<kKind>(outputs_[static_cast<size_t>(index)], device_, sizes, strides,
                                    options);
    if constexpr (kIterates) {
      Base::set_output_raw_strided(index, sizes, strides, options);
    }
  }

  const at::Tensor& output(size_t index) { return outputs_[index]; }

 private:
  const c10::DeviceIndex device_;
  detail::Outputs<kCount, kKind> outputs_;
};

}  // namespace openreg

#endif  // ATEN_STRUCTURED_STRUCTURED_H_
