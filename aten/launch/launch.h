// SPDX-License-Identifier: BSD-3-Clause
//
// Launching: queues a kernel on a stream for an operator's arguments.
//
//   Operands operands;                       // checks the tensors, collects device and sizes
//   operands.add(self); operands.add(other);
//   launch<Closure>({"aten::add.Tensor", cost}, operands, self, other, alpha);
//
// A Closure is built on the launching thread from the arguments and the AliasPool of a launch
// record (launch_record.h), which also provides its memory. The Closure owns everything that its
// kernel needs: aliases, scalars, and copies of lists and strings. Its result() is called
// immediately. Its run() is called once, later, on a thread chosen by the driver, which then
// destroys the closure. A closure must not own a device tensor: if a worker dropped the last
// reference to the tensor, it would free the memory out of order.
//
// A captured launch (docs/graphs.md) belongs to its graph. The closure runs at each replay and is
// destroyed, together with its record, when the graph is destroyed. Therefore run() must not modify
// the closure. If run() does, the closure must also have a function repeat() that does not.
//
// Cost, in elementary operations of about a quarter of a nanosecond, decides where a kernel runs:
//   below kInlineCost    on the calling thread, if the stream is idle: cheaper than waking a
//                        worker;
//   below kParallelCost  on the stream's worker, with one thread, or on the executor, if that
//                        already runs the stream;
//   otherwise            on the executor, with a team of torch.get_num_threads().
// The cost of a kernel with several consecutive parallel loops counts per loop: it has a team only
// if each loop is large enough. The result of a pointwise kernel does not depend on the number of
// threads. Therefore such a kernel is moldable between kMoldableCost and kTeamCost: the driver
// gives it a team while the host sleeps and a lot of work is queued. Other kernels have a fixed
// number of threads, so that results are reproducible. If the caller waits for the kernel anyway
// (LaunchSite::awaited), the kernel runs on the calling thread, provided that the stream is idle
// and the kernel has no team.
//
// Errors. Shapes are checked before the launch. Some errors are detected only by the kernel:
// unsupported dtypes, scalars out of range, overlapping memory. launch() throws these too, because
// it waits for the first kernel of an operator with a new kind of arguments (Check). Other
// exceptions from run() depend on data; they are stored with the stream and thrown at the next
// synchronization.
//
// Any thread may call launch() and launch_kernel().
#ifndef ATEN_LAUNCH_LAUNCH_H_
#define ATEN_LAUNCH_LAUNCH_H_

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "aten/launch/argument_key.h"
#include "aten/launch/launch_record.h"
#include "aten/launch/team.h"
#include "runtime/c10/error.h"
#include "runtime/c10/stream.h"
#include "runtime/device/openreg_emulation.h"
#include "runtime/emulation/kernel_error.h"

namespace openreg {

constexpr int64_t kInlineCost = 16 * 1024;
constexpr int64_t kMoldableCost = 64 * 1024;
constexpr int64_t kParallelCost = 128 * 1024;
// At or above this cost, pointwise kernels always have a team. Kernels that still run on one thread
// are not marked as short for the driver.
constexpr int64_t kTeamCost = 512 * 1024;
// For up to this number of elements, none of torch's elementwise kernels opens a parallel region,
// so the number of threads need not be set. The limit comes from MKL's VML, not from torch's own
// loops: after a call to torch.set_num_threads, VML functions parallelize loops of 100 elements or
// more.
constexpr int64_t kSerialIterations = 99;

// Properties of an operator's tensor arguments, collected in one pass.
class Operands {
 public:
  // Adds an input. A 0-dim CPU tensor counts as a scalar. For any other tensor that is not on the
  // same openreg device, throws torch's error.
  void add(const at::Tensor& tensor);
  void add(const std::optional<at::Tensor>& tensor) {
    if (tensor.has_value()) {
      add(*tensor);
    }
  }
  void add(at::OptionalTensorRef tensor) {
    if (tensor.has_value()) {
      add(*tensor);
    }
  }
  void add(at::ITensorListRef tensors) {
    for (const at::Tensor& tensor : tensors) {
      add(tensor);
    }
  }
  void add(at::TensorList tensors) {
    for (const at::Tensor& tensor : tensors) {
      add(tensor);
    }
  }
  void add(const c10::List<std::optional<at::Tensor>>& tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      add(tensors.get(i));
    }
  }
  // Ignores an argument that is not a tensor.
  template <class T>
    requires(!std::is_convertible_v<const T&, const at::Tensor&>)
  void add(const T& /*argument*/) {}

