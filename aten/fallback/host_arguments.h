// SPDX-License-Identifier: BSD-3-Clause
//
// HostArguments: the tensors of one call as a kernel of the CPU gets them, and the way back.
//
// The one place where the fallback decides how host and device memory meet:
//
//   by copies    storages are copied to host memory before the kernel, and what it wrote is copied
//                back after it: what a device needs whose memory the CPU cannot reach. Whole
//                storages go to the host, so that views keep their offsets and tensors that share
//                memory go on sharing it; back goes the range of a tensor that was written. (Of one
//                with gaps, the gaps too: what another stream writes there meanwhile is lost.)
//   by aliases   the kernel works on device memory itself, through CPU tensors that the caller
//                makes. Nothing is copied except results that the kernel made in memory of its own.
//
// Sparse, quantized and nested tensors go through their parts (tensor_parts.h).
// Owns the host tensors until it ends; one call, one thread: the one that called the operator.
#ifndef ATEN_FALLBACK_HOST_ARGUMENTS_H_
#define ATEN_FALLBACK_HOST_ARGUMENTS_H_

#include <ATen/DimVector.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace openreg {

// A kernel wrote to `host`, which stands for a tensor that the caller has already: a conjugate or
// negative bit that it set there (linalg.lu_solve does) would be lost, so what the bit says is
// done, and the bits are those of the caller's tensor again.
void materialize_lazy_bits(const at::Tensor& host, bool conj, bool neg);

class HostArguments {
 public:
  // Makes a CPU tensor over the memory of a strided device tensor.
  using MakeAlias = std::function<at::Tensor(const at::Tensor&)>;

  // Without `alias`: by copies.
  explicit HostArguments(c10::DeviceIndex device, MakeAlias alias = nullptr)
      : device_(device), alias_(std::move(alias)) {}

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
    bool has_parts;
  };
  // A storage and its copy.
  struct Copied {
    c10::Storage device;
    c10::Storage host;
  };

  at::Tensor strided_to_host(const at::Tensor& tensor, bool written);
  at::Tensor parts_to_host(const at::Tensor& tensor, bool written);
  const c10::Storage& copy_storage(const c10::Storage& storage);
  at::Tensor parts_to_device(const at::Tensor& result);
  at::Tensor copy_to_device(const at::Tensor& result);
  void write_back(const Argument& argument);
  void follow_resize(const Argument& argument);
  void follow_parts(const Argument& argument);

  const c10::DeviceIndex device_;
  const MakeAlias alias_;
  c10::DispatchKeySet keys_{c10::DispatchKey::CPU};
  std::vector<Argument> arguments_;
  std::vector<Copied> copied_in_;
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> copied_out_;
  uint64_t bytes_in_ = 0;
  uint64_t bytes_out_ = 0;
};

}  // namespace openreg

#endif  // ATEN_FALLBACK_HOST_ARGUMENTS_H_
