// SPDX-License-Identifier: BSD-3-Clause
#include "aten/fallback.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "aten/argument_key.h"
#include "aten/composite.h"
#include "aten/factories.h"
#include "aten/gen/structured_table.h"
#include "aten/host_arguments.h"
#include "aten/launch.h"
#include "aten/owned.h"
#include "aten/precedents.h"
#include "aten/store.h"
#include "runtime/c10/generator.h"
#include "runtime/c10/implicit_wait.h"

namespace openreg {
namespace {

using torch::jit::Stack;

// A kernel that nobody tuned is taken to cost this many elementary operations an element.
constexpr int64_t kCostPerElement = 8;

// ---------------------------------------------------------------------------- settings

// The meaning of an environment variable which says one of several words; the first is the default.
template <class T, size_t kCount>
T read_setting(const char* variable, const std::array<std::pair<const char*, T>, kCount>& words) {
  const char* const value = std::getenv(variable);
  if (value == nullptr || *value == '\0') {
    return words.front().second;
  }
  std::string known;
  for (const auto& [word, meaning] : words) {
    if (std::string_view(value) == word) {
      return meaning;
    }
    known += (known.empty() ? "" : ", ") + std::string(word);
  }
  TORCH_CHECK_VALUE(false, variable, " is \"", value, "\": expected one of ", known);
}

HostMode host_mode() {
  static const HostMode mode = read_setting<HostMode, 2>(
      "OPENREG_FALLBACK_MODE", {{{"alias", HostMode::kAlias}, {"copy", HostMode::kCopy}}});
  return mode;
}

std::atomic<FallbackPolicy>& policy() {
  static std::atomic<FallbackPolicy> policy{
      read_setting<FallbackPolicy, 3>("OPENREG_FALLBACK", {{{"silent", FallbackPolicy::kSilent},
                                                            {"warn", FallbackPolicy::kWarn},
                                                            {"error", FallbackPolicy::kError}}})};
  return policy;
}

std::atomic<bool (*)(const std::exception&)>& interrupts() {
  static std::atomic<bool (*)(const std::exception&)> interrupts{
      [](const std::exception&) { return false; }};
  return interrupts;
}

// Operators that have to have kernels of their own: the CPU's would do something else than asked.
// They have; who takes one away is told here rather than by a wrong result.
struct Irreplaceable {
  std::string_view name;
  const char* reason;
};
constexpr const char* kMemory = "new memory has to be the device's";
constexpr const char* kView =
    "a view has to share the memory of its base, also when that is written";
constexpr const char* kStorage = "it changes the storage of the device tensor itself";
constexpr const char* kCopy = "the fallback itself is made of copies";
constexpr const char* kNoCpu = "the CPU has no kernel for it";
constexpr Irreplaceable kIrreplaceable[] = {
    {"aten::_copy_from", kCopy},
    {"aten::_copy_from_and_resize", kCopy},
    {"aten::_efficientzerotensor", kMemory},
    {"aten::_fused_sdp_choice", "the CPU would choose a kernel that only the CPU has"},
    {"aten::_has_compatible_shallow_copy_type", "it is about the tensor's own class"},
    {"aten::_local_scalar_dense", "it is how the host waits for a number"},
    {"aten::_nested_view_from_buffer", kView},
    {"aten::_reshape_alias", kView},
    {"aten::_thnn_fused_gru_cell", kNoCpu},
    {"aten::_thnn_fused_lstm_cell", kNoCpu},
    {"aten::as_strided", kView},
    {"aten::convolution_backward_overrideable", kNoCpu},
    {"aten::convolution_overrideable", kNoCpu},
    {"aten::empty.memory_format", kMemory},
    {"aten::empty_strided", kMemory},
    {"aten::from_file", kMemory},
    {"aten::is_set_to", "it compares storages, not data"},
    {"aten::record_stream", "the CPU has no streams"},
    {"aten::resize_", kStorage},
    {"aten::set_", kStorage},
    {"aten::set_.source_Storage", kStorage},
    {"aten::set_.source_Storage_storage_offset", kStorage},
    {"aten::set_.source_Tensor", kStorage},
    {"aten::unfold", kView},
    {"aten::view", kView},
    {"aten::view_as_complex", kView},
    {"aten::view_as_real", kView},
};

// Arguments that PyTorch wants on the host, or allows there, whatever the device. All other CPU
// tensors with dimensions are refused, as by every device that computes on its own memory.
struct HostArgument {
  std::string_view operation;
  std::string_view argument;
};
constexpr HostArgument kHostArguments[] = {
    {"aten::_ctc_loss.Tensor", "input_lengths"},
    {"aten::_ctc_loss.Tensor", "target_lengths"},
    {"aten::_ctc_loss_backward.Tensor", "input_lengths"},
    {"aten::_ctc_loss_backward.Tensor", "target_lengths"},
    {"aten::_foreach_addcdiv.Tensor", "scalars"},
    {"aten::_foreach_addcdiv_.Tensor", "scalars"},
    {"aten::_foreach_addcmul.Tensor", "scalars"},
    {"aten::_foreach_addcmul_.Tensor", "scalars"},
    {"aten::_nested_from_padded", "cpu_nested_shape_example"},
};

// Operators that tell what is wrong with their data, as on CUDA: they wait for it. So do all with
// `check_errors`, if it is set.
constexpr std::string_view kReporting[] = {
    "aten::_linalg_eigvals", "aten::_linalg_svd", "aten::_validate_sparse_coo_tensor_args",
    "aten::cholesky",        "aten::linalg_eig",  "aten::linalg_eigvals"};

// ------------------------------------------------------------------- what is known of operators

// How to know what the results look like before the kernel has run, when there is no precedent: by
// torch's meta(), if it is a variant of a structured operator.
enum class Path { kUnknown, kFunctional, kInplace, kOut };

// One for each operator that ever fell back; lives for ever, so that its name may name launches.
struct Operator {
  std::string name;
  Path path = Path::kUnknown;
  // Of kFunctional the variant that runs, of kOut the one that tells the strides.
  std::optional<c10::OperatorHandle> variant;
  bool random = false;
  bool has_precedents = false;
  Precedents precedents;
  std::atomic<bool> inconstant{false};  // a precedent did not hold: there are none any more
  const char* irreplaceable = nullptr;  // why it must not fall back
  std::vector<bool> writes;             // for each argument
  std::vector<bool> takes_host;         // likewise: kHostArguments
  bool reports = false;                 // kReporting
  std::optional<size_t> check_errors;   // which argument this is
  std::atomic<bool> warned{false};
  std::atomic<uint64_t> asynchronous{0};
  std::atomic<uint64_t> synchronous{0};
  std::atomic<uint64_t> bytes_in{0};
  std::atomic<uint64_t> bytes_out{0};
  std::atomic<uint64_t> ns{0};
};

// "aten::add.Tensor"
std::optional<c10::OperatorHandle> find_schema(std::string_view name) {
  const size_t dot = name.find('.');
  return c10::Dispatcher::singleton().findSchema(c10::OperatorName(
      std::string(name.substr(0, dot)),
      dot == std::string_view::npos ? std::string() : std::string(name.substr(dot + 1))));
}

std::unique_ptr<Operator> examine(const c10::OperatorHandle& handle) {
  auto found = std::make_unique<Operator>();
  found->name = toString(handle.operator_name());
  const auto& arguments = handle.schema().arguments();
  for (const c10::Argument& argument : arguments) {
    found->writes.push_back(argument.alias_info() != nullptr && argument.alias_info()->isWrite());
    found->takes_host.push_back(std::any_of(
        std::begin(kHostArguments), std::end(kHostArguments), [&](const HostArgument& host) {
          return host.operation == found->name && host.argument == argument.name();
        }));
    if (argument.name() == "check_errors") {
      found->check_errors = found->writes.size() - 1;
    }
  }
  const std::string_view base = std::string_view(found->name).substr(0, found->name.find('.'));
  found->reports =
      std::find(std::begin(kReporting), std::end(kReporting), base) != std::end(kReporting);
  for (const auto& [name, reason] : kIrreplaceable) {
    if (name == found->name) {
      found->irreplaceable = reason;
    }
  }
  found->random =
      std::any_of(arguments.begin(), arguments.end(),
                  [](const c10::Argument& argument) { return argument.name() == "generator"; });
  const StructuredGroup* const group = found->random ? nullptr : find_structured(found->name);
  if (group != nullptr) {
    if (found->name == group->functional) {
      found->variant = find_schema(group->out);
      found->path = found->variant.has_value() ? Path::kFunctional : Path::kUnknown;
    } else if (found->name == group->out) {
      found->variant = find_schema(group->functional);
      found->path = found->variant.has_value() ? Path::kOut : Path::kUnknown;
    } else {
      found->path = Path::kInplace;
    }
  }
  found->has_precedents = has_precedents(handle);
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

// -------------------------------------------------------------------------- tensors in the stack

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
  bool composite = false;  // one of the tensors is, at least
  bool sparse = false;
  bool on_host = false;  // a tensor with dimensions is the CPU's
  bool to_cpu = false;   // the operator was asked for a result on the CPU
  bool reports = false;  // the caller wants to know at once if the data is wrong
};

void refuse(const Call& call, c10::Device other) {
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              c10::Device(kOpenRegType, call.device), " and ", other, "!");
}

// Calls visit(tensor) for the defined tensors of a value, in lists too.
template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      visit(value.toTensor());
    }
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined()) {
        visit(tensor);
      }
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      if (tensor.has_value() && tensor->defined()) {
        visit(*tensor);
      }
    }
  }
}

