// SPDX-License-Identifier: BSD-3-Clause
#include "aten/fallback.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "aten/factories.h"
#include "aten/gen/proven_dtypes.h"
#include "aten/gen/structured_table.h"
#include "aten/launch.h"
#include "aten/owned.h"
#include "runtime/c10/generator.h"

namespace openreg {
namespace {

using torch::jit::Stack;

// A kernel that nobody tuned is taken to cost this many elementary operations an element.
constexpr int64_t kCostPerElement = 8;

// ---------------------------------------------------------------------------- what is known of
// operators

enum class Path { kSynchronizing, kFunctional, kInplace, kOut };

// One for each operator that ever fell back; lives for ever, so that its name may name launches.
struct Operator {
  std::string name;
  Path path = Path::kSynchronizing;
  std::optional<c10::OperatorHandle> out_variant;  // of kFunctional
  bool random = false;
  ProvenDtypes proven;  // not of kSynchronizing
  std::atomic<uint64_t> asynchronous{0};
  std::atomic<uint64_t> synchronous{0};
  std::atomic<uint64_t> bytes_out{0};
  std::atomic<uint64_t> ns{0};
};

std::unique_ptr<Operator> examine(const c10::OperatorHandle& handle) {
  auto found = std::make_unique<Operator>();
  found->name = toString(handle.operator_name());
  const auto& arguments = handle.schema().arguments();
  found->random =
      std::any_of(arguments.begin(), arguments.end(),
                  [](const c10::Argument& argument) { return argument.name() == "generator"; });
  const StructuredGroup* const group = found->random ? nullptr : find_structured(found->name);
  if (group != nullptr) {
    if (found->name == group->functional) {
      const std::string_view out = group->out;
      const size_t dot = out.find('.');
      found->out_variant = c10::Dispatcher::singleton().findSchema(c10::OperatorName(
          std::string(out.substr(0, dot)),
          dot == std::string_view::npos ? std::string() : std::string(out.substr(dot + 1))));
      found->path = found->out_variant.has_value() ? Path::kFunctional : Path::kSynchronizing;
    } else {
      found->path = found->name == group->out ? Path::kOut : Path::kInplace;
    }
  }
  return found;
}

// Never destroyed: operators may run while the process exits.
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Operator>> by_name;
  ska::flat_hash_map<c10::OperatorName, Operator*> by_operator;
};

Registry& registry() {
  static auto* const registry = std::make_unique<Registry>().release();
  return *registry;
}

Operator& find_operator(const c10::OperatorHandle& handle) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Operator*& known = all.by_operator[handle.operator_name()];
  if (known == nullptr) {
    std::unique_ptr<Operator> fresh = examine(handle);
    known = fresh.get();
    all.by_name.emplace(known->name, std::move(fresh));
  }
  return *known;
}

// --------------------------------------------------------------------------------- tensors in the
// stack

// Replaces every tensor of the value, in lists too, by replace(tensor).
template <class Replace>
void replace_tensors(c10::IValue& value, Replace&& replace) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      value = replace(value.toTensor());
    }
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(tensor.defined() ? replace(tensor) : tensor);
    }
    value = std::move(list);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor.has_value() && tensor->defined() ? replace(*tensor) : tensor);
    }
    value = std::move(list);
  }
}

// The arguments of one call: where it runs, how much there is to do.
struct Call {
  c10::DeviceIndex device = -1;
  int64_t numel = 0;
  Dtypes dtypes;
};

void refuse(const Call& call, c10::Device other) {
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              c10::Device(kOpenRegType, call.device), " and ", other, "!");
}

// One pass over the arguments. Tensors of several openreg devices are refused; tensors of the CPU
// are allowed, since torch has operators that take some (indices, lengths, step counters), and the
// kernel itself says what it thinks of others.
Call inspect(const Stack& stack, size_t first) {
  Call call;
  for (size_t i = first; i < stack.size(); ++i) {
    c10::IValue value = stack[i];
    if (value.isDevice() && value.toDevice().type() == kOpenRegType &&
        value.toDevice().has_index()) {
      call.device = value.toDevice().index();
    }
    replace_tensors(value, [&](const at::Tensor& tensor) {
      if (is_device(tensor)) {
        if (call.device >= 0 && tensor.get_device() != call.device) {
          refuse(call, tensor.device());
        }
        call.device = tensor.get_device();
        call.numel += tensor.numel();
      }
      call.dtypes.add(tensor);
      return tensor;
    });
  }
  if (call.device < 0) {
    call.device = current_device();
  }
  return call;
}

