// SPDX-License-Identifier: BSD-3-Clause
//
// Calls of the alias fallback that the host does not wait for: the results are made first, and the
// CPU's kernel is queued with aliases of the arguments.
// Threads: any; what is queued runs where the driver says.
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

// A kernel that nobody tuned is taken to cost this many elementary operations an element.
constexpr int64_t kCostPerElement = 8;

// How the results' metadata is known without a cache: by torch's Meta kernel, if the operator is a
// variant of a structured one.
enum class MetaPath { kUnknown, kFunctional, kInplace, kOut };

struct AliasOperator : Operator {
  explicit AliasOperator(const c10::OperatorHandle& handle);

  MetaPath path = MetaPath::kUnknown;
  // Of kFunctional the variant that runs, of kOut the one that tells the strides.
  std::optional<c10::OperatorHandle> variant;
  const bool cacheable;
  OutputMetadataCache cache;
  std::atomic<bool> inconsistent{false};  // a cached result was wrong: the cache is off
};

// Queues a call whose results the Meta kernel describes. False, with nothing done, if that refuses
// these arguments. Some refuse what the CPU's kernel takes (index_reduce without elements), some in
// other words.
bool queue_by_meta(AliasOperator& op, const c10::OperatorHandle& handle, const Call& call,
                   torch::jit::Stack* stack);

// Queues a call whose results an earlier one describes.
void queue_by_cache(AliasOperator& op, const c10::OperatorHandle& handle, const Call& call,
                    std::shared_ptr<const OutputMetadata> expected, torch::jit::Stack* stack);

}  // namespace openreg

#endif  // ATEN_FALLBACK_QUEUED_CALL_H_
