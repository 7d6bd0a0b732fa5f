// SPDX-License-Identifier: BSD-3-Clause
#include "aten/fallback/queued_call.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>

#include <cstddef>
#include <exception>
#include <utility>
#include <vector>

#include "aten/fallback/boxed_tensors.h"
#include "aten/fallback/host_arguments.h"
#include "aten/fallback/policy.h"
#include "aten/launch/argument_key.h"
#include "aten/launch/launch.h"
#include "aten/launch/owned.h"
#include "aten/launch/store.h"
#include "aten/structured/structured_table.h"
#include "aten/tensors/factories.h"
#include "aten/tensors/tensor_parts.h"

namespace openreg {
namespace {

using torch::jit::Stack;

// Returns the operator with a qualified name, such as "aten::add.Tensor".
std::optional<c10::OperatorHandle> find_schema(std::string_view name) {
  const size_t dot = name.find('.');
  return c10::Dispatcher::singleton().findSchema(c10::OperatorName(
      std::string(name.substr(0, dot)),
      dot == std::string_view::npos ? std::string() : std::string(name.substr(dot + 1))));
}

// Returns a key that describes how the outputs overlap with themselves and with other arguments,
// after they have been resized.
uint64_t written_overlaps(const AliasOperator& op, const Stack& arguments) {
  uint64_t key = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!op.writes[i]) {
      continue;
    }
    for_each_tensor(arguments[i], [&](const at::Tensor& output) {
      if (!output.defined()) {
        return;
      }
      key = argument_key(key, has_parts(output) ? 0 : overlap_of(output));
      for (const c10::IValue& argument : arguments) {
        for_each_tensor(argument, [&](const at::Tensor& other) {
          if (other.defined() && !has_parts(output) && !has_parts(other)) {
            key = argument_key(key, overlap_of(output, other));
          }
        });
      }
    });
  }
  return key;
}

// Returns the meta tensor that a Meta kernel gets for this argument. CPU scalar tensors are passed
// unchanged, because type promotion treats them as scalars.
at::Tensor meta_of(const at::Tensor& tensor) {
  if (!is_device(tensor)) {
    return tensor;
  }
  at::Tensor meta =
      at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  if (tensor.is_conj()) {
    meta._set_conj(true);
  }
  if (tensor.is_neg()) {
    meta._set_neg(true);
  }
  return meta;
}

// A call of the CPU kernel through the dispatcher. Its outputs are aliases of tensors that the
// caller already has.
struct BoxedCall {
  c10::OperatorHandle handle;
  Stack stack;
  std::vector<Draw> draws;

  void operator()() { run(stack); }
  void repeat() const {
    Stack again = stack;
    run(again);
  }
  // Runs the kernel on the arguments on `stack` and replaces them with the results.
  void run(Stack& stack) const {
    for (const Draw& draw : draws) {
      stack[draw.argument] = make_cpu_generator(draw.state);
    }
    std::vector<std::pair<at::Tensor, std::pair<bool, bool>>> outputs;
    const auto& arguments = handle.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].alias_info() != nullptr && stack[i].isTensor() &&
          stack[i].toTensor().defined() && stack[i].toTensor().is_complex()) {
        const at::Tensor& output = stack[i].toTensor();
        outputs.emplace_back(output, std::pair(output.is_conj(), output.is_neg()));
      }
    }
    handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    for (const auto& [output, bits] : outputs) {
      materialize_lazy_bits(output, bits.first, bits.second);
    }
  }
};

// A BoxedCall whose results were already returned to the caller, because an earlier call provided
// their metadata.
struct ExpectedCall {
  BoxedCall call;
  AliasOperator* op;
  std::shared_ptr<const OutputMetadata> expected;
  std::vector<at::Tensor> results;  // aliases; undefined if the result is not a new tensor

  void operator()() { run(call.stack); }
  void repeat() const {
    Stack again = call.stack;
    run(again);
  }

 private:
  void run(Stack& stack) const {
    const Stack arguments = stack;
    std::vector<Extent> before;
    for (const c10::IValue& argument : arguments) {
      before.push_back(extent(argument));
    }
    call.run(stack);
    for (size_t i = 0; i < arguments.size(); ++i) {
      check(extent(arguments[i]) == before[i]);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const at::Tensor& result = stack[i].toTensor();
      const OutputMetadata::Result& expected_result = expected->results[i];
      if (expected_result.argument.has_value()) {
        check(result.is_same(arguments[*expected_result.argument].toTensor()));
      } else if (!expected_result.shape.has_value()) {
        check(!result.defined());
      } else {
        check(result.defined() && result.sizes() == expected_result.shape->sizes &&
              result.scalar_type() == expected_result.dtype);
        store(result, results[i]);
      }
    }
  }

