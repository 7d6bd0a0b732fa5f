// SPDX-License-Identifier: BSD-3-Clause
#include "aten/tensors/copy.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "aten/tensors/copy_through_host.h"
#include "aten/tensors/host_tensor.h"
#include "aten/tensors/tensor.h"
#include "runtime/c10/error.h"
#include "runtime/c10/event.h"
#include "runtime/c10/host_allocator.h"
#include "runtime/c10/stream.h"
#include "runtime/diagnostics/implicit_wait.h"
#include "runtime/diagnostics/stream_sanitizer.h"

namespace openreg {
namespace {

// Up to this size, a copy from pageable memory uses a staging buffer instead of making the host
// wait. Staging such a copy takes about as long as waking up the worker and the caller.
constexpr size_t kStageBytes = 64 * 1024;

constexpr const char* kName = "aten::_copy_from";

CopyKernel copy_kernel = &copy_through_host;
ScalarReader scalar_reader = &read_scalar_through_host;

void queue_copy(c10::DeviceIndex device, const at::Tensor& dst, const at::Tensor& src) {
  copy_kernel(device, dst, src, /*awaited=*/false);
}

void copy_and_wait(c10::DeviceIndex device, const at::Tensor& dst, const at::Tensor& src) {
  copy_kernel(device, dst, src, /*awaited=*/true);
  synchronize_stream(current_native_stream(device));
}

// Makes work that is queued later on the current stream of `later` wait for the work that is
// already queued on that of `earlier`.
void order_devices(c10::DeviceIndex earlier, c10::DeviceIndex later) {
  const orStream_t first = current_native_stream(earlier);
  const orStream_t second = current_native_stream(later);
  if (C10_UNLIKELY(sanitizes_streams())) {
    sanitize_order(first, second);
  }
  if (!is_capturing(first) && orStreamQuery(first) == orSuccess) {
    return;
  }
  const DeviceScope scope(earlier);
  if (!driver_supports(order_streams(first, second))) {
    announce_wait(kName, "it copies between devices, and this driver has no events", earlier);
    synchronize_stream(first);
  }
}

void copy_between_devices(const at::Tensor& dst, const at::Tensor& src) {
  const c10::DeviceIndex from = src.get_device();
  const c10::DeviceIndex to = dst.get_device();
  order_devices(to, from);
  queue_copy(from, dst, src);
  order_devices(from, to);
}

// Returns the pinned tensor that a queued copy uses. The allocator keeps the memory until the
// stream has run the copy. A captured copy may run at any time, so it owns the memory until its
// graph is destroyed.
at::Tensor pinned_for_kernel(c10::DeviceIndex device, const at::Tensor& tensor) {
  return is_capturing(current_native_stream(device)) ? tensor.detach() : view_host_memory(tensor);
}

void copy_from_host(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  const c10::DeviceIndex device = dst.get_device();
  if (non_blocking && record_pinned_use(src.storage().data_ptr(), current_stream(device))) {
    queue_copy(device, dst, pinned_for_kernel(device, src));
    return;
  }
  const size_t bytes =
      at::detail::computeStorageNbytes(src.sizes(), src.strides(), src.element_size());
  const bool captured = is_capturing(current_native_stream(device));
  if (bytes > kStageBytes || captured) {
    announce_wait(kName,
                  "it copies from host memory that the program may change afterwards; a "
                  "copy from pinned memory with non_blocking=True does not wait",
                  device);
  }
  // Do not stage pinned memory: it must be read in stream order, because an earlier copy may still
  // write to it.
  if (bytes <= kStageBytes && orStreamQuery(current_native_stream(device)) != orSuccess &&
      !is_pinned(src.const_data_ptr())) {
    queue_copy(device, dst, copy_host_tensor(src));
    return;
  }
  copy_and_wait(device, dst, src);
}

void copy_to_host(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  const c10::DeviceIndex device = src.get_device();
  if (non_blocking && record_pinned_use(dst.storage().data_ptr(), current_stream(device))) {
    queue_copy(device, pinned_for_kernel(device, dst), src);
    return;
  }
  announce_wait(kName,
                "it copies to host memory that the program may read afterwards; a copy to "
                "pinned memory with non_blocking=True does not wait",
                device);
  copy_and_wait(device, dst, src);
}

// If the shapes do not match, throws the kernel's error immediately, in the call.
void check_shapes(const at::Tensor& src, const at::Tensor& dst) {
  if (C10_LIKELY(src.sizes() == dst.sizes())) {
    return;
  }
  const at::DimVector shape = at::infer_size_dimvector(dst.sizes(), src.sizes());
  TORCH_CHECK(dst.sizes() == shape, "output with shape ", dst.sizes(),
              " doesn't match the broadcast shape ", shape);
}

// Returns whether the copy would change nothing. For such a copy, the CPU accepts tensors that it
// otherwise rejects, such as a tensor with internal overlap.
bool is_copy_of_itself(const at::Tensor& src, const at::Tensor& dst) {
  return dst.is_same(src) ||
         (dst.is_alias_of(src) && dst.storage_offset() == src.storage_offset() &&
          dst.strides() == src.strides() && same_elements(dst, src));
}

// Checks overlap like the CPU's TensorIterator: the source must not overlap the destination in a
// different element order.
void check_overlap(const at::Tensor& src, const at::Tensor& dst) {
  at::assert_no_internal_overlap(dst);
  if (src.storage().is_alias_of(dst.storage())) {
    at::assert_no_partial_overlap(dst, src);
  }
}

// Throws if the storage has lost its memory: Tensor.untyped_storage().resize_(0).
void check_memory(const char* role, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.unsafeGetTensorImpl()->storage_initialized(), "openreg: cannot copy: the ",
              role, " with sizes ", tensor.sizes(), " on ", tensor.device(),
              " has a storage of 0 bytes: resize the storage first");
}

at::Tensor copy_from(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  if (is_device(dst) && is_copy_of_itself(src, dst)) {
    return dst;
  }
  check_shapes(src, dst);
  check_overlap(src, dst);
  if (dst.numel() == 0) {
    return dst;
  }
  check_memory("source", src);
  check_memory("destination", dst);
  if (!is_device(dst)) {
    TORCH_CHECK(dst.is_cpu(), "openreg: cannot copy from ", src.device(), " to ", dst.device(),
                ": copy to the CPU first");
    copy_to_host(dst, src, non_blocking);
  } else if (!is_device(src)) {
    TORCH_CHECK(src.is_cpu(), "openreg: cannot copy from ", src.device(), " to ", dst.device(),
                ", because only openreg and CPU tensors can be copied to openreg");
    copy_from_host(dst, src, non_blocking);
  } else if (dst.get_device() == src.get_device()) {
    queue_copy(dst.get_device(), dst, src);
  } else {
    copy_between_devices(dst, src);
  }
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& src, const at::Tensor& dst) {
  if (dst.sizes() != src.sizes()) {
    dst.resize_(src.sizes());
  }
  return copy_from(src, dst, /*non_blocking=*/false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  const c10::DeviceIndex device = self.get_device();
  announce_wait("aten::_local_scalar_dense",
                "the host reads a value: item(), tolist(), bool(), "
                "a tensor as an index or a size",
                device);
  synchronize_stream(current_native_stream(device));
  return scalar_reader(self);
}

}  // namespace

void set_copy_kernel(CopyKernel kernel) { copy_kernel = kernel; }

void set_scalar_reader(ScalarReader reader) { scalar_reader = reader; }

bool same_elements(const at::Tensor& dst, const at::Tensor& src) {
  return dst.scalar_type() == src.scalar_type() && dst.sizes() == src.sizes() &&
         dst.is_conj() == src.is_conj() && dst.is_neg() == src.is_neg();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
}

// Copies apply the conjugate and negative bits themselves. Without these registrations, torch would
// first resolve the bits with clone(). Because clone() copies, too, this would be an infinite
// recursion.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace openreg
