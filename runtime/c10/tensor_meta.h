// SPDX-License-Identifier: BSD-3-Clause
//
// tensor_meta.h - tensor metadata: what a backend stores with a tensor besides sizes, strides and
// dtype (torch's BackendMeta).
//
// Hardware often needs values in an order that strides cannot express (tiles, channel blocks). A
// backend records it here: a format, and its own bytes. No kernel on this device reads it. A
// TensorImpl owns its meta. A meta never changes after construction, so tensors may share one:
// torch does this in detach(), Parameter() and .data, through BackendMeta::clone, which by default
// returns the same object. A backend whose meta changes in place must override clone.
//
// torch.save, pickle and torch.jit.save write the meta through
// torch::jit::TensorBackendMetaRegistry, which offers a map from strings to bools. to_text()
// returns a key of that map, and parse_tensor_meta() reads it. Any thread may read a meta; setting
// one follows the rules for any in-place change to a tensor.
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

// The largest value of `version` and of `format`.
constexpr int64_t kLargestMetaInteger = INT32_MAX;
constexpr size_t kLargestTensorData = size_t{64} << 10;

// A tensor's metadata. To add a field, add the member here, its name in to_text() and
// parse_tensor_meta(), and its check in make_tensor_meta().
struct TensorMeta final : c10::BackendMeta {
  using Keys = std::unordered_map<std::string, bool>;

  TensorMeta(int64_t version, int64_t format, std::string data)
      : version(version), format(format), data(std::move(data)) {}
  TensorMeta(const TensorMeta& meta, Keys others)
      : version(meta.version), format(meta.format), data(meta.data), others(std::move(others)) {}
  explicit TensorMeta(Keys others) : is_set(false), others(std::move(others)) {}

  const bool is_set = true;  // false if there are only `others`
  // The vendor chooses both, from 0 to kLargestMetaInteger: the version of `data`, and the order of
  // the values in memory, where 0 is the order given by sizes and strides.
  const int64_t version = 0;
  const int64_t format = 0;
  const std::string data;  // the vendor's own bytes, at most kLargestTensorData
  // Other keys of torch's map (from torch._utils.set_tensor_metadata or a file of another backend).
  // They are kept unchanged and written again.
  const Keys others;
};

using TensorMetaPtr = c10::intrusive_ptr<TensorMeta>;

// Creates a meta. Throws c10::ValueError if an integer is out of range or the data is too large.
OPENREG_API TensorMetaPtr make_tensor_meta(int64_t version, int64_t format, std::string data);

// Returns the meta of a tensor, or null if it has none. Throws c10::ValueError unless the tensor is
// on this device and has its own memory.
OPENREG_API TensorMetaPtr tensor_meta(const at::Tensor& tensor);
OPENREG_API void set_tensor_meta(const at::Tensor& tensor, TensorMetaPtr meta);

// Gives `to` the meta of `from`, if both tensors can have one.
OPENREG_API void copy_tensor_meta(const at::Tensor& from, const at::Tensor& to);

// Convert a meta to "openreg:version=1;format=2;data=00ff" and back. parse_tensor_meta() throws
// c10::ValueError for other text.
std::string to_text(const TensorMeta& meta);
TensorMetaPtr parse_tensor_meta(std::string_view text);

}  // namespace openreg

#endif  // RUNTIME_C10_TENSOR_META_H_
