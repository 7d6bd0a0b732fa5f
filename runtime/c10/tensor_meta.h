// SPDX-License-Identifier: BSD-3-Clause
//
// What a backend keeps with a tensor beside sizes, strides and dtype: torch's BackendMeta.
//
// Hardware often wants values in another order than strides can say (tiles, blocks of channels).
// This is where a backend notes which: a format, and bytes of its own. No kernel of this device
// reads it. A TensorImpl owns its meta. A meta never changes once it is made, so that tensors may
// share one: torch does it in detach(), Parameter() and .data, through BackendMeta::clone, whose
// default hands the same object on. A meta that changes in place has to override clone.
//
// torch.save, pickle and torch.jit.save write it through torch::jit::TensorBackendMetaRegistry,
// which offers a map from strings to bools: to_text() is a key of it, and parse() reads that.
// Threads: reading from any; setting is as any change of a tensor in place.
#ifndef RUNTIME_C10_TENSOR_META_H_
#define RUNTIME_C10_TENSOR_META_H_

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "runtime/c10/device.h"

namespace openreg {

// How the values lie. The numbers are in files: none changes, new ones go to the end.
enum class Format : int64_t {
  kPlain = 0,    // as sizes and strides say
  kTiled = 1,    // matrices in tiles
  kBlocked = 2,  // channels in blocks
};
constexpr int64_t kFormats = 3;

constexpr int64_t kLargestVersion = INT32_MAX;
constexpr size_t kLargestTensorData = size_t{64} << 10;

// To be extended: a field more, its name in to_text() and parse(), its check in make_tensor_meta().
struct TensorMeta final : c10::BackendMeta {
  using Keys = std::unordered_map<std::string, bool>;

  TensorMeta(int64_t version, Format format, std::string data)
      : version(version), format(format), data(std::move(data)) {}
  TensorMeta(const TensorMeta& meta, Keys others)
      : version(meta.version), format(meta.format), data(meta.data), others(std::move(others)) {}
  explicit TensorMeta(Keys others) : is_set(false), others(std::move(others)) {}

  const bool is_set = true;   // false: there is nothing but `others`
  const int64_t version = 0;  // of `data`: its owner's, from 0 to kLargestVersion
  const Format format = Format::kPlain;
  const std::string data;  // the vendor's own bytes, kLargestTensorData at most
  // Keys of torch's map that are not ours (torch._utils.set_tensor_metadata, or a file of another
  // backend): they are kept as they are and written again.
  const Keys others;
};

using TensorMetaPtr = c10::intrusive_ptr<TensorMeta>;

// Throws c10::ValueError if a number is out of range or the data too large.
OPENREG_API TensorMetaPtr make_tensor_meta(int64_t version, int64_t format, std::string data);

// Of a tensor of this device with memory of its own; throws c10::ValueError for others. Null: none.
OPENREG_API TensorMetaPtr tensor_meta(const at::Tensor& tensor);
OPENREG_API void set_tensor_meta(const at::Tensor& tensor, TensorMetaPtr meta);

// Gives `to` the meta of `from`, if both can have one.
OPENREG_API void copy_tensor_meta(const at::Tensor& from, const at::Tensor& to);

// "openreg:version=1;format=2;data=00ff", and back; parse throws c10::ValueError for other text.
OPENREG_API std::string to_text(const TensorMeta& meta);
OPENREG_API TensorMetaPtr parse_tensor_meta(std::string_view text);

}  // namespace openreg

#endif  // RUNTIME_C10_TENSOR_META_H_
