// SPDX-License-Identifier: BSD-3-Clause
//
// Launching: from an operator's arguments to a kernel in a stream's queue.
//
//   Operands operands;                       // one pass over the tensors: device, sizes, checks
//   operands.add(self); operands.add(other);
//   launch<Closure>({"aten::add.Tensor", cost}, operands, self, other, alpha);
//
// A Closure is built on the launching thread, inside a launch record (launch_record.h), from the
// record's AliasPool and the arguments. It owns all that its kernel needs: aliases, copies of lists
// and strings, scalars. Its result() is taken at once; its run() is called later, once, on the
// thread that the driver chooses; then it is destroyed there. A closure must not hold a device
// tensor: dropping the last reference of one on a worker would free memory out of order.
//
// A captured launch (docs/graphs.md) belongs to its graph: the closure runs at each replay, with
// its record, and is destroyed with the graph. So run() leaves the closure as it was; one that uses
// something up has a repeat() beside it, which does not.
//
// Cost, in elementary operations of about a quarter of a nanosecond, decides where a kernel runs:
//   below kInlineCost    on the caller, if the stream is idle: cheaper than waking a worker;
//   below kParallelCost  on the stream's worker, with one thread, or on the executor, if that has
//                        the stream already;
//   above                on the executor, with a team of torch.get_num_threads().
// What takes several parallel loops, one after the other, has a team if each is worth it. A
// pointwise kernel, whose numbers do not depend on who computes them, is moldable between
// kMoldableCost and kTeamCost: the driver gives it a team while the host sleeps and much is queued.
// Other kernels have a fixed number of threads, so that a program has the same result each time. A
// kernel that the caller waits for anyway (LaunchSite::awaited) runs on the caller, if the stream
// is idle and there is no team for it.
//
// Errors. What shapes tell is checked before the launch. What only the kernel checks (dtypes, the
// range of a scalar, memory that overlaps) is thrown by launch() as well: it waits for the first
// kernel of an operator with arguments of a new kind (Check). Later exceptions of run() depend on
// data; they are kept with the stream and thrown at the next synchronization.
//
// Threads: any.
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
// From here on pointwise kernels have a team in any case, and what runs on one thread nevertheless
// is not short for the driver.
constexpr int64_t kTeamCost = 512 * 1024;
// Up to so many elements no elementwise kernel of torch opens a parallel region, so that the number
// of threads need not be set. The smallest grain is not that of torch's own loops: the functions of
// MKL's VML within them share out 100 numbers and more, once torch.set_num_threads was called.
constexpr int64_t kSerialIterations = 99;

// What is known of an operator's tensor arguments after one pass over them.
class Operands {
 public:
  // An input. A CPU tensor of zero dimensions counts as a number; any other tensor that is not on
  // the device, or is on another device, is refused with torch's words.
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
  // Not a tensor: nothing to know.
  template <class T>
    requires(!std::is_convertible_v<const T&, const at::Tensor&>)
  void add(const T& /*argument*/) {}

  // An output given by the caller, or an argument that must be on the device whatever its rank.
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

  // A number: it makes tensors of a lower kind (bool, integer, real, complex) be converted.
  void add_scalar(const at::Scalar& scalar) { add_number(scalar.type()); }
  void add_scalar(const std::optional<at::Scalar>& scalar) {
    if (scalar.has_value()) {
      add_number(scalar->type());
    }
  }

  // The device of the tensors; the current one if there was none.
  c10::DeviceIndex device() const { return device_ >= 0 ? device_ : current_device(); }
  bool on_device() const { return device_ >= 0; }
  // Elements of all device tensors together.
  int64_t numel() const { return numel_; }
  // Whether a TensorIterator over aliases of these would convert data while it is built, on the
  // host, which would read what the queue has not produced yet. Tensors of several dtypes, or a
  // number of a higher kind than the tensors:
  bool mixes() const {
    return mixes_ || number_kind_ > kind(dtype_) ||
           (!ranked_ && (hosts_mix_ || (on_host_ && host_dtype_ != dtype_)));
  }
  // The same, or integers, for operators that make them real:
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
  // CPU tensors of zero dimensions: among device tensors without dimensions they count like these.
  bool on_host_ = false;
  bool hosts_mix_ = false;
  c10::ScalarType host_dtype_ = c10::ScalarType::Undefined;
  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  int64_t numel_ = 0;
};