// How what the operator writes overlaps with itself and with other arguments, once outputs have
// their final sizes.
uint64_t written_overlaps(const Operator& op, const Stack& arguments) {
  uint64_t key = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!op.writes[i]) {
      continue;
    }
    for_each_tensor(arguments[i], [&](const at::Tensor& output) {
      key = argument_key(key, is_composite(output) ? 0 : overlap_of(output));
      for (const c10::IValue& argument : arguments) {
        for_each_tensor(argument, [&](const at::Tensor& other) {
          if (!is_composite(output) && !is_composite(other)) {
            key = argument_key(key, overlap_of(output, other));
          }
        });
      }
    });
  }
  return key;
}

// One pass over the arguments. Tensors of several openreg devices are refused, and tensors of other
// devices, but for CPU tensors of zero dimensions, which count as numbers, and kHostArguments.
Call inspect(const Operator& op, const Stack& stack, size_t first) {
  Call call;
  call.reports =
      op.reports || (op.check_errors.has_value() && stack[first + *op.check_errors].toBool());
  bool on_device = false;
  std::optional<c10::Device> other;  // than the device's: of a tensor that has to be on it
  for (size_t i = first; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isDevice()) {
      call.to_cpu = value.toDevice().is_cpu();
      if (value.toDevice().type() == kOpenRegType && value.toDevice().has_index()) {
        call.device = value.toDevice().index();
      }
    }
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (is_device(tensor)) {
        if (call.device >= 0 && tensor.get_device() != call.device) {
          refuse(call, tensor.device());
        }
        call.device = tensor.get_device();
        call.numel += tensor.numel();
        on_device = true;
      } else {
        const bool ranked = tensor.dim() != 0;
        call.on_host |= ranked;
        if (!tensor.is_cpu() || op.writes[i - first] || (ranked && !op.takes_host[i - first])) {
          other = tensor.device();
        }
      }
      call.composite |= is_composite(tensor);
      call.sparse |= tensor.layout() != c10::kStrided;
    });
  }
  if (on_device && other.has_value()) {
    refuse(call, *other);
  }
  if (call.device < 0) {
    call.device = current_device();
  }
  return call;
}