// Arguments that are not tensors but name the device.
void replace_places(const Operator& op, const c10::FunctionSchema& schema, const Call& call,
                    Stack& stack, size_t first) {
  for (size_t i = first; i < stack.size(); ++i) {
    c10::IValue& value = stack[i];
    if (value.isDevice() && value.toDevice().type() == kOpenRegType) {
      value = c10::Device(c10::kCPU);
    }
    if (op.random && schema.arguments()[i - first].name() == "generator") {
      const auto generator = value.toOptional<at::Generator>();
      value = make_cpu_generator(reserve(generator, call.device, kCpuGeneratorNumbers));
    }
  }
}

// ------------------------------------------------------------------------------------ asynchronous
// path

// What the operator's Meta kernel needs to see of a tensor. Numbers in CPU tensors stay: type
// promotion treats them as numbers.
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

// A kernel with its arguments on the stack, run by the dispatcher.
struct BoxedKernel {
  c10::OperatorHandle handle;
  Stack stack;
  void operator()() { handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack); }
};

void queue(const Operator& op, const Call& call, const c10::OperatorHandle& handle,
           Stack arguments) {
  launch_kernel(
      {op.name.c_str(), call.numel * kCostPerElement}, call.device, [&](AliasPool& aliases) {
        for (c10::IValue& value : arguments) {
          replace_tensors(value,
                          [&](const at::Tensor& tensor) { return own_tensor(aliases, tensor); });
        }
        return BoxedKernel{handle, std::move(arguments)};
      });
}

void run_asynchronously(Operator& op, const c10::OperatorHandle& handle, const Call& call,
                        Stack* stack) {
  const size_t count = handle.schema().arguments().size();
  const size_t first = stack->size() - count;
  Stack arguments(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());

  Stack metas = arguments;
  for (c10::IValue& value : metas) {
    replace_tensors(value, meta_of);
  }
  // The arguments' metas that the operator writes to are among its results.
  std::vector<std::pair<at::Tensor, at::Tensor>> written;
  for (size_t i = 0; i < count; ++i) {
    const c10::AliasInfo* const alias = handle.schema().arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite() && metas[i].isTensor()) {
      written.emplace_back(metas[i].toTensor(), arguments[i].toTensor());
    }
  }
  handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &metas);

  Stack results;
  if (op.path == Path::kFunctional) {
    for (const c10::IValue& meta : metas) {
      const at::Tensor& shape = meta.toTensor();
      results.emplace_back(
          empty_strided_on(call.device, shape.sizes(), shape.strides(), shape.scalar_type()));
    }
    arguments.insert(arguments.end(), results.begin(), results.end());
    queue(op, call, *op.out_variant, std::move(arguments));
  } else {
    for (const auto& [meta, tensor] : written) {
      if (meta.sizes() != tensor.sizes()) {  // out= of another shape; torch has warned already
        at::native::resize_output(tensor, meta.sizes());
        tensor.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes(), meta.strides());
      }
      results.emplace_back(tensor);
    }
    queue(op, call, handle, std::move(arguments));
  }
  op.proven.prove_all(call.dtypes, call.device);
  torch::jit::drop(*stack, count);
  stack->insert(stack->end(), results.begin(), results.end());
}

// ----------------------------------------------------------------------------------- synchronizing
// path

// One device tensor that the kernel sees, with what its alias looked like before.
struct Argument {
  at::Tensor tensor;
  at::Tensor alias;
  at::DimVector sizes;
  const void* data;
};

// The kernel resized its output: the device tensor follows, and gets the data which are in memory
// of the CPU now.
void follow_resize(const Argument& argument) {
  const at::Tensor& tensor = argument.tensor;
  const at::Tensor& alias = argument.alias;
  // First as much memory as the alias has: its strides may need more than its sizes tell.
  const auto itemsize = static_cast<size_t>(alias.element_size());
  const size_t room = (alias.storage().nbytes() + itemsize - 1) / itemsize;
  tensor.resize_({static_cast<int64_t>(room)});
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), alias.strides(),
                                                      alias.storage_offset());
  if (tensor.numel() > 0 && alias.const_data_ptr() != kernel_pointer(tensor.const_data_ptr())) {
    tensor.copy_(alias);
  }
}

class Results {
 public:
  Results(const std::vector<Argument>& arguments, c10::DeviceIndex device)
      : arguments_(arguments), device_(device) {}

