// SPDX-License-Identifier: BSD-3-Clause
//
// Operators on sparse, quantized and nested tensors (tensor_parts.h) that access no data: they
// create a tensor, query it, or change its parts. torch's CPU functions for these operators work
// for every device, so this file registers them. Operators that compute use the fallback
// (//aten/fallback). Any thread may call the operators.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_empty_affine_quantized_native.h>
#include <ATen/ops/_empty_per_channel_affine_quantized_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nested_tensor_size_native.h>
#include <ATen/ops/_nested_tensor_storage_offsets_native.h>
#include <ATen/ops/_nested_tensor_strides_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/ccol_indices_native.h>
#include <ATen/ops/col_indices_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/crow_indices_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/empty_quantized_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/native_dropout_native.h>
#include <ATen/ops/q_per_channel_axis_native.h>
#include <ATen/ops/q_per_channel_scales_native.h>
#include <ATen/ops/q_per_channel_zero_points_native.h>
#include <ATen/ops/q_scale_native.h>
#include <ATen/ops/q_zero_point_native.h>
#include <ATen/ops/qscheme_native.h>
#include <ATen/ops/quantize_per_channel_ops.h>
#include <ATen/ops/quantize_per_tensor_ops.h>
#include <ATen/ops/row_indices_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/sparse_resize_and_clear_native.h>
#include <ATen/ops/sparse_resize_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/values_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "aten/tensors/storage.h"
#include "aten/tensors/tensor_parts.h"
#include "runtime/c10/device.h"