// A generator that an operator's CPU kernel gets, made where and when that runs.
struct Draw {
  size_t argument;
  PhiloxState state;
};

// Replaces arguments that are not tensors but name the device. Returns what is to be drawn.
std::vector<Draw> replace_places(const Operator& op, const c10::FunctionSchema& schema,
                                 const Call& call, Stack& stack, size_t first) {
  std::vector<Draw> draws;
  for (size_t i = first; i < stack.size(); ++i) {
    c10::IValue& value = stack[i];
    if (value.isDevice() && value.toDevice().type() == kOpenRegType) {
      value = c10::Device(c10::kCPU);
    }
    if (op.random && schema.arguments()[i - first].name() == "generator") {
      const auto generator = value.toOptional<at::Generator>();
      draws.push_back({i - first, reserve(generator, call.device, kCpuGeneratorNumbers)});
    }
  }
  return draws;
}

// --------------------------------------------------------------------------- asynchronous paths

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

// The CPU's kernel with its arguments, called by the dispatcher. What it writes to are aliases of
// tensors which the caller has already.
struct BoxedCall {
  c10::OperatorHandle handle;
  Stack stack;
  std::vector<Draw> draws;

  void operator()() { run(stack); }
  void repeat() const {
    Stack again = stack;
    run(again);
  }
  // Leaves the results on the stack that is given.
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
      settle_bits(output, bits.first, bits.second);
    }
  }
};

