// SPDX-License-Identifier: BSD-3-Clause
#include "aten/sparse_layout.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/util/Exception.h>

#include <optional>

#include "aten/alias.h"
#include "runtime/c10/device.h"

namespace openreg {
namespace {

at::SparseTensorImpl& coo(const at::Tensor& tensor) {
  return static_cast<at::SparseTensorImpl&>(*tensor.unsafeGetTensorImpl());
}

at::SparseCsrTensorImpl& compressed(const at::Tensor& tensor) {
  return static_cast<at::SparseCsrTensorImpl&>(*tensor.unsafeGetTensorImpl());
}

// Below autograd: parts of a tensor that requires a gradient are no part of its graph.
std::vector<at::Tensor> detached(const std::vector<at::Tensor>& parts) {
  std::vector<at::Tensor> result;
  result.reserve(parts.size());
  for (const at::Tensor& part : parts) {
    result.push_back(part.requires_grad() ? part.detach() : part);
  }
  return result;
}

}  // namespace

std::vector<at::Tensor> sparse_parts(const at::Tensor& tensor) {
  if (is_coo(tensor.layout())) {
    return {coo(tensor).indices(), coo(tensor).values()};
  }
  TORCH_CHECK_NOT_IMPLEMENTED(is_compressed(tensor.layout()),
                              "openreg: there is no way to share a ", tensor.layout(),
                              " tensor with a kernel of the CPU");
  return {compressed(tensor).compressed_indices(), compressed(tensor).plain_indices(),
          compressed(tensor).values()};
}

at::Tensor make_sparse(const at::Tensor& like, const std::vector<at::Tensor>& parts) {
  const bool ours = is_device(parts.front());
  // torch's object takes the current device for its own.
  std::optional<DeviceScope> scope;
  if (ours) {
    scope.emplace(parts.front().get_device());
  }
  const c10::Layout layout = like.layout();
  at::Tensor result;
  if (is_coo(layout)) {
    result = at::detail::make_tensor<at::SparseTensorImpl>(
        c10::DispatchKeySet(ours ? c10::DispatchKey::SparsePrivateUse1
                                 : c10::DispatchKey::SparseCPU),
        like.dtype());
  } else {
    result = at::detail::make_tensor<at::SparseCsrTensorImpl>(
        c10::DispatchKeySet(ours ? c10::DispatchKey::SparseCsrPrivateUse1
                                 : c10::DispatchKey::SparseCsrCPU),
        parts.front().device(), layout, like.dtype());
  }
  set_sparse(result, like, parts);
  return result;
}

void set_sparse(const at::Tensor& tensor, const at::Tensor& like,
                const std::vector<at::Tensor>& given) {
  const std::vector<at::Tensor> parts = detached(given);
  if (is_coo(like.layout())) {
    at::SparseTensorImpl& impl = coo(tensor);
    impl.raw_resize_(coo(like).sparse_dim(), coo(like).dense_dim(), like.sizes());
    impl.set_indices_and_values_unsafe(parts[0], parts[1]);
    impl.set_coalesced(coo(like).coalesced());
  } else {
    compressed(tensor).set_layout(like.layout());
    compressed(tensor).set_member_tensors(parts[0], parts[1], parts[2], like.sizes());
  }
}

}  // namespace openreg
