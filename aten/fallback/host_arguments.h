// SPDX-License-Identifier: BSD-3-Clause
//
// HostArguments: converts the tensors of one call to CPU tensors for a CPU kernel, and back.
//
// All transfers between host and device memory in the fallback happen here, in one of two ways:
//
//   by copies    For devices whose memory the CPU cannot access. Storages are copied to host memory
//                before the kernel runs, and written tensors are copied back afterwards. Whole
//                storages are copied to the host, so that views keep their offsets and tensors that
//                share memory still share it. Only the byte range of a written tensor is copied
//                back. (The range includes the gaps between the tensor's elements, so concurrent
//                writes of another stream to these gaps are lost.)
//   by aliases   The kernel works on device memory directly, through CPU tensors that the caller
//                makes. Only results in memory that the kernel allocated are copied.
//
// Sparse, quantized and nested tensors are converted through their parts (tensor_parts.h). A
// HostArguments owns the host tensors. It is used for one call, on the thread that called the
// operator.
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

// A kernel may change the conjugate or negative bit of `host`, as linalg.lu_solve does. This
// function applies such a bit to the data and restores the bits `conj` and `neg`, those of the
// caller's device tensor, which keeps its bits.
void materialize_lazy_bits(const at::Tensor& host, bool conj, bool neg);

class HostArguments {
 public:
  // Makes a CPU tensor over the memory of a strided device tensor.
  using MakeAlias = std::function<at::Tensor(const at::Tensor&)>;

  // Converts the arguments of one call on `device`. If `alias` is null, copies their storages.
  explicit HostArguments(c10::DeviceIndex device, MakeAlias alias = nullptr)
      : device_(device), alias_(std::move(alias)) {}

  // Returns the host tensor for an argument. An argument that is not on the device is returned
  // unchanged. `written` specifies whether the operator writes to the argument. Device memory is
  // read in the order of the current stream.
  at::Tensor to_host(const at::Tensor& tensor, bool written);

  // Returns the dispatch keys of all host tensors that select a kernel: CPU, and the CPU keys of
  // sparse, quantized and nested tensors.
  c10::DispatchKeySet keys() const { return keys_; }

  // Returns whether the kernel changed the sizes of a strided argument. Called after the kernel has
  // run.
  bool resized() const;

  // Applies the kernel's writes and resizes to the device tensors. Called after the kernel has run.
  void finish();

  // Returns the device tensor for a result: the argument itself if the result is an argument, a
  // view of an argument if the result is in the argument's memory, and otherwise a copy. Called
  // after finish().
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

  // If the same tensor is passed twice, both arguments get the same host tensor, because kernels
  // compare their arguments. For example, an in-place operator rejects a change in the shape of its
  // output, which is also an input.
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
