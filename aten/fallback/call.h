// SPDX-License-Identifier: BSD-3-Clause
//
// One call of an operator that falls back, as its boxed arguments tell: on which device it runs,
// how much there is to do, whether its tensors may meet. Threads: any.
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

struct Call {
  c10::DeviceIndex device = -1;
  int64_t numel = 0;       // of all device tensors
  bool has_parts = false;  // a tensor is sparse, quantized or nested (tensor_parts.h)
  bool sparse = false;     // a tensor is sparse
  bool on_host = false;    // a tensor with dimensions is the CPU's
  bool to_cpu = false;     // the operator was asked for a result on the CPU
  bool reports = false;    // the caller wants to know at once if the data is wrong
};

// One pass over the arguments. Tensors of several openreg devices are refused, and tensors of other
// devices, except 0-dim CPU tensors, which count as scalars, and arguments that may be on the host.
Call inspect(const Operator& op, const torch::jit::Stack& stack, size_t first);

// A generator that an operator's CPU kernel gets, made where and when that runs.
struct Draw {
  size_t argument;
  PhiloxState state;
};

// Replaces arguments that are not tensors but name the device. Returns what is to be drawn.
std::vector<Draw> replace_places(const Operator& op, const c10::FunctionSchema& schema,
                                 const Call& call, torch::jit::Stack& stack, size_t first);

}  // namespace openreg

#endif  // ATEN_FALLBACK_CALL_H_
