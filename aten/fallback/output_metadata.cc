// SPDX-License-Identifier: BSD-3-Clause
#include "aten/fallback/output_metadata.h"

#include <ATen/Context.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "aten/fallback/boxed_tensors.h"
#include "aten/launch/argument_key.h"
#include "aten/tensors/tensor_parts.h"

namespace openreg {
namespace {

// Operators whose output shapes or errors depend on data although torch does not tag them as such.
constexpr std::string_view kExceptions[] = {
    "aten::_padded_dense_to_jagged_forward",      // by default, the size is the sum of the lengths
    "aten::_validate_compressed_sparse_indices",  // only checks data and throws errors
    "aten::range.out",                            // computes its size from floating-point numbers
};

OutputMetadata::Shape shape_of(const at::Tensor& tensor) {
  return {at::DimVector(tensor.sizes()), at::DimVector(tensor.strides())};
}

bool same(const OutputMetadata::Shape& shape, const at::Tensor& tensor) {
  return tensor.sizes() == shape.sizes && tensor.strides() == shape.strides;
}

class KeyWriter {
 public:
  bool add(const c10::IValue& value) {
    if (value.isTensor() || value.isTensorList() || value.isOptionalTensorList()) {
      head(kTensors, 0);
      for_each_tensor(value, [&](const at::Tensor& tensor) { add(tensor); });
    } else if (value.isInt()) {
      head(kInt, value.toInt());
    } else if (value.isBool()) {
      head(kBool, value.toBool());
    } else if (value.isIntList()) {
      const std::vector<int64_t> list = value.toIntVector();
      head(kList, list.size());
      key_.insert(key_.end(), list.begin(), list.end());
    } else if (value.isBoolList()) {
      const c10::List<bool> list = value.toBoolList();
      head(kList, list.size());
      for (const bool flag : list) {
        key_.push_back(flag);
      }
    } else if (value.isString()) {
      const std::string_view text = value.toStringView();
      head(kString, text.size());
      key_.insert(key_.end(), text.begin(), text.end());
    } else if (value.isDevice()) {
      head(kDevice, static_cast<int64_t>(value.toDevice().type()));
      key_.push_back(value.toDevice().index());
    } else if (value.isDouble()) {
      add(value.toDouble());
    } else if (value.isComplexDouble()) {
      head(kComplex, 0);
    } else if (value.isDoubleList()) {
      const std::vector<double> list = value.toDoubleVector();
      head(kDoubles, list.size());
      for (const double number : list) {
        add(number);
      }
    } else if (value.isGenerator()) {
      head(kGenerator, 0);
    } else if (value.isNone()) {
      head(kNone, 0);
    } else {
      return false;
    }
    return true;
  }

  MetadataKey take() {
    head(kDefaultDtype, static_cast<int64_t>(c10::get_default_dtype_as_scalartype()));
    // Some kernels throw an error if deterministic algorithms are required.
    head(kDeterministic, at::globalContext().deterministicAlgorithms());
    return std::move(key_);
  }

 private:
  enum Kind {
    kNone,
    kUndefined,
    kTensors,
    kTensor,
    kList,
    kInt,
    kBool,
    kString,
    kDevice,
    kDouble,
    kDoubles,
    kComplex,
    kGenerator,
    kDefaultDtype,
    kDeterministic
  };

  template <class Number>
  void head(Kind kind, Number number) {
    key_.push_back(kind);
    key_.push_back(static_cast<int64_t>(number));
  }

  // Adds a floating-point number. Result sizes do not depend on it, but errors may. Therefore the
  // key contains the number's range, and whether the number is less than, equal to or greater than
  // the previous one.
  void add(double number) {
    head(kDouble, range_of(number));
    key_.push_back(!last_.has_value() || number == *last_ ? 0 : number < *last_ ? 1 : 2);
    last_ = number;
  }

  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      head(kUndefined, 0);
      return;
    }
    head(kTensor, tensor.scalar_type());
    key_.push_back(static_cast<int64_t>(tensor.device().type()));
    key_.push_back(tensor.dim());
    key_.push_back((tensor.is_conj() ? 1 : 0) | (tensor.is_neg() ? 2 : 0) |
                   (tensor.requires_grad() ? 4 : 0) |
                   (tensor.unsafeGetTensorImpl()->is_wrapped_number() ? 8 : 0));
    const at::IntArrayRef sizes = tensor.sizes();
    const at::IntArrayRef strides = tensor.strides();
    key_.insert(key_.end(), sizes.begin(), sizes.end());
    key_.insert(key_.end(), strides.begin(), strides.end());
    // Some kernels reject overlapping arguments. The key encodes which arguments overlap, so that a
    // call with overlapping arguments waits and throws the error itself.
    const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
    const auto known = std::find(storages_.begin(), storages_.end(), storage);
    key_.push_back(known - storages_.begin());
    if (known == storages_.end()) {
      storages_.push_back(storage);
      offsets_.push_back(tensor.storage_offset());
    } else {
      key_.push_back(tensor.storage_offset() -
                     offsets_[static_cast<size_t>(known - storages_.begin())]);
    }
  }

