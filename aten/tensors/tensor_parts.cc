// SPDX-License-Identifier: BSD-3-Clause
#include "aten/tensors/tensor_parts.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/native/nested/NestedTensorUtils.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/util/Exception.h>

#include <optional>

#include "aten/tensors/tensor.h"
#include "runtime/c10/device.h"

namespace openreg {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

at::SparseTensorImpl& coo(const at::Tensor& tensor) {
  return static_cast<at::SparseTensorImpl&>(*tensor.unsafeGetTensorImpl());
}

at::SparseCsrTensorImpl& compressed(const at::Tensor& tensor) {
  return static_cast<at::SparseCsrTensorImpl&>(*tensor.unsafeGetTensorImpl());
}

// Returns the per-channel quantizer of `tensor`, or null if it has none.
const at::PerChannelAffineQuantizer* channels_of(const at::Tensor& tensor) {
  return dynamic_cast<const at::PerChannelAffineQuantizer*>(
      at::get_qtensorimpl(tensor)->quantizer().get());
}

at::Tensor integers_of(const at::Tensor& quantized) {
  const c10::ScalarType dtype = quantized.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(dtype != c10::kQUInt4x2 && dtype != c10::kQUInt2x4,
                              "openreg: quantized tensors with several elements per byte (", dtype,
                              ") are not supported: dequantize on the CPU, or use quint8");
  at::Tensor integers = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(quantized.storage()),
      DispatchKeySet(is_device(quantized) ? DispatchKey::PrivateUse1 : DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(c10::toUnderlying(dtype)));
  integers.unsafeGetTensorImpl()->set_sizes_and_strides(quantized.sizes(), quantized.strides(),
                                                        quantized.storage_offset());
  return integers;
}

// Returns the quantizer of `like` with the scales and zero points of `parts`.
at::QuantizerPtr quantizer_of(const at::Tensor& like, const std::vector<at::Tensor>& parts) {
  const at::PerChannelAffineQuantizer* const channels = channels_of(like);
  return channels == nullptr ? at::get_qtensorimpl(like)->quantizer()
                             : at::make_per_channel_affine_quantizer(
                                   parts[1], parts[2], channels->axis(), like.scalar_type());
}

at::Tensor make_quantized(const at::Tensor& like, const std::vector<at::Tensor>& parts, bool ours) {
  const at::Tensor& integers = parts[0];
  at::Tensor result = at::detail::make_tensor<at::QTensorImpl>(
      c10::Storage(integers.storage()),
      DispatchKeySet(ours ? DispatchKey::QuantizedPrivateUse1 : DispatchKey::QuantizedCPU),
      like.dtype(), quantizer_of(like, parts));
  result.unsafeGetTensorImpl()->set_sizes_and_strides(integers.sizes(), integers.strides(),
                                                      integers.storage_offset());
  return result;
}

// Returns the part, or a detached tensor if the part requires grad. Below autograd, the parts of a
// tensor that requires grad are not in its graph.
at::Tensor detached(const at::Tensor& part) { return part.requires_grad() ? part.detach() : part; }

}  // namespace

bool has_parts(const at::Tensor& tensor) {
  return tensor.layout() != c10::kStrided || tensor.is_quantized() ||
         tensor.unsafeGetTensorImpl()->key_set().has(DispatchKey::NestedTensor);
}

std::vector<at::Tensor> parts_of(const at::Tensor& tensor) {
  if (tensor.layout() == c10::kSparse) {
    return {coo(tensor).indices(), coo(tensor).values()};
  }
  if (at::sparse_csr::is_sparse_compressed(tensor)) {
    return {compressed(tensor).compressed_indices(), compressed(tensor).plain_indices(),
            compressed(tensor).values()};
  }
  if (tensor.is_quantized()) {
    if (const at::PerChannelAffineQuantizer* const channels = channels_of(tensor)) {
      return {integers_of(tensor), channels->scales(), channels->zero_points()};
    }
    return {integers_of(tensor)};
  }
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided,
                              "openreg: CPU kernels cannot use a device tensor with layout ",
                              tensor.layout());
  return {at::native::get_nested_tensor_impl(tensor)->get_unsafe_storage_as_tensor()};
}

at::Tensor make_from_parts(const at::Tensor& like, const std::vector<at::Tensor>& parts) {
  const bool ours = is_device(parts.front());
  // torch's objects use the current device as their device.
  std::optional<DeviceScope> scope;
  if (ours) {
    scope.emplace(parts.front().get_device());
  }
  if (like.is_quantized()) {
    return make_quantized(like, parts, ours);
  }
  if (like.layout() == c10::kStrided) {
    const at::native::NestedTensorImpl& nested = *at::native::get_nested_tensor_impl(like);
    return at::native::wrap_buffer(parts.front(), nested.get_nested_sizes(),
                                   nested.get_nested_strides(), nested.get_storage_offsets());
  }
  at::Tensor result;
  if (like.layout() == c10::kSparse) {
    result = at::detail::make_tensor<at::SparseTensorImpl>(
        DispatchKeySet(ours ? DispatchKey::SparsePrivateUse1 : DispatchKey::SparseCPU),
        like.dtype());
  } else {
    result = at::detail::make_tensor<at::SparseCsrTensorImpl>(
        DispatchKeySet(ours ? DispatchKey::SparseCsrPrivateUse1 : DispatchKey::SparseCsrCPU),
        parts.front().device(), like.layout(), like.dtype());
  }
  set_parts(result, like, parts);
  return result;
}

void set_parts(const at::Tensor& tensor, const at::Tensor& like,
               const std::vector<at::Tensor>& parts) {
  if (like.layout() == c10::kSparse) {
    at::SparseTensorImpl& impl = coo(tensor);
    impl.raw_resize_(coo(like).sparse_dim(), coo(like).dense_dim(), like.sizes());
    impl.set_indices_and_values_unsafe(detached(parts[0]), detached(parts[1]));
    impl.set_coalesced(coo(like).coalesced());
  } else if (at::sparse_csr::is_sparse_compressed(like)) {
    compressed(tensor).set_layout(like.layout());
    compressed(tensor).set_member_tensors(detached(parts[0]), detached(parts[1]),
                                          detached(parts[2]), like.sizes());
  } else if (like.is_quantized()) {
    std::vector<at::Tensor> moved;
    for (const at::Tensor& part : parts) {
      moved.push_back(moved.empty() ? part : part.to(tensor.device()));
    }
    at::get_qtensorimpl(tensor)->set_quantizer_(quantizer_of(like, moved));
  }
}

}  // namespace openreg
