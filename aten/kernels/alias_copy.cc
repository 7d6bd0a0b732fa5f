// SPDX-License-Identifier: BSD-3-Clause
//
// The copy kernel of the emulation (aten/tensors/copy.h): torch's copy_ on aliases. If the caller
// waits for a copy, the copy runs on the calling thread, provided that the stream is idle and the
// copy has no team. The scalar reader, too, accesses device memory at its kernel address. Any
// thread may call these functions.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>

#include "aten/launch/alias.h"
#include "aten/launch/launch.h"
#include "aten/tensors/copy.h"
#include "aten/tensors/tensor.h"
#include "runtime/c10/host_allocator.h"

namespace openreg {
namespace {

// Up to this size, contiguous tensors are copied with memcpy, because the checks in torch's copy_
// take as long as such a copy.
constexpr size_t kMemcpyBytes = 64 * 1024;
// The number of bytes that memcpy moves per unit of cost.
constexpr int64_t kMemcpyBytesPerCost = 8;

constexpr uintptr_t kLargePage = 2 * 1024 * 1024;
// From this size, a copy to pageable memory requests large pages for it.
constexpr size_t kLargePageBytes = 4 * kLargePage;

// Returns whether copy_ can convert this dtype to and from other dtypes.
bool is_number(c10::ScalarType dtype) {
  return c10::isFloatingType(dtype) || c10::isComplexType(dtype) ||
         c10::isIntegralType(dtype, /*includeBool=*/true);
}

// Returns the launch site of a copy. The cost of an element is two elementary operations: a read
// and a write.
LaunchSite site_of(const at::Tensor& dst, const at::Tensor& src, bool awaited) {
  const bool converts = dst.scalar_type() == src.scalar_type() ||
                        (is_number(dst.scalar_type()) && is_number(src.scalar_type()));
  return {.name = "aten::_copy_from",
          .cost = dst.numel() * 2,
          .awaited = awaited,
          .pointwise = true,
          .check = awaited || converts ? Check::kNever : Check::kNewArguments};
}

// Returns whether a copy moves bytes unchanged.
bool is_plain(const at::Tensor& dst, const at::Tensor& src) {
  return same_elements(dst, src) && dst.is_contiguous() && src.is_contiguous();
}

orMemoryType memory_of(const at::Tensor& tensor) {
  return is_device(tensor)                    ? orMemoryTypeDevice
         : is_pinned(tensor.const_data_ptr()) ? orMemoryTypeHost
                                              : orMemoryTypeUnmanaged;
}

orCopyDescription describe_copy(const at::Tensor& dst, const at::Tensor& src) {
  const orMemcpyKind kind = is_device(dst)
                                ? is_device(src) ? orMemcpyDeviceToDevice : orMemcpyHostToDevice
                                : orMemcpyDeviceToHost;
  return {dst.nbytes(), kind, memory_of(src), memory_of(dst)};
}

// Returns the operand that is in host memory, if any. A queued kernel must own it.
at::Tensor host_of(const at::Tensor& dst, const at::Tensor& src) {
  return !is_device(dst) ? dst : !is_device(src) ? src : at::Tensor();
}

at::Tensor for_kernel(AliasPool& aliases, const at::Tensor& tensor) {
  return is_device(tensor) ? aliases.alias(tensor) : tensor;
}

// Makes the system use large pages for the parts of a host tensor that it has not provided yet. The
// result of x.cpu() is such memory: with small pages, providing it takes longer than the copy.
void prefer_large_pages(const at::Tensor& dst) {
  if (is_device(dst) || dst.nbytes() < kLargePageBytes || !dst.is_contiguous() ||
      is_pinned(dst.const_data_ptr())) {
    return;
  }
  const auto begin = reinterpret_cast<uintptr_t>(dst.mutable_data_ptr());
  const uintptr_t first = (begin + kLargePage - 1) & ~(kLargePage - 1);
  const uintptr_t last = (begin + dst.nbytes()) & ~(kLargePage - 1);
  // This is only a preference, so errors are ignored.
  madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

void copy_on_aliases(c10::DeviceIndex device, const at::Tensor& dst, const at::Tensor& src,
                     bool awaited) {
  LaunchSite site = site_of(dst, src, awaited);
  orCopyDescription description;
  if (C10_UNLIKELY(orLaunchReadsCopy() != 0) && is_plain(dst, src)) {
    description = describe_copy(dst, src);
    site.copy = &description;
  }
  if (dst.nbytes() <= kMemcpyBytes && is_plain(dst, src)) {
    site.cost = static_cast<int64_t>(dst.nbytes()) / kMemcpyBytesPerCost;
    site.check = Check::kNever;
    launch_kernel(site, device, [&](AliasPool& /*aliases*/) {
      return
          [to = kernel_pointer(dst.mutable_data_ptr()), from = kernel_pointer(src.const_data_ptr()),
           bytes = dst.nbytes(),
           host = awaited ? at::Tensor() : host_of(dst, src)]() { std::memcpy(to, from, bytes); };
    });
    return;
  }
  prefer_large_pages(dst);
  launch_kernel(site, device, [&](AliasPool& aliases) {
    return [to = for_kernel(aliases, dst), from = for_kernel(aliases, src)]() { to.copy_(from); };
  });
}

at::Scalar read_scalar(const at::Tensor& self) {
  AliasPool aliases;
  return at::native::_local_scalar_dense_cpu(*aliases.borrow(self));
}

[[maybe_unused]] const bool registered = [] {
  set_copy_kernel(&copy_on_aliases);
  set_scalar_reader(&read_scalar);
  return true;
}();

}  // namespace
}  // namespace openreg
