// SPDX-License-Identifier: BSD-3-Clause
//
// Which dtypes the kernel of an operator has run with.
//
// A kernel of the CPU says that it does not support a dtype when it runs, while errors of dtypes
// belong to the call. So the first call with arguments of new dtypes waits for its kernel, and
// throws what it throws; later ones know that there is nothing to throw. Calls with nothing but one
// of the dtypes that every kernel has (float and double) never wait. Threads: any. Two threads may
// both wait for the same dtypes.
#ifndef ATEN_GEN_PROVEN_DTYPES_H_
#define ATEN_GEN_PROVEN_DTYPES_H_

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "runtime/c10/stream.h"

namespace openreg {

// The dtypes of a call's tensors, in the order of its arguments.
class Dtypes {
 public:
  template <class... Arguments>
  explicit Dtypes(const Arguments&... arguments) {
    (add(arguments), ...);
  }

  // Whether every kernel supports them: one dtype, float or double.
  bool common() const { return common_; }
  // Of one more tensor.
  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return;
    }
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      return;  // a Python number takes the dtype of the tensors
    }
    const c10::ScalarType dtype = tensor.scalar_type();
    if (first_ == c10::ScalarType::Undefined) {
      first_ = dtype;
      common_ = dtype == c10::kFloat || dtype == c10::kDouble;
    }
    common_ &= dtype == first_;
    key_ = key_ * 67 + static_cast<uint64_t>(dtype) + 1;
  }

  // Not 0. Long lists of tensors may share a key, as may any two that nobody mixes.
  uint64_t key() const { return key_; }

 private:
  void add(const std::optional<at::Tensor>& tensor) {
    if (tensor.has_value()) {
      add(*tensor);
    }
  }
  void add(const at::ITensorListRef& tensors) {
    for (const at::Tensor& tensor : tensors) {
      add(tensor);
    }
  }
  void add(const c10::List<std::optional<at::Tensor>>& tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      add(tensors.get(i));
    }
  }

  c10::ScalarType first_ = c10::ScalarType::Undefined;
  bool common_ = true;
  uint64_t key_ = 1;
};

class ProvenDtypes {
 public:
  constexpr ProvenDtypes() = default;

  // After a launch on the current stream of the device.
  void prove(const Dtypes& dtypes, c10::DeviceIndex device) {
    if (C10_LIKELY(dtypes.common())) {
      return;
    }
    prove_all(dtypes, device);
  }

  // The same for operators that may lack the common dtypes too.
  void prove_all(const Dtypes& dtypes, c10::DeviceIndex device) {
    if (C10_LIKELY(has(dtypes.key()))) {
      return;
    }
    synchronize_stream(current_native_stream(device));
    add(dtypes.key());
  }

 private:
  bool has(uint64_t key) const {
    for (const std::atomic<uint64_t>& known : keys_) {
      if (known.load(std::memory_order_relaxed) == key) {
        return true;
      }
    }
    return false;
  }
  void add(uint64_t key) {
    for (std::atomic<uint64_t>& known : keys_) {
      uint64_t empty = 0;
      if (known.compare_exchange_strong(empty, key, std::memory_order_relaxed)) {
        return;
      }
    }
    // Full: the place of another one, which has to be proven again.
    keys_[key % keys_.size()].store(key, std::memory_order_relaxed);
  }

  std::array<std::atomic<uint64_t>, 16> keys_{};
};

}  // namespace openreg

#endif  // ATEN_GEN_PROVEN_DTYPES_H_
