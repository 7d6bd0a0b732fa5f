// SPDX-License-Identifier: BSD-3-Clause
//
// Runs the host functions of c10's graphs as kernels. The driver's graph releases their arguments
// when the graph is destroyed.
#include "runtime/c10/graph.h"
#include "runtime/device/openreg_emulation.h"

namespace openreg {
namespace {

struct ReplayFunction {
  void (*run)(void* data);
  void (*release)(void* data);
  void* data;
};

orError_t run(void* arguments) {
  const auto* const function = static_cast<const ReplayFunction*>(arguments);
  function->run(function->data);
  return orSuccess;
}

void release(void* arguments) {
  const auto* const function = static_cast<const ReplayFunction*>(arguments);
  function->release(function->data);
}

constexpr orRepeatable kRepeatable{&run, &release};

orError_t launch(orStream_t stream, void (*run_data)(void* data), void (*release_data)(void* data),
                 void* data) {
  const ReplayFunction function{run_data, release_data, data};
  const orLaunchAttributes attributes{"openreg::begin_replay",
                                      orLaunchInline | orLaunchHasRepeatable, 0, &kRepeatable};
  return orLaunchKernel(stream, &run, &function, sizeof(function), &attributes);
}

[[maybe_unused]] const bool registered = (set_replay_function_launcher(&launch), true);

}  // namespace
}  // namespace openreg
