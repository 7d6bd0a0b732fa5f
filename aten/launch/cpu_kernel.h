// SPDX-License-Identifier: BSD-3-Clause
//
// Launches one of torch's CPU functions unchanged. The function must be an out= variant or an
// in-place operator whose outputs already exist and have the right sizes.
//
//   launch_cpu({"aten::foo", cost}, device, &at::cpu::foo_outf, self, alpha, out);
//
// The launch's argument_key covers everything that the function may reject when it runs: scalars
// that a dtype cannot represent, and outputs that overlap with themselves or with an input. Any
// thread may call launch_cpu(). The function runs on a thread chosen by the driver, on aliases and
// copies of the arguments.
#ifndef ATEN_LAUNCH_CPU_KERNEL_H_
#define ATEN_LAUNCH_CPU_KERNEL_H_

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "aten/launch/argument_key.h"
#include "aten/launch/launch.h"
#include "aten/launch/owned.h"

namespace openreg {
namespace detail {

// Returns the key of an argument for a parameter of type Parameter: for a scalar, its width; for an
// output, its overlap with all arguments.
template <class Parameter, class Argument, class... Arguments>
uint64_t parameter_key(const Argument& argument, const Arguments&... arguments) {
  if constexpr (std::is_same_v<Parameter, at::Tensor&>) {
    return overlap_key(argument, arguments...);
  } else if constexpr (requires { width_of(argument); } && !std::is_arithmetic_v<Argument>) {
    return width_of(argument);
  } else {
    return 0;
  }
}

template <class Result, class... Parameters>
class CpuCall {
 public:
  using Function = Result (*)(Parameters...);

  template <class... Arguments>
  CpuCall(AliasPool& aliases, Function function, const Arguments&... arguments)
      : function_(function), arguments_{Owned<Parameters>(aliases, arguments)...} {}

  void operator()() { call(std::index_sequence_for<Parameters...>()); }

 private:
  template <size_t... kIndices>
  void call(std::index_sequence<kIndices...> /*indices*/) {
    (void)function_(std::get<kIndices>(arguments_)...);
  }

  Function function_;
  std::tuple<Owned<Parameters>...> arguments_;
};

}  // namespace detail

template <class Result, class... Parameters, class... Arguments>
void launch_cpu(const LaunchSite& site, c10::DeviceIndex device, Result (*function)(Parameters...),
                const Arguments&... arguments) {
  LaunchSite known = site;
  known.argument_key = argument_key(detail::parameter_key<Parameters>(arguments, arguments...)...);
  launch_kernel(known, device, [&](AliasPool& aliases) {
    return detail::CpuCall<Result, Parameters...>(aliases, function, arguments...);
  });
}

}  // namespace openreg

#endif  // ATEN_LAUNCH_CPU_KERNEL_H_
