// SPDX-License-Identifier: BSD-3-Clause
//
// Aliases: tensors through which a kernel of the emulation accesses device memory. A backend for
// hardware with separate memory uses copies instead (docs/operators.md).
//
// Device memory is mapped twice: at the device address, which tensors have, and at the kernel
// address. An alias of a device tensor is a CPU tensor at the kernel address with the same sizes,
// strides, offset, dtype and conjugate/negative bits, so that any CPU kernel can run on it. All
// these properties are read at launch, when the alias is made. They are not read again when the
// kernel runs, because set_ and resize_ may have replaced the storage of the device tensor by then.
// An alias is never an inference tensor, since other launches reuse it, and is only used below
// autograd.
//
// Within one launch, aliases of tensors with the same device storage share one alias storage. A
// tensor that is passed twice gets one alias. Therefore torch's checks for overlapping memory work
// as on the CPU.
//
// Ownership. An alias owns no device memory. The memory stays valid because of the stream order:
// the block of a freed tensor is reused only by work that its stream runs later. An AliasPool owns
// its TensorImpls and StorageImpls and reuses them. If a kernel kept a reference to one of them,
// the pool discards all of them. A pool belongs to one launch at a time: first the launching thread
// uses it, then the thread that runs the kernel.
#ifndef ATEN_LAUNCH_ALIAS_H_
#define ATEN_LAUNCH_ALIAS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/MaybeOwned.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "aten/tensors/tensor.h"

namespace openreg {

// Returns whether the numbers are equal. For a few numbers this is faster than memcmp.
inline bool same_numbers(c10::IntArrayRef a, c10::IntArrayRef b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) {
      return false;
    }
  }
  return true;
}

// Returns the kernel address of `pointer`. Addresses outside of device memory are returned
// unchanged.
void* kernel_pointer(const void* pointer);

class AliasPool {
 public:
  // The number of aliases that a pool reuses. It suffices for nearly all operators; further aliases
  // get new TensorImpls.
  static constexpr size_t kSlots = 10;

  AliasPool() = default;
  ~AliasPool() = default;
  AliasPool(const AliasPool&) = delete;
  AliasPool& operator=(const AliasPool&) = delete;

  // Returns an alias of `tensor`, which must be a strided device tensor. The tensor must live until
  // the launch; otherwise another tensor of the launch could reuse its memory. The alias is valid
  // until reset(). It is not reference-counted.
  c10::MaybeOwned<at::Tensor> borrow(const at::Tensor& tensor);

  // Returns an alias like borrow(), with a counted reference.
  at::Tensor alias(const at::Tensor& tensor) { return *borrow(tensor); }

  // Updates an alias of this pool to the current storage, sizes and strides of `tensor`. Needed for
  // an output that was resized after its alias was made.
  void refresh(const at::Tensor& alias, const at::Tensor& tensor);

  // Adds a tensor to the dtype hash. Also called for CPU tensors, which need no alias. The hash
  // distinguishes empty tensors, because a kernel may accept an empty tensor of a dtype that it
  // does not support.
  void add_dtype(const c10::TensorImpl& tensor) {
    const auto index = static_cast<uint64_t>(c10::typeMetaToScalarType(tensor.dtype()));
    dtypes_ = dtypes_ * 131 + index * 2 + (tensor.numel() == 0 ? 2 : 1);
    dtype_set_ |= uint64_t{1} << index;
  }
  // Returns a hash of the dtypes in this launch and of which tensors are empty, in the order in
  // which the tensors were added.
  uint64_t dtypes() const { return dtypes_; }
  // Returns whether every CPU kernel supports these dtypes, because all are float or all are
  // double.
  bool has_common_dtype() const {
    return dtype_set_ == 0 || dtype_set_ == uint64_t{1} << static_cast<int>(c10::kFloat) ||
           dtype_set_ == uint64_t{1} << static_cast<int>(c10::kDouble);
  }

  // Prepares the pool for the next launch. Called when the launch has ended and its references have
  // been dropped; no alias of the launch may be used afterwards.
  void reset();

 private:
  // A TensorImpl whose dtype can be set without touching its storage.
  class Impl;

  struct Slot {
    at::Tensor tensor;
    size_t shown = 0;                           // the index of its storage in shown_
    const c10::TensorImpl* original = nullptr;  // the device tensor in this launch
  };
  struct Shown {
    c10::intrusive_ptr<c10::StorageImpl> storage;
    size_t holders = 0;                          // number of slots that use this storage
    const c10::StorageImpl* original = nullptr;  // the device storage in this launch
  };

  // Returns the index of the alias storage of `original`, or shown_used_ if there is none.
  size_t find(const c10::StorageImpl& original) const;
  // Returns whether a kernel kept a reference to an alias or changed its storage.
  bool is_kept() const;

  // In both arrays, the entries that this launch uses come first. A slot keeps its storage between
  // launches. Programs repeat the same launches, and then no reference count changes.
  std::array<Slot, kSlots> slots_;
  std::array<Shown, kSlots> shown_;
  size_t used_ = 0;
  size_t shown_used_ = 0;
  uint64_t dtypes_ = 0;
  uint64_t dtype_set_ = 0;  // one bit per dtype
};

}  // namespace openreg

#endif  // ATEN_LAUNCH_ALIAS_H_