// The same, when the caller has been promised results that look as they did before.
struct PromisedCall {
  BoxedCall call;
  Operator* op;
  std::shared_ptr<const Precedent> precedent;
  std::vector<at::Tensor> promised;  // aliases; undefined where the result is not new

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
    for (size_t i = 0; i < promised.size(); ++i) {
      const at::Tensor& result = stack[i].toTensor();
      const Precedent::Result& said = precedent->results[i];
      if (said.argument.has_value()) {
        check(result.is_same(arguments[*said.argument].toTensor()));
      } else if (!said.shape.has_value()) {
        check(!result.defined());
      } else {
        check(result.defined() && result.sizes() == said.shape->sizes &&
              result.scalar_type() == said.dtype);
        store(result, promised[i]);
      }
    }
  }

  // What resizing changes.
  using Extent = std::pair<at::DimVector, const void*>;
  static Extent extent(const c10::IValue& argument) {
    return argument.isTensor() && argument.toTensor().defined()
               ? Extent(argument.toTensor().sizes(), argument.toTensor().storage().data())
               : Extent();
  }

  void check(bool kept) const {
    if (!kept) {
      op->inconstant.store(true, std::memory_order_relaxed);
      TORCH_CHECK(false, "openreg: ", op->name,
                  " was expected to have results like those that it had for arguments of the same "
                  "sizes and dtypes before, and has not. It is waited for from now on: repeat what "
                  "failed, and report this operator to the developers of torch_openreg");
    }
  }
};

void own_tensors(AliasPool& aliases, Stack& arguments) {
  for (c10::IValue& value : arguments) {
    replace_tensors(value, [&](const at::Tensor& tensor) { return own_tensor(aliases, tensor); });
  }
}