  // Adds an output provided by the caller, or an argument that must be on the device regardless of
  // its rank.
  void add_device(const at::Tensor& tensor);
  void add_device(const std::optional<at::Tensor>& tensor) {
    if (tensor.has_value()) {
      add_device(*tensor);
    }
  }
  void add_device(at::ITensorListRef tensors) {
    for (const at::Tensor& tensor : tensors) {
      add_device(tensor);
    }
  }
  void add_device(at::TensorList tensors) {
    for (const at::Tensor& tensor : tensors) {
      add_device(tensor);
    }
  }

  // Adds a scalar. A scalar of a higher kind than the tensors promotes them; in ascending order,
  // the kinds are bool, integer, floating-point and complex.
  void add_scalar(const at::Scalar& scalar) { add_number(scalar.type()); }
  void add_scalar(const std::optional<at::Scalar>& scalar) {
    if (scalar.has_value()) {
      add_number(scalar->type());
    }
  }

  // Returns the device of the tensors, or the current device if there are none.
  c10::DeviceIndex device() const { return device_ >= 0 ? device_ : current_device(); }
  bool on_device() const { return device_ >= 0; }
  // Returns the total number of elements of all device tensors.
  int64_t numel() const { return numel_; }
  // Returns whether a TensorIterator over aliases of the tensors would convert data on the host
  // while it is built. The iterator would then read data that queued kernels have not written yet.
  // This happens for tensors of several dtypes, and for a scalar of a higher kind than the tensors.
  bool mixes() const {
    return mixes_ || number_kind_ > kind(dtype_) ||
           (!ranked_ && (hosts_mix_ || (on_host_ && host_dtype_ != dtype_)));
  }
  // For operators that convert integer tensors to floating point: returns true for such tensors,
  // and otherwise mixes().
  bool converts() const { return mixes() || kind(dtype_) < kReal; }

 private:
  static constexpr int kReal = 2;

  static int kind(c10::ScalarType dtype) {
    return c10::isFloatingType(dtype)                   ? kReal
           : c10::isComplexType(dtype)                  ? kReal + 1
           : c10::isIntegralType(dtype, /*bool*/ false) ? kReal - 1
           : dtype == c10::ScalarType::Bool             ? 0
                                                        : -1;
  }
  void add_number(c10::ScalarType dtype) { number_kind_ = std::max(number_kind_, kind(dtype)); }

  c10::DeviceIndex device_ = -1;
  bool mixes_ = false;
  bool ranked_ = false;  // whether a device tensor has dimensions
  int number_kind_ = 0;
  // State of the 0-dim CPU tensors. Type promotion treats 0-dim device tensors in the same way, if
  // there are no device tensors with dimensions.
  bool on_host_ = false;
  bool hosts_mix_ = false;
  c10::ScalarType host_dtype_ = c10::ScalarType::Undefined;
  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  int64_t numel_ = 0;
};

// Specifies when launch() waits for the kernel and throws its exception. It never waits on a
// captured stream, whose kernels run only at a replay.
enum class Check : uint8_t {
  // Waits if the operator has not yet accepted a call with the same dtypes and the same
  // argument_key. Never waits if all tensors are float or all are double and argument_key is 0,
  // because every kernel accepts such calls.
  kNewArguments,
  kNever,   // the kernel accepts all arguments, or the same kind of call was checked before
  kAlways,  // the kernel probably rejects the arguments, or this call must throw errors
};

