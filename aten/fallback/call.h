// SPDX-License-Identifier: BSD-3-Clause
//
// Analyzes the boxed arguments of a call that falls back: the device, the amount of work, and
// whether the call may combine these tensors. Any thread may call these functions.
#ifndef ATEN_FALLBACK_CALL_H_
#define ATEN_FALLBACK_CALL_H_

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aten/fallback/operator.h"
#include "runtime/c10/generator.h"

namespace openreg {

// Properties of a call that falls back.
struct Call {
  c10::DeviceIndex device = -1;
  int64_t numel = 0;       // the number of elements of all device tensors
  bool has_parts = false;  // whether a tensor is sparse, quantized or nested (tensor_parts.h)
  bool sparse = false;     // whether a tensor is sparse
  bool on_host = false;    // whether an argument is a CPU tensor that is not 0-dim
  bool to_cpu = false;     // whether the call requests a result on the CPU
  bool reports = false;    // whether this call must throw errors about the data
};

// Returns the properties of a call whose first argument is stack[first]. Throws if tensors are on
// several openreg devices, or on a device of another type. Two kinds of CPU tensors are allowed:
// 0-dim tensors, which count as scalars, and arguments that may be on the host.
Call inspect(const Operator& op, const torch::jit::Stack& stack, size_t first);

// A generator argument of the CPU kernel. The generator is created when the kernel runs.
struct Draw {
  size_t argument;
  PhiloxState state;
};

// Replaces openreg devices in the arguments with the CPU, and reserves random numbers for generator
// arguments. Returns the generators to create when the kernel runs.
std::vector<Draw> replace_places(const Operator& op, const c10::FunctionSchema& schema,
                                 const Call& call, torch::jit::Stack& stack, size_t first);

}  // namespace openreg

#endif  // ATEN_FALLBACK_CALL_H_