  MetadataKey key_;
  std::optional<double> last_;
  std::vector<const c10::StorageImpl*> storages_;
  std::vector<int64_t> offsets_;
};

}  // namespace

bool is_cacheable(const c10::OperatorHandle& handle) {
  const c10::FunctionSchema& schema = handle.schema();
  // Results of another library's operators may depend on data although no tag indicates this.
  if (schema.name().rfind("aten::", 0) != 0) {
    return false;
  }
  for (const c10::Argument& result : schema.returns()) {
    if (result.type()->kind() != c10::TypeKind::TensorType) {
      return false;
    }
  }
  const std::string name = toString(handle.operator_name());
  // torch tags both variants of _ctc_loss as data-dependent, but the result sizes of this variant
  // depend only on its integer arguments.
  if (name == "aten::_ctc_loss") {
    return true;
  }
  return !handle.hasTag(at::Tag::dynamic_output_shape) &&
         !handle.hasTag(at::Tag::data_dependent_output) &&
         std::find(std::begin(kExceptions), std::end(kExceptions), name) == std::end(kExceptions);
}

std::optional<MetadataKey> metadata_key(c10::ArrayRef<c10::IValue> arguments) {
  KeyWriter writer;
  for (const c10::IValue& argument : arguments) {
    if (!writer.add(argument)) {
      return std::nullopt;
    }
  }
  return writer.take();
}

OutputObserver::OutputObserver(c10::ArrayRef<c10::IValue> arguments) : arguments_(arguments.vec()) {
  for (const c10::IValue& argument : arguments_) {
    shapes_.push_back(argument.isTensor() && argument.toTensor().defined()
                          ? shape_of(argument.toTensor())
                          : OutputMetadata::Shape());
  }
}

std::optional<OutputMetadata> OutputObserver::observe(c10::ArrayRef<c10::IValue> results) const {
  OutputMetadata metadata;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (!arguments_[i].isTensor() || !arguments_[i].toTensor().defined()) {
      continue;
    }
    const at::Tensor& argument = arguments_[i].toTensor();
    if (same(shapes_[i], argument)) {
      continue;
    }
    // This call cannot be cached, because torch must print a warning whenever it resizes a tensor
    // that is not empty.
    if (c10::multiply_integers(shapes_[i].sizes) != 0) {
      return std::nullopt;
    }
    metadata.resized.push_back({i, shape_of(argument)});
  }

  std::vector<const c10::StorageImpl*> storages;
  for (const c10::IValue& argument : arguments_) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (tensor.defined()) {
        storages.push_back(tensor.storage().unsafeGetStorageImpl());
      }
    });
  }
  for (const c10::IValue& value : results) {
    const at::Tensor& result = value.toTensor();
    OutputMetadata::Result& entry = metadata.results.emplace_back();
    if (!result.defined()) {
      continue;
    }
    const auto argument =
        std::find_if(arguments_.begin(), arguments_.end(), [&](const c10::IValue& candidate) {
          return candidate.isTensor() && candidate.toTensor().is_same(result);
        });
    if (argument != arguments_.end()) {
      entry.argument = static_cast<size_t>(argument - arguments_.begin());
      continue;
    }
    if (has_parts(result) || result.is_conj() || result.is_neg() || result.storage_offset() != 0 ||
        at::has_internal_overlap(result) != at::MemOverlap::No) {
      return std::nullopt;
    }
    const c10::StorageImpl* const storage = result.storage().unsafeGetStorageImpl();
    if (std::find(storages.begin(), storages.end(), storage) != storages.end()) {
      return std::nullopt;
    }
    storages.push_back(storage);
    entry.shape = shape_of(result);
    entry.dtype = result.scalar_type();
  }
  return metadata;
}

size_t OutputMetadataCache::Hash::operator()(const MetadataKey& key) const {
  // FNV-1a over 64-bit words.
  uint64_t hash = 0xcbf29ce484222325;
  for (const int64_t number : key) {
    hash = (hash ^ static_cast<uint64_t>(number)) * 0x100000001b3;
  }
  return hash ^ (hash >> 32);
}

std::shared_ptr<const OutputMetadata> OutputMetadataCache::find(const MetadataKey& key) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : found->second;
}

void OutputMetadataCache::add(MetadataKey key, OutputMetadata metadata) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (by_key_.size() >= kMaxEntries) {
    by_key_.clear();
  }
  by_key_.insert_or_assign(std::move(key),
                           std::make_shared<const OutputMetadata>(std::move(metadata)));
}

}  // namespace openreg
