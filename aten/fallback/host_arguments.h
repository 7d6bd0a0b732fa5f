// SPDX-License-Identifier: BSD-3-Clause
//
// HostArguments: converts the tensors of one call to CPU tensors for a CPU kernel, and back.
//
// All transfers between host and device memory in the fallback happen here:
//
//   by copies    storages are copied to host memory before the kernel, and written tensors are
//                copied back afterwards: for devices whose memory the CPU cannot access. Whole
//                storages are copied to the host, so that views keep their offsets and tensors that
//                share memory still share it. Only the range of a written tensor is copied back.
//                (This includes gaps between its elements: concurrent writes of another stream to
//                the gaps are lost.)
//   by aliases   the kernel works on device memory directly, through CPU tensors that the caller
//                makes. Only results in memory that the kernel allocated are copied.
//
// Sparse, quantized and nested tensors are converted through their parts (tensor_parts.h). Owns the
// host tensors. Used for one call, on the thread that called the operator.
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

// Applies the conjugate and negative bits that a kernel set on `host` (as linalg.lu_solve does),
// and restores the bits of the caller's tensor that `host` represents. Otherwise the bits would be
// lost.
void materialize_lazy_bits(const at::Tensor& host, bool conj, bool neg);

class HostArguments {
 public:
  // Makes a CPU tensor over the memory of a strided device tensor.
  using MakeAlias = std::function<at::Tensor(const at::Tensor&)>;

  // For the arguments of one call on `device`. If `alias` is null, their storages are copied.
  explicit HostArguments(c10::DeviceIndex device, MakeAlias alias = nullptr)
      : device_(device), alias_(std::move(alias)) {}

  // Returns the host tensor for an argument; tensors that are not on the device are returned
  // unchanged. `written` says whether the operator writes to it. Reads device memory in the order
  // of the current stream.
  at::Tensor to_host(const at::Tensor& tensor, bool written);

  // Returns the dispatch keys of all host tensors: CPU, and those of sparse, quantized and nested
  // CPU tensors, if there are any.
  c10::DispatchKeySet keys() const { return keys_; }

  // Applies the kernel's writes and resizes to the device tensors. Called after the kernel.
  void finish();

  // Returns the device tensor for a result: the argument itself if the result is an argument, a
  // view of an argument if the result is in its memory, otherwise a copy. Called after finish().
  at::Tensor to_device(const at::Tensor& result);

  uint64_t bytes_in() const { return bytes_in_; }
  uint64_t bytes_out() const { return bytes_out_; }

 private:
  // One argument, and the state of its host tensor before the kernel ran.
  struct Argument {
    at::Tensor tensor;
    at::Tensor host;
    bool written;
    at::DimVector sizes;
    const void* data;
    bool has_parts;
  };
  // A device storage and its copy in host memory.
  struct Copied {
    c10::Storage device;
    c10::Storage host;
  };

  // A tensor that is passed twice gets one host tensor, because kernels compare their arguments: an
  // in-place operator, for instance, rejects a change in the shape of its output, which is also an
  // input.
  at::Tensor device_to_host(const at::Tensor& tensor, bool written);
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
