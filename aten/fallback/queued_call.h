// SPDX-License-Identifier: BSD-3-Clause
//
// Queues calls to the alias fallback without waiting: allocates the results, then queues the CPU
// kernel with aliases of the arguments. Any thread may call these functions; the driver chooses the
// thread of the kernel.
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

// The assumed cost of an untuned kernel per element, in elementary operations (launch.h).
constexpr int64_t kCostPerElement = 8;

// Which variant of a structured operator this is. The variant determines how the Meta kernel is
// called. kUnknown means that no Meta kernel is used, so only the cache can provide the metadata.
enum class MetaPath { kUnknown, kFunctional, kInplace, kOut };

struct AliasOperator : Operator {
  explicit AliasOperator(const c10::OperatorHandle& handle);

  MetaPath path = MetaPath::kUnknown;
  // The variant that runs for kFunctional, or that provides the strides for kOut.
  std::optional<c10::OperatorHandle> variant;
  const bool cacheable;
  OutputMetadataCache cache;
  std::atomic<bool> inconsistent{false};  // a cached result was wrong, so the cache is disabled
};

// Queues a call whose Meta kernel computes the metadata of the results. If the Meta kernel rejects
// the arguments, returns false without any effect: the CPU kernel may accept them (index_reduce
// without elements) or throw an error with a different message.
bool queue_by_meta(AliasOperator& op, const c10::OperatorHandle& handle, const Call& call,
                   torch::jit::Stack* stack);

// Queues a call whose results are expected to have the metadata `expected`, as in an earlier call.
void queue_by_cache(AliasOperator& op, const c10::OperatorHandle& handle, const Call& call,
                    std::shared_ptr<const OutputMetadata> expected, torch::jit::Stack* stack);

}  // namespace openreg

#endif  // ATEN_FALLBACK_QUEUED_CALL_H_
