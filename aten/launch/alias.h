// SPDX-License-Identifier: BSD-3-Clause
//
// Aliases: how a kernel of the emulation sees device memory. Hardware with memory of its own
// replaces them by copies (see docs/operators.md).
//
// Device memory is mapped twice, at the device address that tensors have and at the kernel address.
// An alias of a device tensor is a CPU tensor over the kernel address with the same sizes, strides,
// offset, dtype and conjugate/negative bits, so that any kernel of the CPU runs on it. Everything
// is read when the alias is made, at launch, and nothing when the kernel runs: set_ and resize_ may
// swap the storage of the device tensor in between. An alias is never an inference tensor, since it
// serves other launches too, and is used below autograd alone.
//
// Within one launch, tensors of one device storage get aliases of ONE alias storage, and a tensor
// that is an argument twice gets one alias, so that torch's checks for overlapping memory see what
// they see on the CPU.
//
// Ownership. An alias owns no device memory. The launch order protects it: the block of a freed
// tensor is reused only by work that its stream runs later. An AliasPool owns the TensorImpls and
// StorageImpls that it hands out and uses them again; if a kernel kept a reference to one, it gives
// up all. Threads: a pool belongs to one launch at a time: the launching thread, then the one that
// runs it.
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

// Of a few numbers: a call of memcmp would take longer.
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

// Address at which kernels see `pointer`; addresses outside of device memory are returned as they
// are.
void* kernel_pointer(const void* pointer);

class AliasPool {
 public:
  // Enough for all but a few operators; what is beyond gets a fresh TensorImpl.
  static constexpr size_t kSlots = 10;

  AliasPool() = default;
  ~AliasPool() = default;
  AliasPool(const AliasPool&) = delete;
  AliasPool& operator=(const AliasPool&) = delete;

  // An alias of `tensor`, which has to be a strided device tensor and to live until the launch:
  // memory that is freed in between could become the memory of another tensor of the launch. Good
  // until reset(): nothing is counted.
  c10::MaybeOwned<at::Tensor> borrow(const at::Tensor& tensor);

  // The same with a reference of its own.
  at::Tensor alias(const at::Tensor& tensor) { return *borrow(tensor); }

  // Gives the alias, made by this pool, the present storage, sizes and strides of `tensor`: for an
  // output that was resized after its alias was made.
  void refresh(const at::Tensor& alias, const at::Tensor& tensor);

  // One more tensor among the arguments: a CPU tensor, too, which needs no alias. Without elements
  // a kernel may accept a dtype that it does not support.
  void add_dtype(const c10::TensorImpl& tensor) {
    const auto index = static_cast<uint64_t>(c10::typeMetaToScalarType(tensor.dtype()));
    dtypes_ = dtypes_ * 131 + index * 2 + (tensor.numel() == 0 ? 2 : 1);
    dtype_set_ |= uint64_t{1} << index;
  }
  // A hash of the dtypes of this launch, and of which tensors have no elements, in the order in
  // which the aliases were made.
  uint64_t dtypes() const { return dtypes_; }
  // Whether every CPU kernel takes them: all are float, or all double.
  bool has_common_dtype() const {
    return dtype_set_ == 0 || dtype_set_ == uint64_t{1} << static_cast<int>(c10::kFloat) ||
           dtype_set_ == uint64_t{1} << static_cast<int>(c10::kDouble);
  }

  // Ends the use of all aliases. Called when the launch is over and its references are gone.
  void reset();

 private:
  // A TensorImpl whose dtype can be set without touching its storage.
  class Impl;

  struct Slot {
    at::Tensor tensor;
    size_t shown = 0;                           // the place of its storage in shown_
    const c10::TensorImpl* original = nullptr;  // the device tensor, in this launch
  };
  struct Shown {
    c10::intrusive_ptr<c10::StorageImpl> storage;
    size_t holders = 0;                          // slots whose tensors have it
    const c10::StorageImpl* original = nullptr;  // the device's, in this launch
  };

  // The place of the storage that shows this one, or shown_used_.
  size_t find(const c10::StorageImpl& original) const;
  // Whether a kernel holds an alias, or changed what only the pool may change.
  bool is_kept() const;

  // Those of this launch come first. A slot keeps its storage from launch to launch: programs
  // repeat themselves, and then there is nothing to count.
  std::array<Slot, kSlots> slots_;
  std::array<Shown, kSlots> shown_;
  size_t used_ = 0;
  size_t shown_used_ = 0;
  uint64_t dtypes_ = 0;
  uint64_t dtype_set_ = 0;  // a bit each
};

}  // namespace openreg

#endif  // ATEN_LAUNCH_ALIAS_H_
