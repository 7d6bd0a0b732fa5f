// SPDX-License-Identifier: BSD-3-Clause
#include "aten/fallback/operator.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "aten/fallback/fallback.h"
#include "aten/fallback/policy.h"

namespace openreg {
namespace {

// Identifies an argument of an operator by name.
struct NamedArgument {
  std::string_view operation;
  std::string_view argument;
};

// Arguments that PyTorch requires or allows on the host for every device. All other CPU tensors
// with dimensions are rejected, as on every device that computes in its own memory.
constexpr NamedArgument kHostArguments[] = {
    {"aten::_ctc_loss.Tensor", "input_lengths"},
    {"aten::_ctc_loss.Tensor", "target_lengths"},
    {"aten::_ctc_loss_backward.Tensor", "input_lengths"},
    {"aten::_ctc_loss_backward.Tensor", "target_lengths"},
    {"aten::_foreach_addcdiv.Tensor", "scalars"},
    {"aten::_foreach_addcdiv_.Tensor", "scalars"},
    {"aten::_foreach_addcmul.Tensor", "scalars"},
    {"aten::_foreach_addcmul_.Tensor", "scalars"},
    {"aten::_index_put_impl_", "indices"},
    {"aten::_nested_from_padded", "cpu_nested_shape_example"},
    {"aten::index.Tensor", "indices"},
    {"aten::index.Tensor_out", "indices"},
};

// Arguments that an operator writes to although its schema does not say so.
constexpr NamedArgument kUndeclaredWrites[] = {{"aten::native_batch_norm", "running_mean"},
                                               {"aten::native_batch_norm", "running_var"},
                                               {"aten::native_batch_norm.out", "running_mean"},
                                               {"aten::native_batch_norm.out", "running_var"}};

// Operators that make the host wait and throw an error about invalid data, as on CUDA. Operators
// with an argument `check_errors` do the same if it is true.
constexpr std::string_view kReporting[] = {
    "aten::_linalg_eigvals", "aten::_linalg_svd", "aten::_validate_sparse_coo_tensor_args",
    "aten::cholesky",        "aten::linalg_eig",  "aten::linalg_eigvals"};

// Never destroyed, because operators may run while the process exits.
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Operator>> by_name;
  ska::flat_hash_map<c10::OperatorName, Operator*> by_operator;
};

Registry& registry() {
  static auto* const registry = std::make_unique<Registry>().release();
  return *registry;
}

}  // namespace

Operator::Operator(const c10::OperatorHandle& handle) : name(toString(handle.operator_name())) {
  for (const c10::Argument& argument : handle.schema().arguments()) {
    const auto is_listed = [&](const auto& list) {
      return std::any_of(std::begin(list), std::end(list), [&](const NamedArgument& listed) {
        return listed.operation == name && listed.argument == argument.name();
      });
    };
    writes.push_back((argument.alias_info() != nullptr && argument.alias_info()->isWrite()) ||
                     is_listed(kUndeclaredWrites));
    takes_host.push_back(is_listed(kHostArguments));
    random |= argument.name() == "generator";
    if (argument.name() == "check_errors") {
      check_errors = writes.size() - 1;
    }
  }
  const std::string_view base = std::string_view(name).substr(0, name.find('.'));
  reports = std::find(std::begin(kReporting), std::end(kReporting), base) != std::end(kReporting);
  irreplaceable = reason_against_fallback(name);
}

Operator& find_operator(const c10::OperatorHandle& handle,
                        std::unique_ptr<Operator> (*make)(const c10::OperatorHandle&)) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Operator*& known = all.by_operator[handle.operator_name()];
  if (known == nullptr) {
    std::unique_ptr<Operator> fresh = make(handle);
    known = fresh.get();
    all.by_name.emplace(known->name, std::move(fresh));
  }
  return *known;
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

}  // namespace openreg
