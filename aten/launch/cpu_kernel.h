// SPDX-License-Identifier: BSD-3-Clause
//
// Launching a function of torch as it is: an out= variant or an in-place operator of the CPU, whose
// outputs exist already and have the right sizes.
//
//   launch_cpu({"aten::foo", cost}, device, &at::cpu::foo_outf, self, alpha, out);
//
// What the function may refuse when it runs is part of the launch's argument_key: scalars that a
// dtype does not hold, outputs that overlap with themselves or an input.
// Threads: any; the function runs where the driver says, on aliases and copies of the arguments.
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

// Of an argument for a parameter of this type: its width, if it is a scalar; its overlap with all
// arguments, if it is an output.
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