// When launch() waits for the kernel and throws its exception. Never on a captured stream, whose
// kernels run at a replay.
enum class Check : uint8_t {
  // If the operator has not accepted such arguments yet: tensors of these dtypes, and the site's
  // argument_key. Tensors of one dtype, float or double, are accepted by every kernel.
  kNewArguments,
  kNever,   // no argument is refused, or a call like this one has been checked already
  kAlways,  // the kernel probably refuses these arguments, or its results are needed at once
};

struct LaunchSite {
  const char* name;  // of the operator; static storage
  int64_t cost;
  bool awaited = false;    // the caller synchronizes with the stream at once
  bool serial = false;     // the kernel opens no parallel region, however many threads it may have
  bool pointwise = false;  // no number of the result depends on how many threads compute it
  int64_t loops = 1;       // that share the cost, one after the other
  Check check = Check::kNewArguments;
  // What the kernel may refuse besides dtypes, as a hash (argument_key.h); 0: nothing.
  uint64_t argument_key = 0;
  const orCopyDescription* copy = nullptr;  // of a kernel that only moves bytes, for the profiler
};

namespace detail {

// What every kernel finds on its thread: only CPU kernels below autograd and autocast, one thread
// or the executor's team (`threads` 0: a serial kernel does not care), the launching thread's
// flush-denormal mode; away from that thread, warnings are kept for the next synchronization. No
// profiler sees the operators of the CPU that a kernel calls: it runs within its launch or later.
class KernelScope {
 public:
  KernelScope(int threads, unsigned float_mode, bool on_launching_thread);
  ~KernelScope();
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  std::optional<TeamScope> team_;
  std::optional<c10::impl::LocalDispatchKeySet> keys_;  // of the thread, if others were needed
  std::optional<at::DisableRecordFunctionGuard> unobserved_;  // if somebody observes operators
  c10::WarningHandler* warning_handler_;
  unsigned float_mode_;
};

// The bytes that travel through the driver's queue.
struct Launch {
  LaunchRecord* record;
  int16_t threads;        // of the team, if it gets one
  bool replayed = false;  // the closure stays for other replays of its graph
  unsigned float_mode;    // of the launching thread: rounding and denormals
};

void submit(const LaunchSite& site, orStream_t stream, orKernelFunction_t kernel,
            const orRepeatable& repeatable, LaunchRecord* record);

// The same where site.check may ask to wait.
void submit_checked(const LaunchSite& site, orStream_t stream, orKernelFunction_t kernel,
                    const orRepeatable& repeatable, LaunchRecord* record);

// A closure that calls no operator (pointwise.h) needs no scope on the launching thread.
template <class Closure>
constexpr bool kIsLeaf = requires { Closure::kLeaf; };

// Runs Closure in the record and returns the record, whatever happens.
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

// At each replay, with bytes as they were launched.
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

// Whether the closure's class says so: it then has no sum over elements.
template <class Closure>
constexpr bool kIsPointwise = requires { Closure::kPointwise; };

// Builds Closure(aliases, arguments...), launches it on the current stream of the operands' device
// and returns its result(). Closure::overlaps(arguments...), if it has that, is added to the site's
// argument_key: of arguments whose sizes the constructor changes.
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
    // Broadcasting makes more of the operands than they have elements.
    const int64_t iterations = closure->iterations();
    known.cost = std::max(known.cost, iterations);
    known.serial = iterations <= kSerialIterations;
  }
  known.pointwise |= kIsPointwise<Closure>;
  // Before the launch: afterwards the closure belongs to the thread that runs it.
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
    // Either the driver refused the launch, or (OPENREG_LAUNCH_BLOCKING) the kernel ran and failed.
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

// For hand-written kernels: `make` is called with the AliasPool and returns the kernel, a callable
// that owns its arguments; with a repeat() if a call uses them up.
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