struct LaunchSite {
  const char* name;  // the operator's name, in static storage
  int64_t cost;
  bool awaited = false;    // whether the caller synchronizes with the stream immediately
  bool serial = false;     // whether the kernel opens no parallel region
  bool pointwise = false;  // whether the result is independent of the number of threads
  int64_t loops = 1;       // number of consecutive loops that share the cost
  Check check = Check::kNewArguments;
  // A hash of everything except dtypes that the kernel may reject (argument_key.h). 0 means that it
  // rejects nothing.
  uint64_t argument_key = 0;
  const orCopyDescription* copy = nullptr;  // for the profiler, if the kernel only moves bytes
};

namespace detail {

// Sets up the thread state for a kernel:
// - The dispatcher uses only CPU kernels below autograd and autocast.
// - The kernel has one thread or the executor's team. A serial kernel (`threads` is 0) needs
//   neither.
// - The launching thread's flush-denormal mode applies.
// - On threads other than the launching one, warnings are stored until the next synchronization.
// - CPU operators that the kernel calls are hidden from profilers, because the kernel runs within
//   its launch or later.
class KernelScope {
 public:
  KernelScope(int threads, unsigned float_mode, bool on_launching_thread);
  ~KernelScope();
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  std::optional<TeamScope> team_;
  std::optional<c10::impl::LocalDispatchKeySet> keys_;  // the thread's previous keys, if changed
  std::optional<at::DisableRecordFunctionGuard> unobserved_;  // set while operators are observed
  c10::WarningHandler* warning_handler_;
  unsigned float_mode_;
};

// The data of a launch that is passed through the driver's queue.
struct Launch {
  LaunchRecord* record;
  int16_t threads;        // the number of threads of the team; 0 for a serial kernel
  bool replayed = false;  // the closure is kept for later replays of its graph
  unsigned float_mode;    // the launching thread's rounding and denormal modes
};

void submit(const LaunchSite& site, orStream_t stream, orKernelFunction_t kernel,
            const orRepeatable& repeatable, LaunchRecord* record);

// Submits a launch like submit(), but waits for the kernel if site.check requires it.
void submit_checked(const LaunchSite& site, orStream_t stream, orKernelFunction_t kernel,
                    const orRepeatable& repeatable, LaunchRecord* record);

// Whether the closure calls no operators (pointwise.h). Such a closure needs no KernelScope on the
// launching thread.
template <class Closure>
constexpr bool kIsLeaf = requires { Closure::kLeaf; };

// Runs the Closure in the record and releases the record, even after an exception.
template <class Closure>
orError_t run_closure(void* arguments) noexcept {
  const Launch launch = *static_cast<const Launch*>(arguments);
  const bool home = launch.replayed ? orKernelOnHost() != 0 : launch.record->is_home();
  orError_t error = orSuccess;
  {
    std::optional<KernelScope> scope;
    if (!kIsLeaf<Closure> || !home || launch.threads != 0) {
      const bool lacks_team = launch.threads > 1 && orKernelHasTeam() == 0;
      scope.emplace(lacks_team ? 1 : launch.threads, launch.float_mode, home);
    }
    auto* const closure = std::launder(reinterpret_cast<Closure*>(launch.record->closure));
    try {
      if constexpr (requires { closure->repeat(); }) {
        if (launch.replayed) {
          closure->repeat();
        } else {
          closure->run();
        }
      } else {
        closure->run();
      }
    } catch (...) {
      if (launch.record->exception != nullptr) {
        *launch.record->exception = std::current_exception();
      } else {
        error = fail_kernel(std::current_exception());
      }
    }
    if (launch.replayed) [[unlikely]] {
      return error;
    }
    closure->~Closure();
    launch.record->occupied = false;
  }
  launch.record->release(home);
  return error;
}

// Runs the Closure at a replay. `arguments` points to the launch's data.
template <class Closure>
orError_t replay_closure(void* arguments) noexcept {
  static_cast<Launch*>(arguments)->replayed = true;
  return run_closure<Closure>(arguments);
}

template <class Closure>
void release_closure(void* arguments) noexcept {
  LaunchRecord* const record = static_cast<const Launch*>(arguments)->record;
  std::launder(reinterpret_cast<Closure*>(record->closure))->~Closure();
  record->occupied = false;
  record->release(record->is_home());
}

template <class Closure>
constexpr orRepeatable kRepeatable{&replay_closure<Closure>, &release_closure<Closure>};

}  // namespace detail