// `overlaps`: of what the caller gave to be written.
void queue(const Operator& op, const Call& call, const c10::OperatorHandle& handle, Stack arguments,
           uint64_t overlaps) {
  // Where these are set, some kernels refuse to run.
  const at::Context& context = at::globalContext();
  const uint64_t flags = 2 * static_cast<uint64_t>(context.deterministicAlgorithms()) +
                         static_cast<uint64_t>(context.deterministicAlgorithmsWarnOnly());
  // Not 0: these operators may lack the common dtypes too.
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

// False, with nothing done, if the Meta kernel refuses these arguments. Some refuse what the CPU's
// takes (index_reduce without elements), some in other words.
bool run_by_meta(Operator& op, const c10::OperatorHandle& handle, const Call& call, Stack* stack) {
  const size_t count = handle.schema().arguments().size();
  const size_t first = stack->size() - count;
  Stack arguments(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());

  Stack metas = arguments;
  for (c10::IValue& value : metas) {
    replace_tensors(value, meta_of);
  }
  Stack read;  // metas of what is not written
  // The arguments' metas that the operator writes to are among its results.
  std::vector<std::pair<at::Tensor, at::Tensor>> written;
  for (size_t i = 0; i < count; ++i) {
    if (op.writes[i] && metas[i].isTensor()) {
      const at::Tensor& tensor = arguments[i].toTensor();
      // Without elements a Meta kernel resizes it without the warning, which is for the tensor.
      if (op.path == Path::kOut) {
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
    if (interrupts().load(std::memory_order_relaxed)(error)) {
      throw;
    }
    return false;
  }

  Stack results;
  if (op.path == Path::kFunctional) {
    for (const c10::IValue& meta : metas) {
      const at::Tensor& shape = meta.toTensor();
      results.emplace_back(
          empty_strided_on(call.device, shape.sizes(), shape.strides(), shape.scalar_type()));
    }
    arguments.insert(arguments.end(), results.begin(), results.end());
    queue(op, call, *op.variant, std::move(arguments), 0);
  } else {
    Stack fresh;  // what a new result looks like: torch has Meta kernels that do not say it of out=
    for (size_t i = 0; i < written.size(); ++i) {
      const auto& [meta, tensor] = written[i];
      if (op.path == Path::kOut && meta.sizes() != tensor.sizes()) {
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

// Aliases of a launch that say whether their tensors require gradients. The pool's are used again
// for other calls, so a flag needs an object of its own: one, wherever the tensor stands.
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

void run_by_precedent(Operator& op, const c10::OperatorHandle& handle, const Call& call,
                      std::shared_ptr<const Precedent> precedent, Stack* stack) {
  const size_t count = handle.schema().arguments().size();
  Stack arguments = torch::jit::pop(*stack, count);
  for (const Precedent::Resized& resized : precedent->resized) {
    const at::Tensor& tensor = arguments[resized.argument].toTensor();
    const auto& [sizes, strides] = resized.shape;
    const size_t bytes = at::detail::computeStorageNbytes(
        sizes, strides, tensor.element_size(), static_cast<size_t>(tensor.storage_offset()));
    if (tensor.storage().nbytes() < bytes) {
      at::native::resize_bytes_nocuda(tensor.storage(), static_cast<int64_t>(bytes));
    }
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  }
  std::vector<at::Tensor> promised;
  for (const Precedent::Result& result : precedent->results) {
    promised.push_back(result.shape.has_value()
                           ? empty_strided_on(call.device, result.shape->sizes,
                                              result.shape->strides, result.dtype)
                           : at::Tensor());
    stack->emplace_back(result.argument.has_value() ? arguments[*result.argument].toTensor()
                                                    : promised.back());
  }
  std::vector<Draw> draws = replace_places(op, handle.schema(), call, arguments, 0);
  const bool writes_results = op.path == Path::kFunctional;
  if (writes_results) {
    arguments.insert(arguments.end(), promised.begin(), promised.end());
    promised.clear();
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
        for (at::Tensor& result : promised) {
          result = own_tensor(aliases, result);
        }
        return PromisedCall{
            {writes_results ? *op.variant : handle, std::move(arguments), std::move(draws)},
            &op,
            std::move(precedent),
            std::move(promised)};
      });
}

// --------------------------------------------------------------------------- synchronizing path

void run_synchronously(Operator& op, const c10::OperatorHandle& handle, const Call& call,
                       Stack* stack) {
  announce_wait(
      op.name.c_str(),
      "it has no kernel of the device, and its results are known only when the CPU's has run",
      call.device);
  const c10::FunctionSchema& schema = handle.schema();
  const size_t first = stack->size() - schema.arguments().size();
  HostArguments hosts(host_mode(), call.device);
  for (size_t i = first; i < stack->size(); ++i) {
    replace_tensors((*stack)[i], [&](const at::Tensor& tensor) {
      return hosts.to_host(tensor, op.writes[i - first]);
    });
  }
  for (const Draw& draw : replace_places(op, schema, call, *stack, first)) {
    (*stack)[first + draw.argument] = make_cpu_generator(draw.state);
  }

  // In the stream's order and on the thread that the driver chooses, like every kernel; it may look
  // at this frame, which waits for it.
  launch_kernel(
      {.name = op.name.c_str(), .cost = call.numel * kCostPerElement, .check = Check::kAlways},
      call.device,
      [&](AliasPool&) { return [&] { handle.redispatchBoxed(hosts.keys(), stack); }; });

  hosts.finish();
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    replace_tensors((*stack)[i], [&](const at::Tensor& tensor) {
      return call.to_cpu ? tensor : hosts.to_device(tensor);
    });
  }
  op.bytes_in.fetch_add(hosts.bytes_in(), std::memory_order_relaxed);
  op.bytes_out.fetch_add(hosts.bytes_out(), std::memory_order_relaxed);
}

// Whether an earlier call may say what the results of this one look like. Lengths on the CPU may be
// sizes of results.
bool recalls(const Operator& op, const Call& call) {
  return op.has_precedents && !op.inconstant.load(std::memory_order_relaxed) && !call.on_host;
}

// Whether the host waits for this call, whatever came before.
bool synchronizes(const Operator& op, const Call& call) {
  return (op.path == Path::kUnknown && !recalls(op, call)) || call.composite || call.to_cpu ||
         host_mode() == HostMode::kCopy;
}

void run(Operator& op, const c10::OperatorHandle& handle, const Call& call, Stack* stack) {
  if (synchronizes(op, call)) {
    op.synchronous.fetch_add(1, std::memory_order_relaxed);
    run_synchronously(op, handle, call, stack);
    return;
  }
  const auto arguments = torch::jit::last(*stack, handle.schema().arguments().size());
  std::optional<Looks> looks;
  std::optional<Witness> witness;
  if (recalls(op, call)) {
    looks = looks_of(arguments);
  }
  if (looks.has_value()) {
    if (std::shared_ptr<const Precedent> precedent = op.precedents.find(*looks)) {
      op.asynchronous.fetch_add(1, std::memory_order_relaxed);
      run_by_precedent(op, handle, call, std::move(precedent), stack);
      return;
    }
    witness.emplace(arguments);
  }
  if (op.path != Path::kUnknown && run_by_meta(op, handle, call, stack)) {
    op.asynchronous.fetch_add(1, std::memory_order_relaxed);
  } else {
    op.synchronous.fetch_add(1, std::memory_order_relaxed);
    run_synchronously(op, handle, call, stack);
  }
  if (witness.has_value()) {
    std::optional<Precedent> seen =
        witness->testify(torch::jit::last(*stack, handle.schema().returns().size()));
    if (seen.has_value()) {
      op.precedents.add(std::move(*looks), std::move(*seen));
    }
  }
}

// Throws where this operator may not fall back, warns where the user wants to know.
void apply_policy(Operator& op, const Call& call) {
  // Of composite tensors: a view is made of the same parts, and sparse ones may get other parts.
  const bool may_replace = call.composite && (op.irreplaceable == kView ||
                                              (op.irreplaceable == kStorage && call.sparse));
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.irreplaceable == nullptr || may_replace, "openreg: ", op.name,
      " needs a kernel of the device and has none registered; the CPU's can "
      "not take its place: ",
      op.irreplaceable);
  switch (policy().load(std::memory_order_relaxed)) {
    case FallbackPolicy::kSilent:
      break;
    case FallbackPolicy::kWarn:
      if (!op.warned.exchange(true, std::memory_order_relaxed)) {
        TORCH_WARN(
            "openreg: ", op.name, " has no kernel of the device and runs on the CPU's",
            synchronizes(op, call)      ? "; the host waits for it"
            : op.path == Path::kUnknown ? "; the host waits for it when sizes or dtypes are new"
                                        : "",
            ". This is said once for each operator; torch.openreg.fallback.report() counts.");
      }
      break;
    case FallbackPolicy::kError:
      TORCH_CHECK_NOT_IMPLEMENTED(
          false, "openreg: ", op.name,
          " has no kernel of the device, and falling back to the CPU's is forbidden: allow it by "
          "torch.openreg.fallback.set_policy(\"warn\"), or OPENREG_FALLBACK=warn in the "
          "environment, or run this operator on CPU tensors");
  }
}

}  // namespace

void fallback(const c10::OperatorHandle& handle, Stack* stack) {
  const auto start = std::chrono::steady_clock::now();
  Operator& op = find_operator(handle);
  const Call call = inspect(op, *stack, stack->size() - handle.schema().arguments().size());
  apply_policy(op, call);
  TORCH_CHECK_NOT_IMPLEMENTED(
      call.composite || handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU),
      "Could not run '", op.name,
      "' with arguments from the 'openreg' backend: there is no kernel for openreg, and none for "
      "the CPU to fall back to.");
  run(op, handle, call, stack);
  op.ns.fetch_add(static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                            std::chrono::steady_clock::now() - start)
                                            .count()),
                  std::memory_order_relaxed);
}