  // The tensor properties that resizing changes.
  using Extent = std::pair<at::DimVector, const void*>;
  static Extent extent(const c10::IValue& argument) {
    return argument.isTensor() && argument.toTensor().defined()
               ? Extent(argument.toTensor().sizes(), argument.toTensor().storage().data())
               : Extent();
  }

  void check(bool kept) const {
    if (!kept) {
      op->inconsistent.store(true, std::memory_order_relaxed);
      TORCH_CHECK(false, "openreg: ", op->name,
                  " returned results whose metadata differs from an earlier call with arguments of "
                  "the same sizes and dtypes. From now on the host waits for this operator: repeat "
                  "the failed call, and report this operator to the developers of torch_openreg");
    }
  }
};

void own_tensors(AliasPool& aliases, Stack& arguments) {
  for (c10::IValue& value : arguments) {
    replace_tensors(value, [&](const at::Tensor& tensor) { return own_tensor(aliases, tensor); });
  }
}

// Queues the CPU kernel of a call with these arguments. `overlaps` is the key from
// written_overlaps().
void queue(const AliasOperator& op, const Call& call, const c10::OperatorHandle& handle,
           Stack arguments, uint64_t overlaps) {
  // Some kernels throw an error if these settings are on.
  const at::Context& context = at::globalContext();
  const uint64_t flags = 2 * static_cast<uint64_t>(context.deterministicAlgorithms()) +
                         static_cast<uint64_t>(context.deterministicAlgorithmsWarnOnly());
  // The key must not be 0: launch() would skip the check for common dtypes, which these operators
  // may not support.
  const uint64_t key = argument_key(1, overlaps, range_key(arguments), flags);
  launch_kernel({.name = op.name.c_str(),
                 .cost = call.numel * kCostPerElement,
                 .check = call.reports ? Check::kAlways : Check::kNewArguments,
                 .argument_key = key},
                call.device, [&](AliasPool& aliases) {
                  own_tensors(aliases, arguments);
                  return BoxedCall{handle, std::move(arguments), {}};
                });
}

// Makes aliases for a launch, with the requires_grad flags of their tensors. The pool reuses its
// aliases for other calls, so an alias with the flag must be a separate object. Each tensor gets
// one.
class GradientAliases {
 public:
  explicit GradientAliases(AliasPool& pool) : pool_(pool) {}

  at::Tensor own(const at::Tensor& tensor) {
    at::Tensor alias = own_tensor(pool_, tensor);
    if (!is_device(tensor) || !tensor.requires_grad()) {
      return alias;
    }
    for (const auto& [known, flagged] : flagged_) {
      if (known == tensor.unsafeGetTensorImpl()) {
        return flagged;
      }
    }
    alias = at::Tensor(alias.unsafeGetTensorImpl()->shallow_copy_and_detach(
        c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true));
    alias.set_requires_grad(true);
    flagged_.emplace_back(tensor.unsafeGetTensorImpl(), alias);
    return alias;
  }

 private:
  AliasPool& pool_;
  std::vector<std::pair<const c10::TensorImpl*, at::Tensor>> flagged_;
};

}  // namespace

AliasOperator::AliasOperator(const c10::OperatorHandle& handle)
    : Operator(handle), cacheable(is_cacheable(handle)) {
  const StructuredGroup* const group = random ? nullptr : find_structured(name);
  if (group == nullptr) {
    return;
  }
  if (name == group->functional) {
    variant = find_schema(group->out);
    path = variant.has_value() ? MetaPath::kFunctional : MetaPath::kUnknown;
  } else if (name == group->out) {
    variant = find_schema(group->functional);
    path = variant.has_value() ? MetaPath::kOut : MetaPath::kUnknown;
  } else {
    path = MetaPath::kInplace;
  }
}

