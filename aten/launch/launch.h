// SPDX-License-Identifier: BSD-3-Clause
//
// Launching: queues a kernel on a stream for an operator's arguments.
//
//   Operands operands;                       // checks the tensors, collects device and sizes
//   operands.add(self); operands.add(other);
//   launch<Closure>({"aten::add.Tensor", cost}, operands, self, other, alpha);
//
// A Closure is built on the launching thread, inside a launch record (launch_record.h), from the
// record's AliasPool and the arguments. It owns everything its kernel needs: aliases, copies of
// lists and strings, scalars. Its result() is called immediately; its run() is called once, later,
// on a thread chosen by the driver, and the closure is then destroyed on that thread. A closure
// must not hold a device tensor: dropping the last reference to one on a worker would free memory
// out of order.
//
// A captured launch (docs/graphs.md) belongs to its graph: the closure runs at each replay, with
// its record, and is destroyed with the graph. Therefore run() must not modify the closure; if it
// does, the closure must also have a repeat() that does not.
//
// Cost, in elementary operations of about a quarter of a nanosecond, decides where a kernel runs:
//   below kInlineCost    on the calling thread, if the stream is idle: cheaper than waking a
//                        worker;
//   below kParallelCost  on the stream's worker, with one thread, or on the executor, if that
//                        already runs the stream;
//   otherwise            on the executor, with a team of torch.get_num_threads().
// A kernel with several consecutive parallel loops has a team if each loop is large enough. A
// pointwise kernel, whose result does not depend on the number of threads, is moldable between
// kMoldableCost and kTeamCost: the driver gives it a team while the host sleeps and a lot of work
// is queued. Other kernels have a fixed number of threads, so that results are reproducible. A
// kernel for which the caller waits anyway (LaunchSite::awaited) runs on the calling thread if the
// stream is idle and the kernel has no team.
//
// Errors. Shapes are checked before the launch. Errors that only the kernel detects (dtypes, the
// range of a scalar, overlapping memory) are thrown by launch() as well, because it waits for the
// first kernel of an operator with a new kind of arguments (Check). Other exceptions from run()
// depend on data; they are stored with the stream and thrown at the next synchronization.
//
// Any thread may call it.
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
// At or above this cost pointwise kernels always have a team, and kernels that still run on one
// thread are not marked as short for the driver.
constexpr int64_t kTeamCost = 512 * 1024;
// Up to this number of elements none of torch's elementwise kernels opens a parallel region, so the
// number of threads need not be set. The limit comes from MKL's VML rather than from torch's own
// loops: after a call to torch.set_num_threads, VML functions parallelize loops of 100 elements or
// more.
constexpr int64_t kSerialIterations = 99;

// Properties of an operator's tensor arguments, collected in one pass.
class Operands {
 public:
  // Adds an input. A 0-dim CPU tensor counts as a scalar; any other tensor that is not on the same
  // openreg device raises torch's error.
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

  // Adds a scalar. It promotes tensors of a lower kind; in ascending order, the kinds are bool,
  // integer, floating-point and complex.
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
  // while it is being built, and so read data that queued kernels have not written yet. This is the
  // case for tensors of several dtypes, and for a scalar of a higher kind than the tensors.
  bool mixes() const {
    return mixes_ || number_kind_ > kind(dtype_) ||
           (!ranked_ && (hosts_mix_ || (on_host_ && host_dtype_ != dtype_)));
  }
  // Returns mixes(), or true for integer tensors: for operators that convert these to floating
  // point.
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
  bool ranked_ = false;  // one of the device tensors has dimensions
  int number_kind_ = 0;
  // 0-dim CPU tensors. If all device tensors are 0-dim, they take part in type promotion like
  // these.
  bool on_host_ = false;
  bool hosts_mix_ = false;
  c10::ScalarType host_dtype_ = c10::ScalarType::Undefined;
  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  int64_t numel_ = 0;
};