std::vector<FallbackRecord> fallback_stats() {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::vector<FallbackRecord> records;
  for (const auto& [name, op] : all.by_name) {
    const uint64_t asynchronous = op->asynchronous.load(std::memory_order_relaxed);
    const uint64_t synchronous = op->synchronous.load(std::memory_order_relaxed);
    if (asynchronous + synchronous > 0) {
      records.push_back({name, asynchronous + synchronous, asynchronous, synchronous,
                         op->bytes_in.load(std::memory_order_relaxed),
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
    op->bytes_in.store(0, std::memory_order_relaxed);
    op->bytes_out.store(0, std::memory_order_relaxed);
    op->warned.store(false, std::memory_order_relaxed);
    op->ns.store(0, std::memory_order_relaxed);
  }
}

FallbackPolicy fallback_policy() { return policy().load(std::memory_order_relaxed); }

void set_interrupt_filter(bool (*filter)(const std::exception&)) {
  interrupts().store(filter, std::memory_order_relaxed);
}

void set_fallback_policy(FallbackPolicy now) { policy().store(now, std::memory_order_relaxed); }

std::vector<std::pair<std::string, std::string>> irreplaceable_operators() {
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& [name, reason] : kIrreplaceable) {
    result.emplace_back(name, reason);
  }
  return result;
}

// torch has a function for all devices, which would go first. It refuses those that it does not
// know by name, or wants a loop of theirs; of _linalg_solve_ex it makes results on the devices of
// two arguments before anything has compared these.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("conj_physical_", torch::CppFunction::makeFromBoxedFunction<&fallback>());
  library.impl("_linalg_solve_ex", torch::CppFunction::makeFromBoxedFunction<&fallback>());
  library.impl("mode.values", torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}
}  // namespace openreg