// Whether the closure's class is marked as pointwise, that is, its kernel does not sum over
// elements.
template <class Closure>
constexpr bool kIsPointwise = requires { Closure::kPointwise; };

// Builds Closure(aliases, arguments...), launches it on the current stream of `device` and returns
// its result(). If Closure::overlaps(arguments...) exists, its value is added to the site's
// argument_key. It is called after the constructor, which may resize outputs.
template <class Closure, class... Arguments>
auto launch(const LaunchSite& site, c10::DeviceIndex device, Arguments&&... arguments) {
  static_assert(sizeof(Closure) <= LaunchRecord::kClosureBytes,
                "the closure is too large for a launch record");
  static_assert(alignof(Closure) <= 16);
  LaunchRecord* const record = LaunchRecord::acquire();
  Closure* closure = nullptr;
  try {
    closure = ::new (static_cast<void*>(record->closure))
        Closure(record->aliases, std::forward<Arguments>(arguments)...);
  } catch (...) {
    record->release(/*at_home=*/true);
    throw;
  }
  record->occupied = true;
  LaunchSite known = site;
  if constexpr (requires { closure->iterations(); }) {
    // Broadcasting may cause more iterations than the tensors have elements.
    const int64_t iterations = closure->iterations();
    known.cost = std::max(known.cost, iterations);
    known.serial = iterations <= kSerialIterations;
  }
  known.pointwise |= kIsPointwise<Closure>;
  // Call result() before the launch: afterwards the closure belongs to the thread that runs it.
  auto result = closure->result();
  if constexpr (requires { Closure::overlaps(arguments...); }) {
    known.argument_key = argument_key(known.argument_key, Closure::overlaps(arguments...));
  }
  const bool accepted = known.check == Check::kNewArguments && known.argument_key == 0 &&
                        record->aliases.has_common_dtype();
  try {
    (C10_LIKELY(accepted) ? detail::submit : detail::submit_checked)(
        known, current_native_stream(device), &detail::run_closure<Closure>,
        detail::kRepeatable<Closure>, record);
  } catch (...) {
    // If the record is occupied, the driver rejected the launch. Otherwise the kernel ran and
    // failed (OPENREG_LAUNCH_BLOCKING).
    if (record->occupied) {
      closure->~Closure();
      record->occupied = false;
      record->release(/*at_home=*/true);
    }
    throw;
  }
  return result;
}

namespace detail {

template <class Kernel>
struct FunctionClosure {
  template <class Make>
  FunctionClosure(AliasPool& aliases, Make&& make) : kernel(make(aliases)) {}
  void run() { kernel(); }
  void repeat()
    requires requires(Kernel& repeated) { repeated.repeat(); }
  {
    kernel.repeat();
  }
  std::nullptr_t result() const { return nullptr; }
  Kernel kernel;
};

}  // namespace detail

// Launches a handwritten kernel. `make` is called with the AliasPool and returns the kernel, a
// callable that owns its arguments. If a call to the kernel consumes the arguments, the kernel must
// also have a function repeat().
//   launch_kernel({"aten::foo", cost}, device, [&](AliasPool& aliases) {
//     return [out = aliases.alias(out), self = aliases.alias(self)] { at::cpu::foo_outf(self, out);
//     };
//   });
template <class Make>
void launch_kernel(const LaunchSite& site, c10::DeviceIndex device, Make&& make) {
  using Kernel = std::invoke_result_t<Make, AliasPool&>;
  launch<detail::FunctionClosure<Kernel>>(site, device, std::forward<Make>(make));
}

}  // namespace openreg

#endif  // ATEN_LAUNCH_LAUNCH_H_
