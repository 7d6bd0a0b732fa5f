// SPDX-License-Identifier: BSD-3-Clause
//
// HostArguments: the tensors of one call, as a kernel of the CPU gets them, and the way back.
//
// The one place where the fallback decides how host and device memory meet:
//
//   alias  the kernel works on device memory itself (alias.h). Nothing is copied but results that
//          the kernel made in memory of its own.
//   copy   storages are copied to host memory before, and what the operator writes back after: what
//          hardware needs whose memory a CPU can not reach. Whole storages go to the host, so that
//          views keep their offsets and tensors that share memory go on sharing it; back goes the
//          range of a tensor that was written. (Of one with gaps, the gaps too: whoever writes into
//          these on another stream at that moment, loses it.)
//
// Composite tensors (composite.h: sparse, quantized, nested) are shown through their parts.
//
// A vendor who starts from here keeps the copy mode and deletes the other.
// Owns the host tensors until it ends; one call, one thread: the one that called the operator.
#ifndef ATEN_HOST_ARGUMENTS_H_
#define ATEN_HOST_ARGUMENTS_H_

#include <ATen/DimVector.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "aten/alias.h"

namespace openreg {

// A kernel wrote to `host`, which stands for a tensor that the caller has already: a conjugate or
// negative bit that it set there (linalg.lu_solve does) would be lost, so what the bit says is
// done, and the bits are those of the caller's tensor again.
void settle_bits(const at::Tensor& host, bool conj, bool neg);

enum class HostMode { kAlias, kCopy };

class HostArguments {
 public:
  HostArguments(HostMode mode, c10::DeviceIndex device) : mode_(mode), device_(device) {}

  // The host tensor for an argument; tensors that are not on the device stay. `written`: the
  // operator writes to it. Reads device memory in the order of the current stream.
  at::Tensor to_host(const at::Tensor& tensor, bool written);

  // The dispatch keys of all host tensors: CPU, and SparseCPU, QuantizedCPU... where there are
  // such.
  c10::DispatchKeySet keys() const { return keys_; }

  // After the kernel: what it wrote or resized reaches the device tensors.
  void finish();

  // After finish(): the device tensor for a result. A result that is an argument is that argument;
  // one over the memory of an argument is a view of it; any other is copied.
  at::Tensor to_device(const at::Tensor& result);

  uint64_t bytes_in() const { return bytes_in_; }
  uint64_t bytes_out() const { return bytes_out_; }

 private:
  // One argument, with what its host tensor looked like before the kernel ran.
  struct Argument {
    at::Tensor tensor;
    at::Tensor host;
    bool written;
    at::DimVector sizes;
    const void* data;
    bool composite;
  };
  // A storage in copy mode.
  struct Copied {
    c10::Storage device;
    c10::Storage host;
  };

  at::Tensor strided_to_host(const at::Tensor& tensor, bool written);
  at::Tensor composite_to_host(const at::Tensor& tensor, bool written);
  const c10::Storage& copy_storage(const c10::Storage& storage);
  at::Tensor composite_to_device(const at::Tensor& result);
  at::Tensor copy_to_device(const at::Tensor& result);
  void write_back(const Argument& argument);
  void follow_resize(const Argument& argument);
  void follow_composite(const Argument& argument);

  const HostMode mode_;
  const c10::DeviceIndex device_;
  c10::DispatchKeySet keys_{c10::DispatchKey::CPU};
  AliasPool aliases_;
  std::vector<Argument> arguments_;
  std::vector<Copied> copied_in_;
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> copied_out_;
  uint64_t bytes_in_ = 0;
  uint64_t bytes_out_ = 0;
};

}  // namespace openreg

#endif  // ATEN_HOST_ARGUMENTS_H_
