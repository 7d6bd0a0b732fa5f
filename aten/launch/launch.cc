// SPDX-License-Identifier: BSD-3-Clause
#include "aten/launch/launch.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "aten/launch/accepted_calls.h"
#include "runtime/diagnostics/launch_site.h"
#include "runtime/diagnostics/stream_sanitizer.h"
#include "runtime/diagnostics/warning.h"
#include "runtime/diagnostics/watcher.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace openreg {

void Operands::add(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return;
  }
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (C10_LIKELY(impl.device_type() == kOpenRegType || impl.dim() != 0 || !impl.is_cpu())) {
    add_device(tensor);
    return;
  }
  const c10::ScalarType dtype = c10::typeMetaToScalarType(impl.dtype());
  add_number(dtype);
  if (!impl.is_wrapped_number()) {
    hosts_mix_ |= on_host_ && dtype != host_dtype_;
    on_host_ = true;
    host_dtype_ = dtype;
  }
}

void Operands::add_device(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return;
  }
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const c10::Device device = impl.device();
  if (C10_UNLIKELY(device.type() != kOpenRegType || (device_ >= 0 && device.index() != device_))) {
    TORCH_CHECK(
        false, "Expected all tensors to be on the same device, but found at least two devices, ",
        c10::Device(kOpenRegType, device_ >= 0 ? device_ : current_device()), " and ", device, "!");
  }
  device_ = device.index();
  const c10::ScalarType dtype = c10::typeMetaToScalarType(impl.dtype());
  mixes_ |= dtype_ != c10::ScalarType::Undefined && dtype != dtype_;
  dtype_ = dtype;
  ranked_ |= impl.dim() != 0;
  numel_ += impl.numel();
}