// When launch() waits for the kernel and throws its exception. It never waits on a captured stream,
// whose kernels run at a replay.
enum class Check : uint8_t {
  // If the operator has not yet accepted such arguments, that is, tensors of these dtypes with the
  // site's argument_key. Every kernel accepts tensors that are all float or all double.
  kNewArguments,
  kNever,   // the kernel accepts all arguments, or the same kind of call was checked before
  kAlways,  // the kernel probably rejects the arguments, or errors are needed at once
};

struct LaunchSite {
  const char* name;  // the operator's name; static storage
  int64_t cost;
  bool awaited = false;    // the caller synchronizes with the stream immediately
  bool serial = false;     // the kernel opens no parallel region
  bool pointwise = false;  // the result does not depend on the number of threads
  int64_t loops = 1;       // consecutive loops that share the cost
  Check check = Check::kNewArguments;
  // A hash of what the kernel may reject other than dtypes (argument_key.h); 0 means nothing.
  uint64_t argument_key = 0;
  const orCopyDescription* copy = nullptr;  // set if the kernel only moves bytes; for the profiler
};

namespace detail {

// Sets up the thread state for a kernel: the dispatcher uses only CPU kernels below autograd and
// autocast; the kernel has one thread or the executor's team (`threads` is 0 for a serial kernel,
// which needs neither); and the launching thread's flush-denormal mode applies. On threads other
// than the launching one, warnings are stored until the next synchronization. CPU operators called
// by a kernel are hidden from profilers, because the kernel runs within its launch or later.
class KernelScope {
 public:
  KernelScope(int threads, unsigned float_mode, bool on_launching_thread);
  ~KernelScope();
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  std::optional<TeamScope> team_;
  std::optional<c10::impl::LocalDispatchKeySet> keys_;  // the thread's previous keys, if changed
  std::optional<at::DisableRecordFunctionGuard> unobserved_;  // if operators are observed
  c10::WarningHandler* warning_handler_;
  unsigned float_mode_;
};

// The bytes that are passed through the driver's queue.
struct Launch {
  LaunchRecord* record;
  int16_t threads;        // the number of threads of the team; 0 for a serial kernel
  bool replayed = false;  // the closure is kept for other replays of its graph
  unsigned float_mode;    // the launching thread's rounding and denormal modes
};

void submit(const LaunchSite& site, orStream_t stream, orKernelFunction_t kernel,
            const orRepeatable& repeatable, LaunchRecord* record);

// Submits a launch like submit(), but waits for the kernel if site.check requires it.
void submit_checked(const LaunchSite& site, orStream_t stream, orKernelFunction_t kernel,
                    const orRepeatable& repeatable, LaunchRecord* record);

// A closure that calls no operators (pointwise.h) needs no scope on the launching thread.
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

// Runs the Closure at a replay. `arguments` are the launch's bytes.
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

// Returns whether the closure's class is marked as pointwise: it has no sums over elements.
template <class Closure>
constexpr bool kIsPointwise = requires { Closure::kPointwise; };

// Builds Closure(aliases, arguments...), launches it on the current stream of `device` and returns
// its result(). If Closure::overlaps(arguments...) exists, it is added to the site's argument_key;
// it is called after the constructor has resized outputs.
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
    // Because of broadcasting there may be more iterations than elements.
    const int64_t iterations = closure->iterations();
    known.cost = std::max(known.cost, iterations);
    known.serial = iterations <= kSerialIterations;
  }
  known.pointwise |= kIsPointwise<Closure>;
  // Called before the launch: afterwards the closure belongs to the thread that runs it.
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
    // Either the driver rejected the launch, or (OPENREG_LAUNCH_BLOCKING) the kernel ran and
    // failed.
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

// Launches a handwritten kernel: `make` is called with the AliasPool and returns the kernel, a
// callable that owns its arguments. If a call consumes them, the kernel must also have a repeat().
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