  // The device tensor for a CPU tensor that the kernel returned.
  at::Tensor to_device(const at::Tensor& result) {
    if (!result.is_cpu()) {
      return result;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(result.layout() == at::kStrided,
                                "openreg: the operator returned a ", result.layout(),
                                " tensor, and openreg has only strided ones yet");
    for (const Argument& argument : arguments_) {
      if (argument.alias.is_same(result)) {
        return argument.tensor;
      }
    }
    for (const Argument& argument : arguments_) {
      if (argument.alias.storage().is_alias_of(result.storage())) {
        return view_of(argument.tensor.storage(), result, result.storage_offset());
      }
    }
    return copy_of(result);
  }

  uint64_t bytes() const { return bytes_; }

 private:
  static at::Tensor view_of(const c10::Storage& storage, const at::Tensor& like, int64_t offset) {
    at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), like.dtype());
    view.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), offset);
    if (like.is_conj()) {
      view._set_conj(true);
    }
    if (like.is_neg()) {
      view._set_neg(true);
    }
    return view;
  }

  // Byte for byte, so that strides stay as they are, expanded and overlapping ones too. Results
  // that share memory go on sharing it.
  at::Tensor copy_of(const at::Tensor& result) {
    const c10::StorageImpl* const source = result.storage().unsafeGetStorageImpl();
    for (const auto& [known, storage] : copied_) {
      if (known == source) {
        return view_of(storage, result, result.storage_offset());
      }
    }
    const auto bytes = static_cast<int64_t>(source->nbytes());
    const at::Tensor memory = empty_on(device_, {bytes}, at::kByte);
    // In the order of the stream: other threads may have queued work that still uses this memory.
    OPENREG_CHECK(orMemcpyAsync(memory.mutable_data_ptr(), source->data(), source->nbytes(),
                                orMemcpyHostToDevice, current_native_stream(device_)));
    bytes_ += source->nbytes();
    copied_.emplace_back(source, memory.storage());
    return view_of(memory.storage(), result, result.storage_offset());
  }

  const std::vector<Argument>& arguments_;
  const c10::DeviceIndex device_;
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> copied_;
  uint64_t bytes_ = 0;
};

void run_synchronously(Operator& op, const c10::OperatorHandle& handle, const Call& call,
                       Stack* stack) {
  const c10::FunctionSchema& schema = handle.schema();
  const size_t first = stack->size() - schema.arguments().size();
  AliasPool aliases;
  std::vector<Argument> arguments;
  for (size_t i = first; i < stack->size(); ++i) {
    replace_tensors((*stack)[i], [&](const at::Tensor& tensor) {
      if (!is_device(tensor)) {
        return tensor;
      }
      const at::Tensor alias = aliases.alias(tensor);
      arguments.push_back({tensor, alias, at::DimVector(alias.sizes()), alias.storage().data()});
      return alias;
    });
  }
  replace_places(op, schema, call, *stack, first);

  // In the stream's order and on the thread that the driver chooses, like every kernel; it may look
  // at this frame, which waits for it.
  launch_kernel({op.name.c_str(), call.numel * kCostPerElement}, call.device, [&](AliasPool&) {
    return [&handle, stack] {
      handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    };
  });
  synchronize_stream(current_native_stream(call.device));

  for (const Argument& argument : arguments) {
    if (argument.alias.sizes() != argument.sizes ||
        argument.alias.storage().data() != argument.data) {
      follow_resize(argument);
    }
  }
  Results results(arguments, call.device);
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    replace_tensors((*stack)[i],
                    [&](const at::Tensor& tensor) { return results.to_device(tensor); });
  }
  op.bytes_out.fetch_add(results.bytes(), std::memory_order_relaxed);
}

void fallback(const c10::OperatorHandle& handle, Stack* stack) {
  const auto start = std::chrono::steady_clock::now();
  Operator& op = find_operator(handle);
  const Call call = inspect(*stack, stack->size() - handle.schema().arguments().size());
  TORCH_CHECK_NOT_IMPLEMENTED(handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU),
                              "Could not run '", op.name,
                              "' with arguments from the 'openreg' "
                              "backend: there is no kernel for openreg, and none for the CPU to "
                              "fall back to.");
  if (op.path == Path::kSynchronizing) {
    op.synchronous.fetch_add(1, std::memory_order_relaxed);
    run_synchronously(op, handle, call, stack);
  } else {
    op.asynchronous.fetch_add(1, std::memory_order_relaxed);
    run_asynchronously(op, handle, call, stack);
  }
  op.ns.fetch_add(static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                            std::chrono::steady_clock::now() - start)
                                            .count()),
                  std::memory_order_relaxed);
}

}  // namespace

std::vector<FallbackRecord> fallback_stats() {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::vector<FallbackRecord> records;
  for (const auto& [name, op] : all.by_name) {
    const uint64_t asynchronous = op->asynchronous.load(std::memory_order_relaxed);
    const uint64_t synchronous = op->synchronous.load(std::memory_order_relaxed);
    if (asynchronous + synchronous > 0) {
      records.push_back({name, asynchronous + synchronous, asynchronous, synchronous, 0,
                         op->bytes_out.load(std::memory_order_relaxed),
                         op->ns.load(std::memory_order_relaxed)});
    }
  }
  return records;
}

void fallback_reset() {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (const auto& [name, op] : all.by_name) {
    op->asynchronous.store(0, std::memory_order_relaxed);
    op->synchronous.store(0, std::memory_order_relaxed);
    op->bytes_out.store(0, std::memory_order_relaxed);
    op->ns.store(0, std::memory_order_relaxed);
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace openreg
