// SPDX-License-Identifier: BSD-3-Clause
//
// What a sparse tensor is made of, whatever its layout: two tensors of indices and values (COO), or
// compressed indices, plain indices and values (CSR, CSC, BSR, BSC). Nothing is copied.
// Threads: any; those that change a tensor are the caller's to order.
#ifndef ATEN_SPARSE_LAYOUT_H_
#define ATEN_SPARSE_LAYOUT_H_

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/Layout.h>

#include <vector>

namespace openreg {

inline bool is_coo(c10::Layout layout) { return layout == c10::kSparse; }
inline bool is_compressed(c10::Layout layout) {
  return layout == c10::kSparseCsr || layout == c10::kSparseCsc || layout == c10::kSparseBsr ||
         layout == c10::kSparseBsc;
}

// The tensors themselves, not views of them.
std::vector<at::Tensor> sparse_parts(const at::Tensor& tensor);

// A sparse tensor of these parts, otherwise like `like` (sizes, dtype, layout, whether it is
// coalesced), on the CPU or on the device, where the parts are.
at::Tensor make_sparse(const at::Tensor& like, const std::vector<at::Tensor>& parts);

// Gives `tensor` these parts, and the rest of what `like` is.
void set_sparse(const at::Tensor& tensor, const at::Tensor& like,
                const std::vector<at::Tensor>& parts);

}  // namespace openreg

#endif  // ATEN_SPARSE_LAYOUT_H_