namespace openreg {
namespace {

// Calls a torch factory while the device in its options is the current device, because torch's
// sparse objects use the current device.
template <auto kFactory, class Signature>
struct OnDevice;
template <auto kFactory, class... Arguments>
struct OnDevice<kFactory, at::Tensor (*)(Arguments...)> {
  static at::Tensor call(Arguments... arguments) {
    c10::DeviceIndex index = -1;
    const auto look = [&index]<class T>(const T& argument) {
      if constexpr (std::is_same_v<T, std::optional<at::Device>>) {
        index = argument.has_value() ? argument->index() : c10::DeviceIndex{-1};
      }
    };
    (look(arguments), ...);
    const DeviceScope scope(resolve_device(index));
    return kFactory(arguments...);
  }
};
template <auto kFactory>
constexpr auto on_device = &OnDevice<kFactory, decltype(kFactory)>::call;

// Copies to a quantized tensor. A floating-point source is quantized with the quantizer of the
// destination. If the source is quantized, the destination adopts its quantizer.
at::Tensor copy_quantized(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  TORCH_CHECK(dst.is_quantized(),
              "Copying from quantized Tensor to non-quantized Tensor is not allowed, please use "
              "dequantize to get a float Tensor from a quantized Tensor");
  at::Tensor source = src;
  if (src.is_quantized()) {
    TORCH_CHECK(src.qscheme() == dst.qscheme(), "Quantized Copy only works with same qscheme");
    TORCH_CHECK(src.scalar_type() == dst.scalar_type(),
                "Quantized Copy works with tensors of the same dtype, but found ",
                src.scalar_type(), " and ", dst.scalar_type());
    TORCH_CHECK(src.sizes() == dst.sizes(),
                "Quantized Copy works with tensors of the same size, but "
                "found ",
                src.sizes(), " and ", dst.sizes());
    set_parts(dst, src, parts_of(src));
  } else {
    TORCH_CHECK(src.scalar_type() == at::kFloat,
                "Quantized copy only works with kFloat as source Tensor");
    const at::Tensor numbers = src.to(dst.device());
    source = dst.qscheme() == at::kPerTensorAffine
                 ? at::_ops::quantize_per_tensor::call(numbers, dst.q_scale(), dst.q_zero_point(),
                                                       dst.scalar_type())
                 : at::_ops::quantize_per_channel::call(
                       numbers, dst.q_per_channel_scales(), dst.q_per_channel_zero_points(),
                       dst.q_per_channel_axis(), dst.scalar_type());
  }
  parts_of(dst).front().copy_(parts_of(source).front(), non_blocking);
  return dst;
}

// Implements _to_copy for a nested tensor, because torch's kernel works only on the CPU. Only the
// buffer is copied; the sizes and strides stay on the CPU.
at::Tensor nested_to_copy(const at::Tensor& self, std::optional<at::ScalarType> dtype,
                          std::optional<at::Layout> layout, std::optional<at::Device> device,
                          std::optional<bool> pin_memory, bool non_blocking,
                          std::optional<at::MemoryFormat> memory_format) {
  TORCH_CHECK(layout.value_or(self.layout()) == self.layout(),
              "openreg: a nested tensor with layout ", self.layout(),
              " cannot be converted to layout ", *layout);
  at::Tensor buffer = parts_of(self).front();
  buffer = at::_ops::_to_copy::call(buffer, dtype, std::nullopt, device, pin_memory, non_blocking,
                                    memory_format);
  return make_from_parts(self, {buffer});
}

// Registers the factories for quantized tensors. They are registered for two dispatch keys, because
// a factory is called either without a tensor or with a tensor that is not quantized.
void make_quantized_tensors(torch::Library& library) {
  library.impl("_empty_affine_quantized", TORCH_FN(on_device<&at::native::empty_affine_quantized>));
  library.impl("_empty_per_channel_affine_quantized",
               TORCH_FN(on_device<&at::native::empty_per_channel_affine_quantized>));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, library) {
  library.impl("empty.memory_format", TORCH_FN(on_device<&at::native::empty_sparse_symint>));
  library.impl("empty_like", TORCH_FN(at::native::empty_like_sparse_coo));
  library.impl("_sparse_coo_tensor_with_dims",
               TORCH_FN(on_device<&at::native::new_with_dims_sparse>));
  library.impl("_sparse_coo_tensor_with_dims_and_tensors",
               TORCH_FN(on_device<&at::native::new_with_dims_and_tensor_sparse_symint>));
  library.impl("sparse_resize_", TORCH_FN(at::native::sparse_resize_));
  library.impl("sparse_resize_and_clear_", TORCH_FN(at::native::sparse_resize_and_clear_));
  library.impl("sparse_dim", TORCH_FN(at::native::sparse_dim_sparse));
  library.impl("_dimI", TORCH_FN(at::native::sparse_dim_sparse));
  library.impl("dense_dim", TORCH_FN(at::native::dense_dim_sparse));
  library.impl("_dimV", TORCH_FN(at::native::dense_dim_sparse));
  library.impl("_nnz", TORCH_FN(at::native::_nnz_sparse));
  library.impl("is_coalesced", TORCH_FN(at::native::is_coalesced_sparse));
  library.impl("_coalesced_", TORCH_FN(at::native::_coalesced_sparse_));
  library.impl("_indices", TORCH_FN(at::native::_indices_sparse));
  library.impl("_values", TORCH_FN(at::native::_values_sparse));
  library.impl("indices", TORCH_FN(at::native::indices_sparse));
  library.impl("values", TORCH_FN(at::native::values_sparse));
  library.impl("copy_", TORCH_FN(at::native::copy_sparse_wrapper_));
  library.impl("copy_sparse_to_sparse_", TORCH_FN(at::native::copy_sparse_));
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, library) {
  library.impl("empty.memory_format",
               TORCH_FN(on_device<&at::native::empty_sparse_compressed_symint>));
  library.impl("empty_like", TORCH_FN(at::native::empty_like_sparse_csr));
  library.impl("sparse_dim", TORCH_FN(at::native::sparse_dim_sparse_csr));
  library.impl("dense_dim", TORCH_FN(at::native::dense_dim_sparse_csr));
  library.impl("_nnz", TORCH_FN(at::native::_nnz_sparse_csr));
  library.impl("values", TORCH_FN(at::native::values_sparse_csr));
  library.impl("crow_indices", TORCH_FN(at::native::crow_indices_sparse_csr));
  library.impl("col_indices", TORCH_FN(at::native::col_indices_sparse_csr));
  library.impl("ccol_indices", TORCH_FN(at::native::ccol_indices_sparse_csr));
  library.impl("row_indices", TORCH_FN(at::native::row_indices_sparse_csr));
  library.impl("copy_", TORCH_FN(at::native::copy_sparse_compressed_));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) { make_quantized_tensors(library); }

TORCH_LIBRARY_IMPL(aten, QuantizedPrivateUse1, library) {
  make_quantized_tensors(library);
  library.impl("empty.memory_format", TORCH_FN(on_device<&at::native::empty_unknown_quantized>));
  library.impl("empty_like", TORCH_FN(at::native::empty_like_quantized));
  library.impl("empty_quantized", TORCH_FN(at::native::empty_quantized));
  library.impl("resize_", TORCH_FN(resize));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_qtensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("q_scale", TORCH_FN(at::native::q_scale_quant));
  library.impl("q_zero_point", TORCH_FN(at::native::q_zero_point_quant));
  library.impl("q_per_channel_scales", TORCH_FN(at::native::q_per_channel_scales));
  library.impl("q_per_channel_zero_points", TORCH_FN(at::native::q_per_channel_zero_points));
  library.impl("q_per_channel_axis", TORCH_FN(at::native::q_per_channel_axis));
  library.impl("qscheme", TORCH_FN(at::native::qscheme_quant));
  library.impl("_copy_from", TORCH_FN(copy_quantized));
}

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, library) {
  library.impl("empty_like", TORCH_FN(at::native::empty_like_nested));
  library.impl("_nested_tensor_size", TORCH_FN(at::native::_nested_tensor_size));
  library.impl("_nested_tensor_strides", TORCH_FN(at::native::_nested_tensor_strides));
  library.impl("_nested_tensor_storage_offsets",
               TORCH_FN(at::native::_nested_tensor_storage_offsets));
  library.impl("_to_copy", TORCH_FN(nested_to_copy));
  // torch's function applies dropout to the buffer. The fallback would use the CPU's generator,
  // because the operator has no generator argument.
  library.impl("native_dropout", TORCH_FN(at::native::native_dropout_nested));
}

}  // namespace openreg
