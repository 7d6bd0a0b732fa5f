// SPDX-License-Identifier: BSD-3-Clause
//
// Queues calls of the alias fallback for which the host does not wait: the results are allocated
// first, and the CPU kernel is queued with aliases of the arguments. Any thread may call these
// functions; the driver chooses the thread of the kernel.
#ifndef ATEN_FALLBACK_QUEUED_CALL_H_
#define ATEN_FALLBACK_QUEUED_CALL_H_

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "aten/fallback/call.h"
#include "aten/fallback/operator.h"
#include "aten/fallback/output_metadata.h"

namespace openreg {

// The cost per element, in elementary operations, that is assumed for a kernel that was not tuned.
constexpr int64_t kCostPerElement = 8;

// The variant of a structured operator, whose Meta kernel computes the metadata of the results.
// kUnknown means that no Meta kernel is used, so the metadata can come only from the cache.
enum class MetaPath { kUnknown, kFunctional, kInplace, kOut };

struct AliasOperator : Operator {
  explicit AliasOperator(const c10::OperatorHandle& handle);

  MetaPath path = MetaPath::kUnknown;
  // The variant that runs for kFunctional, or that provides the strides for kOut.
  std::optional<c10::OperatorHandle> variant;
  const bool cacheable;
  OutputMetadataCache cache;
  std::atomic<bool> inconsistent{false};  // a cached result was wrong: the cache is disabled
};

// Queues a call and takes the metadata of its results from the Meta kernel. If the Meta kernel
// rejects the arguments, returns false without any effect, because the CPU kernel may accept them
// (index_reduce without elements) or report a different message.
bool queue_by_meta(AliasOperator& op, const c10::OperatorHandle& handle, const Call& call,
                   torch::jit::Stack* stack);

// Queues a call whose results have the metadata `expected`, which an earlier call returned.
void queue_by_cache(AliasOperator& op, const c10::OperatorHandle& handle, const Call& call,
                    std::shared_ptr<const OutputMetadata> expected, torch::jit::Stack* stack);

}  // namespace openreg

#endif  // ATEN_FALLBACK_QUEUED_CALL_H_
