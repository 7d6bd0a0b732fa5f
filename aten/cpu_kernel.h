// SPDX-License-Identifier: BSD-3-Clause
//
// Launching a function of torch as it is: an out= variant or an in-place operator of the CPU, whose
// outputs exist already and have the right sizes.
//
//   launch_cpu({"aten::foo", cost}, device, &at::cpu::foo_outf, self, alpha, out);
//
// Threads: any; the function runs where the driver says, on aliases and copies of the arguments.
#ifndef ATEN_CPU_KERNEL_H_
#define ATEN_CPU_KERNEL_H_

#include <cstddef>
#include <tuple>
#include <utility>

#include "aten/launch.h"
#include "aten/owned.h"

namespace openreg {
namespace detail {

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
  launch_kernel(site, device, [&](AliasPool& aliases) {
    return detail::CpuCall<Result, Parameters...>(aliases, function, arguments...);
  });
}

}  // namespace openreg

#endif  // ATEN_CPU_KERNEL_H_
