// SPDX-License-Identifier: BSD-3-Clause
//
// Copies: every way of data into the device, out of it, within it and between devices, with change
// of dtype, layout and broadcasting. All of them run torch's own copy_ on aliases, in a stream:
//
//   within a device      queued on its current stream
//   between devices      queued on the source's current stream, after the destination's; which then
//                        waits
//   from pinned memory   with non_blocking: queued; the memory is kept from reuse until then
//                        without: done, in the order of the stream, when the call returns
//   from pageable memory done when the call returns if the stream is idle or the copy is large,
//                        otherwise copied aside and queued; the caller may change it after the call
//   to the host          waited for, except to pinned memory with non_blocking
//
// What is waited for runs on the caller if the stream is idle and there is no team for it.
//
// Threads: any.
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/resize_native.h>
#include <torch/library.h>

#include <cstring>

#include "aten/alias.h"
#include "aten/launch.h"
#include "runtime/c10/error.h"
#include "runtime/c10/host_allocator.h"
#include "runtime/c10/implicit_wait.h"
#include "runtime/c10/stream.h"
#include "runtime/c10/stream_sanitizer.h"

namespace openreg {
namespace {

// Bytes up to which a pageable source is copied aside rather than waited for: about what a wake-up
// of the worker and of the caller costs.
constexpr size_t kStageBytes = 64 * 1024;

constexpr const char* kName = "aten::_copy_from";

// Whether copy_ converts from and to it.
bool is_number(c10::ScalarType dtype) {
  return c10::isFloatingType(dtype) || c10::isComplexType(dtype) ||
         c10::isIntegralType(dtype, /*includeBool=*/true);
}

// Data movement costs about as much as one elementary operation on each side.
LaunchSite site_of(const at::Tensor& dst, const at::Tensor& src, bool awaited) {
  const bool converts = dst.scalar_type() == src.scalar_type() ||
                        (is_number(dst.scalar_type()) && is_number(src.scalar_type()));
  return {.name = kName,
          .cost = dst.numel() * 2,
          .awaited = awaited,
          .pointwise = true,
          .check = awaited || converts ? Check::kNever : Check::kNewArguments};
}

at::Tensor side(AliasPool& aliases, const at::Tensor& tensor) {
  return is_device(tensor) ? aliases.alias(tensor) : tensor;
}

void launch_copy(c10::DeviceIndex device, const at::Tensor& dst, const at::Tensor& src,
                 bool awaited) {
  launch_kernel(site_of(dst, src, awaited), device, [&](AliasPool& aliases) {
    return [to = side(aliases, dst), from = side(aliases, src)]() { to.copy_(from); };
  });
}

void queue_copy(c10::DeviceIndex device, const at::Tensor& dst, const at::Tensor& src) {
  launch_copy(device, dst, src, /*awaited=*/false);
}

// Whether an element means the same on both sides, and has the same place among the others.
bool alike(const at::Tensor& dst, const at::Tensor& src) {
  return dst.scalar_type() == src.scalar_type() && dst.sizes() == src.sizes() &&
         dst.is_conj() == src.is_conj() && dst.is_neg() == src.is_neg();
}

void copy_and_wait(c10::DeviceIndex device, const at::Tensor& dst, const at::Tensor& src) {
  if (dst.nbytes() <= kStageBytes && alike(dst, src) && dst.is_contiguous() &&
      src.is_contiguous()) {
    // torch's copy_ would first find that out, for as long as the copy itself takes.
    launch_kernel(site_of(dst, src, /*awaited=*/true), device, [&](AliasPool& /*aliases*/) {
      return
          [to = kernel_pointer(dst.mutable_data_ptr()), from = kernel_pointer(src.const_data_ptr()),
           bytes = dst.nbytes()]() { std::memcpy(to, from, bytes); };
    });
  } else {
    launch_copy(device, dst, src, /*awaited=*/true);
  }
  synchronize_stream(current_native_stream(device));
}

// Lets what is queued on `later` from now on wait for what is queued on `earlier` now.
void order_streams(c10::DeviceIndex earlier, c10::DeviceIndex later) {
  const orStream_t first = current_native_stream(earlier);
  if (C10_UNLIKELY(sanitizes_streams())) {
    sanitize_order(first, current_native_stream(later));
  }
  if (!is_capturing(first) && orStreamQuery(first) == orSuccess) {
    return;
  }
  const DeviceScope scope(earlier);
  orEvent_t event = nullptr;
  OPENREG_CHECK(orEventCreate(&event));
  orError_t error = orEventRecord(event, first);
  if (error == orSuccess) {
    error = orStreamWaitEvent(current_native_stream(later), event, 0);
  }
  (void)orEventDestroy(event);  // a wait keeps what it waits for
  OPENREG_CHECK(error);
}

void copy_between_devices(const at::Tensor& dst, const at::Tensor& src) {
  const c10::DeviceIndex from = src.get_device();
  const c10::DeviceIndex to = dst.get_device();
  order_streams(to, from);
  queue_copy(from, dst, src);
  order_streams(from, to);
}

// Pinned memory for a copy that is queued. The tensor may be gone when the kernel runs, and a
// worker must not be the last to hold it: the kernel gets another one over the same memory, which
// the allocator keeps. A captured copy may run at any time, so it holds the memory until its graph
// goes.
at::Tensor borrow_pinned(c10::DeviceIndex device, const at::Tensor& tensor) {
  return is_capturing(current_native_stream(device)) ? tensor.detach() : make_alias(tensor);
}

void copy_from_host(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  const c10::DeviceIndex device = dst.get_device();
  if (non_blocking && record_pinned_use(src.storage().data_ptr(), current_stream(device))) {
    queue_copy(device, dst, borrow_pinned(device, src));
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
  // Pinned memory is read in the order of the stream: a copy before this one may still write it.
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
    queue_copy(device, borrow_pinned(device, dst), src);
    return;
  }
  announce_wait(kName,
                "it copies to host memory that the program may read afterwards; a copy to "
                "pinned memory with non_blocking=True does not wait",
                device);
  copy_and_wait(device, dst, src);
}

// What the kernel would say, at the call.
void check_shapes(const at::Tensor& src, const at::Tensor& dst) {
  if (C10_LIKELY(src.sizes() == dst.sizes())) {
    return;
  }
  const at::DimVector shape = at::infer_size_dimvector(dst.sizes(), src.sizes());
  TORCH_CHECK(dst.sizes() == shape, "output with shape ", dst.sizes(),
              " doesn't match the broadcast shape ", shape);
}

// Whether a copy would change nothing. The CPU then accepts what it refuses else, as a tensor that
// has several elements in one place.
bool same_elements(const at::Tensor& src, const at::Tensor& dst) {
  return dst.is_same(src) ||
         (dst.is_alias_of(src) && dst.storage_offset() == src.storage_offset() &&
          dst.strides() == src.strides() && alike(dst, src));
}

// As the CPU's TensorIterator: memory that is written may not be read in another order meanwhile.
void check_overlap(const at::Tensor& src, const at::Tensor& dst) {
  at::assert_no_internal_overlap(dst);
  if (src.storage().is_alias_of(dst.storage())) {
    at::assert_no_partial_overlap(dst, src);
  }
}

at::Tensor copy_from(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  if (is_device(dst) && same_elements(src, dst)) {
    return dst;
  }
  check_shapes(src, dst);
  check_overlap(src, dst);
  if (dst.numel() == 0) {
    return dst;
  }
  if (!is_device(dst)) {
    TORCH_CHECK(dst.is_cpu(), "openreg: can not copy from ", src.device(), " to ", dst.device());
    copy_to_host(dst, src, non_blocking);
  } else if (!is_device(src)) {
    TORCH_CHECK(src.is_cpu(), "openreg: can not copy from ", src.device(), " to ", dst.device());
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
  announce_wait("aten::_local_scalar_dense",
                "the host asks for a number: item(), tolist(), bool(), "
                "a tensor as an index or a size",
                self.device().index());
  synchronize_stream(current_native_stream(self.get_device()));
  return at::native::_local_scalar_dense_cpu(make_alias(self));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
}

// An alias carries the conjugate and negative bits itself. Without these, torch would resolve the
// bits first, by a clone(), which is a copy, and so on for ever.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace openreg