namespace detail {
namespace {

// Returns the calling thread's floating-point control register. torch.set_flush_denormal changes it
// only for the calling thread, but the setting must also apply to kernels on the device's threads.
unsigned float_mode() {
#if defined(__x86_64__)
  return _mm_getcsr();
#else
  return 0;
#endif
}

void set_float_mode([[maybe_unused]] unsigned mode) {
#if defined(__x86_64__)
  _mm_setcsr(mode);
#endif
}

#if defined(__x86_64__)
constexpr unsigned kFloatStatus =
    0x3f;  // the sticky exception flags, which are not part of the mode
#else
constexpr unsigned kFloatStatus = 0;
#endif

constexpr int64_t kCostPerNanosecond = 4;
constexpr int kMaxThreads = std::numeric_limits<decltype(Launch::threads)>::max();

// While a kernel runs, the dispatcher uses only the keys of strided CPU tensors.
constexpr c10::DispatchKeySet kIncluded = c10::default_included_set;
constexpr c10::DispatchKeySet kExcluded =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

c10::impl::LocalDispatchKeySet kernel_keys() {
  c10::impl::PODLocalDispatchKeySet pod{};
  pod.set_included(kIncluded);
  pod.set_excluded(kExcluded);
  return c10::impl::LocalDispatchKeySet(pod);
}

// A launch with the call stack of its call site.
struct SitedLaunch {
  Launch launch;
  orKernelFunction_t kernel;
  const orRepeatable* repeatable;
  CallStack* site;  // owned by the thread that runs the kernel, or by the graph
};

orError_t run_sited(void* arguments) noexcept {
  SitedLaunch& sited = *static_cast<SitedLaunch*>(arguments);
  const std::unique_ptr<CallStack> site(sited.site);
  const LaunchSiteScope scope(*site);
  return sited.kernel(&sited.launch);
}

orError_t replay_sited(void* arguments) noexcept {
  SitedLaunch& sited = *static_cast<SitedLaunch*>(arguments);
  const LaunchSiteScope scope(*sited.site);
  return sited.repeatable->kernel(&sited.launch);
}

void release_sited(void* arguments) noexcept {
  SitedLaunch& sited = *static_cast<SitedLaunch*>(arguments);
  sited.repeatable->release(&sited.launch);
  std::unique_ptr<CallStack>(sited.site).reset();
}

constexpr orRepeatable kRepeatableSited{&replay_sited, &release_sited};

orError_t launch_with_site(orStream_t stream, orKernelFunction_t kernel, const Launch& launch,
                           orLaunchAttributes attributes) {
  auto site = std::make_unique<CallStack>(capture_call_stack());
  const SitedLaunch sited{launch, kernel, attributes.repeatable, site.get()};
  attributes.repeatable = &kRepeatableSited;
  LaunchRecord* const record = launch.record;
  // Release ownership before the launch: when orLaunchKernel returns, the kernel may already have
  // run and deleted the call stack.
  (void)site.release();
  const orError_t error = orLaunchKernel(stream, &run_sited, &sited, sizeof(sited), &attributes);
  // As in launch(), a launch record that is still occupied means that the driver rejected the
  // launch.
  if (error != orSuccess && record->occupied) {
    site.reset(sited.site);
  }
  return error;
}

// Calls the active launch watchers, then passes the launch to the driver.
[[gnu::cold, gnu::noinline]] orError_t launch_watched(orStream_t stream, orKernelFunction_t kernel,
                                                      const Launch& launch,
                                                      const orLaunchAttributes& attributes) {
  if (sanitizes_streams()) {
    sanitize_launch(stream, attributes.name);
  }
  if ((launch_watcher_bits() & kLaunchSites) != 0) {
    return launch_with_site(stream, kernel, launch, attributes);
  }
  return orLaunchKernel(stream, kernel, &launch, sizeof(launch), &attributes);
}

}  // namespace

KernelScope::KernelScope(int threads, unsigned mode, bool on_launching_thread)
    : warning_handler_(nullptr), float_mode_(mode) {
  if (on_launching_thread) {
    if (threads != 0) {
      team_.emplace(threads);
    }
  } else {
    set_team(std::max(threads, 1));
    warning_handler_ = c10::WarningUtils::get_warning_handler();
    c10::WarningUtils::set_warning_handler(kernel_warning_handler());
    float_mode_ = float_mode();
    if (((mode ^ float_mode_) & ~kFloatStatus) != 0) {
      set_float_mode(mode);
    }
  }
  if (at::hasCallbacks()) [[unlikely]] {
    unobserved_.emplace();
  }
  // Below autograd, the launching thread may already have the kernel's keys.
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  if (keys.included_ != kIncluded || !keys.excluded_.has_all(kExcluded)) {
    keys_ = keys;
    c10::impl::_force_tls_local_dispatch_key_set(kernel_keys());
  }
}

KernelScope::~KernelScope() {
  if (keys_.has_value()) {
    c10::impl::_force_tls_local_dispatch_key_set(*keys_);
  }
  if (warning_handler_ != nullptr) {
    c10::WarningUtils::set_warning_handler(warning_handler_);
    if (((float_mode() ^ float_mode_) & ~kFloatStatus) != 0) {
      set_float_mode(float_mode_);
    }
  }
}

void submit(const LaunchSite& site, orStream_t stream, orKernelFunction_t kernel,
            const orRepeatable& repeatable, LaunchRecord* record) {
  Launch launch{.record = record,
                .threads = static_cast<int16_t>(site.serial ? 0 : 1),
                .float_mode = float_mode()};
  uint32_t flags = orLaunchShort;
  uint32_t work_ns = 0;
  const int64_t loop = site.cost < kMoldableCost ? site.cost : site.cost / site.loops;
  const bool moldable =
      site.pointwise && !site.awaited && loop >= kMoldableCost && loop < kTeamCost;
  const bool large = loop >= kParallelCost && !moldable;
  const int team = large || moldable ? std::min<int>(team_size(), kMaxThreads) : 1;
  if (team > 1) {
    yield_team();
    launch.threads = static_cast<int16_t>(team);
    flags = large ? orLaunchParallel : orLaunchMoldable;
    work_ns = static_cast<uint32_t>(
        std::min<int64_t>(site.cost / kCostPerNanosecond, std::numeric_limits<uint32_t>::max()));
  } else if (site.cost < kInlineCost || site.awaited) {
    flags = orLaunchInline;
  } else if (site.cost >= kTeamCost) {
    flags = 0;  // the kernel has one thread, and its duration is unknown
  }
  if (C10_UNLIKELY(site.copy != nullptr)) {
    flags |= orLaunchHasCopy;
  }
  const orLaunchAttributes attributes{site.name, flags | orLaunchHasRepeatable, work_ns,
                                      &repeatable, site.copy};
  if (C10_UNLIKELY(launch_watcher_bits() != 0)) {
    OPENREG_CHECK(launch_watched(stream, kernel, launch, attributes));
    return;
  }
  OPENREG_CHECK(orLaunchKernel(stream, kernel, &launch, sizeof(launch), &attributes));
}

namespace {

constinit AcceptedCalls accepted_calls;

uint64_t call_key(const LaunchSite& site, const AliasPool& aliases) {
  uint64_t key = 0;
  for (const uint64_t part :
       {uint64_t{reinterpret_cast<uintptr_t>(site.name)}, aliases.dtypes(), site.argument_key}) {
    key = (key ^ part) * 0x9e3779b97f4a7c15;
    key ^= key >> 32;
  }
  return key | 1;
}

}  // namespace

void submit_checked(const LaunchSite& site, orStream_t stream, orKernelFunction_t kernel,
                    const orRepeatable& repeatable, LaunchRecord* record) {
  const uint64_t key = call_key(site, record->aliases);
  if (site.check == Check::kNever ||
      (site.check == Check::kNewArguments && accepted_calls.contains(key)) ||
      is_capturing(stream)) {
    submit(site, stream, kernel, repeatable, record);
    return;
  }
  LaunchSite awaited = site;
  awaited.awaited = true;
  // The pointer is shared with the record, because the wait may throw before the kernel has run.
  const auto exception = std::make_shared<std::exception_ptr>();
  record->exception = exception;
  submit(awaited, stream, kernel, repeatable, record);
  synchronize_stream(stream);
  if (*exception != nullptr) {
    std::rethrow_exception(*exception);
  }
  if (site.check == Check::kNewArguments) {
    accepted_calls.add(key);
  }
}

}  // namespace detail
}  // namespace openreg
