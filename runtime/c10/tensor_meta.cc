// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/tensor_meta.h"

#include <c10/util/Exception.h>
#include <torch/csrc/jit/serialization/pickler_helper.h>

#include <charconv>
#include <optional>
#include <unordered_map>
#include <utility>

namespace openreg {
namespace {

// The prefix of this backend's keys. Other PrivateUse1 backends write keys with other prefixes.
constexpr std::string_view kPrefix = "openreg:";

// Returns whether a tensor has its own memory on this device. This excludes a FakeTensor, whose
// storage is on another device, and a wrapper subclass, whose storage is empty.
bool can_have_meta(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kOpenRegType || !tensor.has_storage()) {
    return false;
  }
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  c10::StorageImpl* const storage = impl->unsafe_storage().unsafeGetStorageImpl();
  return storage->device_type() == kOpenRegType &&
         !(impl->is_python_dispatch() && !storage->_mutable_data_ptr_no_checks());
}

void check_can_have_meta(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined() && tensor.device().type() == kOpenRegType,
                    "expected a tensor on device openreg, because other tensors have no such "
                    "metadata, but got a tensor on ",
                    tensor.device());
  TORCH_CHECK_VALUE(can_have_meta(tensor),
                    "only tensors with memory of their own have such metadata, but this tensor has "
                    "layout ",
                    tensor.layout(), " or wraps other tensors: use the tensors that it wraps");
}

TensorMetaPtr meta_of(const at::Tensor& tensor) {
  // No other code sets a BackendMeta on a tensor of this device.
  return c10::static_intrusive_pointer_cast<TensorMeta>(
      tensor.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr());
}

constexpr std::string_view kDigits = "0123456789abcdef";

std::string to_hex(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += kDigits[value >> 4];
    text += kDigits[value & 15];
  }
  return text;
}

std::optional<std::string> from_hex(std::string_view text) {
  if (text.size() % 2 != 0) {
    return std::nullopt;
  }
  std::string bytes;
  bytes.reserve(text.size() / 2);
  for (size_t place = 0; place < text.size(); place += 2) {
    const size_t high = kDigits.find(text[place]);
    const size_t low = kDigits.find(text[place + 1]);
    if (high == kDigits.npos || low == kDigits.npos) {
      return std::nullopt;
    }
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

// Removes "name=value;" from the start of `text`, or "name=value" if `text` contains nothing else.
// Returns the value.
std::optional<std::string_view> take(std::string_view& text, std::string_view name) {
  if (text.substr(0, name.size()) != name || text.substr(name.size(), 1) != "=") {
    return std::nullopt;
  }
  text.remove_prefix(name.size() + 1);
  const size_t end = std::min(text.find(';'), text.size());
  const std::string_view value = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return value;
}

std::optional<int64_t> take_number(std::string_view& text, std::string_view name) {
  const std::optional<std::string_view> value = take(text, name);
  int64_t number = 0;
  if (!value.has_value() || value->empty()) {
    return std::nullopt;
  }
  const char* const end = value->data() + value->size();
  const auto [stopped, error] = std::from_chars(value->data(), end, number);
  return error == std::errc() && stopped == end ? std::optional(number) : std::nullopt;
}

// Implements torch's serialization: adds the meta to the map that torch writes with the tensor.
void write_meta(const at::Tensor& tensor, std::unordered_map<std::string, bool>& written) {
  if (!can_have_meta(tensor)) {
    return;
  }
  if (const TensorMetaPtr meta = meta_of(tensor)) {
    written.insert(meta->others.begin(), meta->others.end());
    if (meta->is_set) {
      written[to_text(*meta)] = true;
    }
  }
}

// Implements torch's deserialization: sets the meta that torch read with the tensor.
void read_meta(const at::Tensor& tensor, std::unordered_map<std::string, bool>& read) {
  if (!can_have_meta(tensor)) {
    return;
  }
  TensorMetaPtr meta;
  TensorMeta::Keys others;
  for (const auto& [key, value] : read) {
    if (key.compare(0, kPrefix.size(), kPrefix) != 0) {
      others.emplace(key, value);
    } else if (value) {
      meta = parse_tensor_meta(key);
    }
  }
  if (!others.empty()) {
    meta = meta != nullptr ? c10::make_intrusive<TensorMeta>(*meta, std::move(others))
                           : c10::make_intrusive<TensorMeta>(std::move(others));
  }
  if (meta != nullptr) {
    set_tensor_meta(tensor, std::move(meta));
  }
}

const bool registered = [] {
  torch::jit::TensorBackendMetaRegistry(kOpenRegType, &write_meta, &read_meta);
  return true;
}();

}  // namespace

TensorMetaPtr make_tensor_meta(int64_t version, int64_t format, std::string data) {
  TORCH_CHECK_VALUE(version >= 0 && version <= kLargestMetaInteger,
                    "the version of a tensor's metadata must be from 0 to ", kLargestMetaInteger,
                    ", but got ", version);
  TORCH_CHECK_VALUE(format >= 0 && format <= kLargestMetaInteger,
                    "the format of a tensor's metadata must be from 0 to ", kLargestMetaInteger,
                    ", but got ", format);
  TORCH_CHECK_VALUE(data.size() <= kLargestTensorData,
                    "the data of a tensor's metadata must be at most ", kLargestTensorData,
                    " bytes, but got ", data.size(), " bytes");
  return c10::make_intrusive<TensorMeta>(version, format, std::move(data));
}

TensorMetaPtr tensor_meta(const at::Tensor& tensor) {
  check_can_have_meta(tensor);
  TensorMetaPtr meta = meta_of(tensor);
  return meta != nullptr && meta->is_set ? meta : TensorMetaPtr();
}

void set_tensor_meta(const at::Tensor& tensor, TensorMetaPtr meta) {
  check_can_have_meta(tensor);
  tensor.unsafeGetTensorImpl()->set_backend_meta(std::move(meta));
}

void copy_tensor_meta(const at::Tensor& from, const at::Tensor& to) {
  if (can_have_meta(from) && can_have_meta(to)) {
    if (TensorMetaPtr meta = meta_of(from)) {
      set_tensor_meta(to, std::move(meta));
    }
  }
}

std::string to_text(const TensorMeta& meta) {
  std::string text(kPrefix);
  text += "version=" + std::to_string(meta.version);
  text += ";format=" + std::to_string(meta.format);
  text += ";data=" + to_hex(meta.data);
  return text;
}

TensorMetaPtr parse_tensor_meta(std::string_view text) {
  std::string_view rest = text;
  rest.remove_prefix(std::min(kPrefix.size(), rest.size()));
  const std::optional<int64_t> version = take_number(rest, "version");
  const std::optional<int64_t> format = take_number(rest, "format");
  const std::optional<std::string_view> hex = take(rest, "data");
  std::optional<std::string> data = hex.has_value() ? from_hex(*hex) : std::nullopt;
  TORCH_CHECK_VALUE(text.substr(0, kPrefix.size()) == kPrefix && version.has_value() &&
                        format.has_value() && data.has_value() && rest.empty(),
                    "the metadata of an openreg tensor in this file is damaged or was written by "
                    "another release: '",
                    text.substr(0, 80), "'");
  return make_tensor_meta(*version, *format, std::move(*data));
}

}  // namespace openreg
