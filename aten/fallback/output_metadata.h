// SPDX-License-Identifier: BSD-3-Clause
//
// A cache of output metadata: sizes, strides and dtypes of an operator's results, keyed by the
// metadata of its arguments.
//
// For most operators without a Meta kernel, the metadata of the results depends only on the
// metadata of the arguments, but it is known only after the operator has run. Therefore the
// fallback waits for the first call with a key and stores the metadata of its results. For the next
// call with the same key it expects the same metadata: it allocates the results before the kernel
// has run, and the kernel checks that they are as expected.
//
// Any thread may use a cache.
#ifndef ATEN_FALLBACK_OUTPUT_METADATA_H_
#define ATEN_FALLBACK_OUTPUT_METADATA_H_

#include <ATen/DimVector.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/operator_name.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace openreg {

// Returns whether torch declares that the metadata of the operator's results depends only on the
// metadata of its arguments.
bool is_cacheable(const c10::OperatorHandle& handle);

// Returns the cache key of a call. The key contains the dtypes, sizes, strides and flags of the
// tensors, which of them share memory, the values of other arguments, and the settings that kernels
// read. For a floating-point number, the key contains only its range, because sizes do not depend
// on the number. Returns nullopt if a key cannot describe an argument.
using MetadataKey = std::vector<int64_t>;
std::optional<MetadataKey> metadata_key(c10::ArrayRef<c10::IValue> arguments);

struct OutputMetadata {
  struct Shape {
    at::DimVector sizes;
    at::DimVector strides;
  };
  // One result: a new tensor of `shape`, the argument with this index, or an undefined tensor.
  struct Result {
    std::optional<Shape> shape;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
    std::optional<size_t> argument;
  };
  // An argument that the operator resized.
  struct Resized {
    size_t argument;
    Shape shape;
  };
  std::vector<Result> results;
  std::vector<Resized> resized;
};

// Records the arguments of a call before it runs, to determine the metadata of its results
// afterwards.
class OutputObserver {
 public:
  explicit OutputObserver(c10::ArrayRef<c10::IValue> arguments);

  // Called after the call. Returns the metadata of its results, or nullopt if OutputMetadata cannot
  // describe them, because they are views of arguments, share memory or have lazy bits.
  std::optional<OutputMetadata> observe(c10::ArrayRef<c10::IValue> results) const;

 private:
  std::vector<c10::IValue> arguments_;
  std::vector<OutputMetadata::Shape> shapes_;  // shapes of the argument tensors before the call
};

// The cache of one operator.
class OutputMetadataCache {
 public:
  // Returns nullptr if there is no entry.
  std::shared_ptr<const OutputMetadata> find(const MetadataKey& key) const;
  void add(MetadataKey key, OutputMetadata metadata);

 private:
  struct Hash {
    size_t operator()(const MetadataKey& key) const;
  };
  // Limits the memory usage in programs that never repeat a call.
  static constexpr size_t kMaxEntries = 1024;

  mutable std::mutex mutex_;
  std::unordered_map<MetadataKey, std::shared_ptr<const OutputMetadata>, Hash> by_key_;
};

}  // namespace openreg

#endif  // ATEN_FALLBACK_OUTPUT_METADATA_H_
