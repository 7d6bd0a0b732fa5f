// SPDX-License-Identifier: BSD-3-Clause
//
// A cache of output metadata: sizes, strides and dtypes of an operator's results, by the metadata
// of its arguments.
//
// Most operators without a Meta kernel take the metadata of their results from that of their
// arguments alone, but only running them tells which. So the fallback waits for the first call with
// a key, keeps here what came out, and expects the same of the next call with that key: it makes
// the results before the kernel has run, and the kernel checks them.
//
// Threads: any.
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

// Whether the metadata of this operator's results follows from its arguments' alone, as far as
// torch says.
bool is_cacheable(const c10::OperatorHandle& handle);

// The cache key of a call: dtypes, sizes, strides and flags of the tensors, and which of them share
// memory; the values of other arguments, but of real numbers only their range, since no size
// follows from them; the settings that kernels read. nullopt for arguments that no key describes.
using MetadataKey = std::vector<int64_t>;
std::optional<MetadataKey> metadata_key(c10::ArrayRef<c10::IValue> arguments);

struct OutputMetadata {
  struct Shape {
    at::DimVector sizes;
    at::DimVector strides;
  };
  // A new tensor of this shape, or an argument, or an undefined tensor.
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

// Sees a call before and after it runs.
class OutputObserver {
 public:
  explicit OutputObserver(c10::ArrayRef<c10::IValue> arguments);

  // nullopt where OutputMetadata cannot describe the results: views of arguments, tensors that
  // share memory, lazy bits.
  std::optional<OutputMetadata> observe(c10::ArrayRef<c10::IValue> results) const;

 private:
  std::vector<c10::IValue> arguments_;
  std::vector<OutputMetadata::Shape> shapes_;  // of those that are tensors, before
};

// The cache of one operator.
class OutputMetadataCache {
 public:
  // nullptr: there is none.
  std::shared_ptr<const OutputMetadata> find(const MetadataKey& key) const;
  void add(MetadataKey key, OutputMetadata metadata);

 private:
  struct Hash {
    size_t operator()(const MetadataKey& key) const;
  };
  // A bound for programs that never repeat a call.
  static constexpr size_t kMost = 1024;

  mutable std::mutex mutex_;
  std::unordered_map<MetadataKey, std::shared_ptr<const OutputMetadata>, Hash> by_key_;
};

}  // namespace openreg

#endif  // ATEN_FALLBACK_OUTPUT_METADATA_H_