bool queue_by_meta(AliasOperator& op, const c10::OperatorHandle& handle, const Call& call,
                   Stack* stack) {
  const size_t count = handle.schema().arguments().size();
  const size_t first = stack->size() - count;
  Stack arguments(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());

  Stack metas = arguments;
  for (c10::IValue& value : metas) {
    replace_tensors(value, meta_of);
  }
  Stack read;  // meta tensors of the arguments that the operator only reads
  // The arguments that the operator writes, as pairs of meta tensor and tensor. They are among the
  // results.
  std::vector<std::pair<at::Tensor, at::Tensor>> written;
  for (size_t i = 0; i < count; ++i) {
    if (op.writes[i] && metas[i].isTensor()) {
      const at::Tensor& tensor = arguments[i].toTensor();
      // The Meta kernel resizes an empty tensor without a warning. The tensor itself is resized
      // below.
      if (op.path == MetaPath::kOut) {
        metas[i] = at::detail::empty_meta({0}, tensor.scalar_type());
      }
      written.emplace_back(metas[i].toTensor(), tensor);
    } else {
      read.push_back(metas[i]);
    }
  }
  try {
    handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &metas);
  } catch (const std::exception& error) {
    if (is_interrupt(error)) {
      throw;
    }
    return false;
  }

  Stack results;
  if (op.path == MetaPath::kFunctional) {
    for (const c10::IValue& meta : metas) {
      const at::Tensor& shape = meta.toTensor();
      results.emplace_back(
          empty_strided_on(call.device, shape.sizes(), shape.strides(), shape.scalar_type()));
    }
    arguments.insert(arguments.end(), results.begin(), results.end());
    queue(op, call, *op.variant, std::move(arguments), 0);
  } else {
    Stack fresh;  // the metadata of new results, because some Meta kernels do not set out= strides
    for (size_t i = 0; i < written.size(); ++i) {
      const auto& [meta, tensor] = written[i];
      if (op.path == MetaPath::kOut && meta.sizes() != tensor.sizes()) {
        if (fresh.empty()) {
          fresh = read;
          op.variant->redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &fresh);
        }
        at::native::resize_output(tensor, meta.sizes());
        tensor.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes(),
                                                            fresh[i].toTensor().strides());
      }
      results.emplace_back(tensor);
    }
    const uint64_t overlaps = written_overlaps(op, arguments);
    queue(op, call, handle, std::move(arguments), overlaps);
  }
  torch::jit::drop(*stack, count);
  stack->insert(stack->end(), results.begin(), results.end());
  return true;
}

void queue_by_cache(AliasOperator& op, const c10::OperatorHandle& handle, const Call& call,
                    std::shared_ptr<const OutputMetadata> expected, Stack* stack) {
  const size_t count = handle.schema().arguments().size();
  Stack arguments = torch::jit::pop(*stack, count);
  for (const OutputMetadata::Resized& resized : expected->resized) {
    const at::Tensor& tensor = arguments[resized.argument].toTensor();
    const auto& [sizes, strides] = resized.shape;
    const size_t bytes = at::detail::computeStorageNbytes(
        sizes, strides, tensor.element_size(), static_cast<size_t>(tensor.storage_offset()));
    if (tensor.storage().nbytes() < bytes) {
      at::native::resize_bytes_nocuda(tensor.storage(), static_cast<int64_t>(bytes));
    }
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  }
  std::vector<at::Tensor> results;
  for (const OutputMetadata::Result& result : expected->results) {
    results.push_back(result.shape.has_value()
                          ? empty_strided_on(call.device, result.shape->sizes,
                                             result.shape->strides, result.dtype)
                          : at::Tensor());
    stack->emplace_back(result.argument.has_value() ? arguments[*result.argument].toTensor()
                                                    : results.back());
  }
  std::vector<Draw> draws = replace_places(op, handle.schema(), call, arguments, 0);
  const bool writes_results = op.path == MetaPath::kFunctional;
  if (writes_results) {
    arguments.insert(arguments.end(), results.begin(), results.end());
    results.clear();
  }
  launch_kernel(
      {.name = op.name.c_str(),
       .cost = call.numel * kCostPerElement,
       .check = call.reports ? Check::kAlways : Check::kNever},
      call.device, [&](AliasPool& aliases) {
        GradientAliases flagged(aliases);
        for (c10::IValue& value : arguments) {
          replace_tensors(value, [&](const at::Tensor& tensor) { return flagged.own(tensor); });
        }
        for (at::Tensor& result : results) {
          result = own_tensor(aliases, result);
        }
        return ExpectedCall{
            {writes_results ? *op.variant : handle, std::move(arguments), std::move(draws)},
            &op,
            std::move(expected),
            std::move(results)};
      });
}

}  // namespace openreg
