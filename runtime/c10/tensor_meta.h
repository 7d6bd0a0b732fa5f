// SPDX-License-Identifier: BSD-3-Clause
//
// tensor_meta.h - tensor metadata: information that a backend stores with a tensor in addition to
// sizes, strides and dtype (torch's BackendMeta).
//
// Hardware often requires an order of values that strides cannot express (tiles, channel blocks). A
// backend records this order here as a format, together with its own bytes. No kernel on this
// device reads the metadata. A TensorImpl owns its meta. A meta never changes after construction,
// so tensors may share it. torch shares it in detach(), Parameter() and .data: it calls
// BackendMeta::clone, which by default returns the same object. A backend whose meta changes in
// place must override clone.
//
// torch.save, pickle and torch.jit.save write the meta through
// torch::jit::TensorBackendMetaRegistry, which offers a map from strings to bools. to_text()
// returns a key for that map, and parse_tensor_meta() parses it. Any thread may read a meta.
// Setting a meta follows the rules for in-place changes to a tensor.
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
// parse_tensor_meta(), and a check in make_tensor_meta().
struct TensorMeta final : c10::BackendMeta {
  using Keys = std::unordered_map<std::string, bool>;

  TensorMeta(int64_t version, int64_t format, std::string data)
      : version(version), format(format), data(std::move(data)) {}
  TensorMeta(const TensorMeta& meta, Keys others)
      : version(meta.version), format(meta.format), data(meta.data), others(std::move(others)) {}
  explicit TensorMeta(Keys others) : is_set(false), others(std::move(others)) {}

  const bool is_set = true;  // false if the meta contains only `others`
  // The vendor chooses both values, from 0 to kLargestMetaInteger. `version` is the version of
  // `data`. `format` is the order of the values in memory; 0 is the order that sizes and strides
  // describe.
  const int64_t version = 0;
  const int64_t format = 0;
  const std::string data;  // the vendor's own bytes, at most kLargestTensorData
  // Other keys of torch's map, from torch._utils.set_tensor_metadata or from a file of another
  // backend. They are stored unchanged and written again.
  const Keys others;
};

using TensorMetaPtr = c10::intrusive_ptr<TensorMeta>;

// Creates a meta. Throws c10::ValueError if an integer is out of range or the data is too large.
OPENREG_API TensorMetaPtr make_tensor_meta(int64_t version, int64_t format, std::string data);

// Returns the meta of a tensor, or null if it has none. Throws c10::ValueError if the tensor is not
// on this device or does not have its own memory.
OPENREG_API TensorMetaPtr tensor_meta(const at::Tensor& tensor);
OPENREG_API void set_tensor_meta(const at::Tensor& tensor, TensorMetaPtr meta);

// Sets the meta of `to` to that of `from`, if both tensors can have a meta.
OPENREG_API void copy_tensor_meta(const at::Tensor& from, const at::Tensor& to);

// Convert a meta to "openreg:version=1;format=2;data=00ff" and back. parse_tensor_meta() throws
// c10::ValueError for other text.
std::string to_text(const TensorMeta& meta);
TensorMetaPtr parse_tensor_meta(std::string_view text);

}  // namespace openreg

#endif  // RUNTIME_C10_TENSOR_META_H_
