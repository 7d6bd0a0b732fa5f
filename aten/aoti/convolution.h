// SPDX-License-Identifier: BSD-3-Clause
//
// convolution.h - convolutions with contiguous results, as torch traces those of a device; the
// device itself returns what the CPU does, which depends on the order of the operands. Arguments
// are those of torch's operators. Threads: any.
#ifndef ATEN_AOTI_CONVOLUTION_H_
#define ATEN_AOTI_CONVOLUTION_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include <tuple>
#include <utility>

namespace openreg::aoti {

template <class... Arguments>
at::Tensor convolution_symint(Arguments&&... arguments) {
  return at::convolution_symint(std::forward<Arguments>(arguments)...).contiguous();
}

template <class... Arguments>
std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward_symint(
    Arguments&&... arguments) {
  const auto contiguous = [](const at::Tensor& result) {
    return result.defined() ? result.contiguous() : result;
  };
  const auto [input, weight, bias] =
      at::convolution_backward_symint(std::forward<Arguments>(arguments)...);
  return {contiguous(input), contiguous(weight), contiguous(bias)};
}

}  // namespace openreg::aoti

#endif  // ATEN_AOTI_CONVOLUTION_H_
