// SPDX-License-Identifier: BSD-3-Clause
//
// In-place random operators: uniform_, normal_ and so on.
//
// The random numbers come from the device's generator, never from the CPU's. A launch reserves a
// range of the generator's sequence. When the kernel runs, it seeds a Mersenne twister from that
// range, and the CPU kernel draws from the twister (runtime/c10/generator.h). One boxed function
// implements all these operators, because their first argument is the tensor to fill, and the
// others are scalars. Other random operators use the fallback, which handles generators in the same
// way. Any thread may call these operators.
#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <string>
#include <utility>

#include "aten/launch/argument_key.h"
#include "aten/launch/launch.h"
#include "aten/launch/owned.h"
#include "runtime/c10/generator.h"

namespace openreg {
namespace {

using torch::jit::Stack;

// The cost of one random number. Generating one takes a few nanoseconds.
constexpr int64_t kCostPerElement = 16;

struct RandomKernel {
  c10::OperatorHandle handle;
  Stack stack;
  size_t generator;
  PhiloxState state;

  void operator()() { call(stack); }
  void repeat() const {
    Stack again = stack;
    call(again);
  }

 private:
  void call(Stack& arguments) const {
    arguments[generator] = make_cpu_generator(state);
    handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &arguments);
  }
};

void fill_randomly(const c10::OperatorHandle& handle, Stack* stack) {
  const auto& parameters = handle.schema().arguments();
  Stack arguments = torch::jit::pop(*stack, parameters.size());
  const at::Tensor self = arguments[0].toTensor();
  Operands operands;
  size_t generator = 0;
  bool fits = true;
  uint64_t key = argument_key(range_key(arguments), overlap_of(self));
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isTensor()) {
      operands.add(arguments[i].toTensor());
      fits &= at::is_expandable_to(arguments[i].toTensor().sizes(), self.sizes());
    } else if (arguments[i].isInt() && self.scalar_type() == c10::kBool) {
      // Only tensors of dtype bool reject integers that programs commonly pass for other dtypes.
      key = argument_key(key, static_cast<uint64_t>(arguments[i].toInt()));
    }
    if (parameters[i].name() == "generator") {
      generator = i;
    }
  }
  const PhiloxState state =
      reserve(arguments[generator].toOptional<at::Generator>(), operands.device(),
              self.numel() == 0 ? 0 : kCpuGeneratorNumbers);
  // Launch the kernel even if there are no elements, because it checks the dtype.
  const LaunchSite site{.name = handle.schema().name().c_str(),
                        .cost = self.numel() * kCostPerElement,
                        .check = fits ? Check::kNewArguments : Check::kAlways,
                        .argument_key = key};
  launch_kernel(site, operands.device(), [&](AliasPool& aliases) {
    for (c10::IValue& argument : arguments) {
      if (argument.isTensor()) {
        argument = own_tensor(aliases, argument.toTensor());
      }
    }
    return RandomKernel{handle, std::move(arguments), generator, state};
  });
  stack->emplace_back(self);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  for (const char* name :
       {"uniform_", "normal_", "bernoulli_.float", "bernoulli_.Tensor", "random_", "random_.from",
        "random_.to", "cauchy_", "log_normal_", "exponential_", "geometric_"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&fill_randomly>());
  }
}

}  // namespace openreg
