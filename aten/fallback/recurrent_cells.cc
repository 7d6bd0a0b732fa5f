// SPDX-License-Identifier: BSD-3-Clause
//
// Recurrent network cells for a device without kernels. On accelerators, torch's LSTM and GRU call
// fused cells, which the CPU does not have. The cells in this file consist of operators that the
// device has or that fall back. Any thread may call them.
//
// The gates are adjacent in a tensor of shape (batch, count * hidden): i, f, g, o for an LSTM, and
// r, z, n for a GRU. The workspace stores the data for the gradient. For an LSTM these are the
// activated gates. For a GRU they are the activated gates, the previous state, and the hidden part
// of n.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <vector>

namespace openreg {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

bool is_defined(const Optional& tensor) { return tensor.has_value() && tensor->defined(); }

Tensor with_bias(const Tensor& gates, const Optional& bias) {
  return is_defined(bias) ? gates + *bias : gates;
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                             const Tensor& cx, const Optional& input_bias,
                                             const Optional& hidden_bias) {
  const Tensor sum = with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias);
  const std::vector<Tensor> gates = sum.chunk(4, 1);
  const Tensor i = gates[0].sigmoid();
  const Tensor f = gates[1].sigmoid();
  const Tensor g = gates[2].tanh();
  const Tensor o = gates[3].sigmoid();
  const Tensor cy = f * cx + i * g;
  return {o * cy.tanh(), cy, at::cat({i, f, g, o}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const Optional& grad_hy,
                                                      const Optional& grad_cy, const Tensor& cx,
                                                      const Tensor& cy, const Tensor& workspace,
                                                      bool has_bias) {
  if (!is_defined(grad_hy) && !is_defined(grad_cy)) {
    return {};
  }
  const std::vector<Tensor> gates = workspace.chunk(4, 1);
  const Tensor &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
  Tensor grad_state = is_defined(grad_cy) ? *grad_cy : at::zeros_like(cy);
  Tensor grad_o = at::zeros_like(o);
  if (is_defined(grad_hy)) {
    const Tensor activated = cy.tanh();
    grad_state = grad_state + at::tanh_backward(*grad_hy * o, activated);
    grad_o = at::sigmoid_backward(*grad_hy * activated, o);
  }
  const Tensor grad_gates =
      at::cat({at::sigmoid_backward(grad_state * g, i), at::sigmoid_backward(grad_state * cx, f),
               at::tanh_backward(grad_state * i, g), grad_o},
              1);
  return {grad_gates, grad_state * f, has_bias ? grad_gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                    const Tensor& hx, const Optional& input_bias,
                                    const Optional& hidden_bias) {
  const std::vector<Tensor> input = with_bias(input_gates, input_bias).chunk(3, 1);
  const std::vector<Tensor> hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor r = (input[0] + hidden[0]).sigmoid();
  const Tensor z = (input[1] + hidden[1]).sigmoid();
  const Tensor n = (input[2] + r * hidden[2]).tanh();
  return {(hx - n) * z + n, at::cat({r, z, n, hx, hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy,
                                                                     const Tensor& workspace,
                                                                     bool has_bias) {
  const std::vector<Tensor> saved = workspace.chunk(5, 1);
  const Tensor &r = saved[0], &z = saved[1], &n = saved[2], &hx = saved[3], &hidden_n = saved[4];
  const Tensor grad_hx = grad_hy * z;
  const Tensor grad_z = at::sigmoid_backward(grad_hy * (hx - n), z);
  const Tensor grad_n = at::tanh_backward(grad_hy - grad_hx, n);
  const Tensor grad_r = at::sigmoid_backward(grad_n * hidden_n, r);
  const Tensor grad_input_gates = at::cat({grad_r, grad_z, grad_n}, 1);
  const Tensor grad_hidden_gates = at::cat({grad_r, grad_z, grad_n * r}, 1);
  return {grad_input_gates, grad_hidden_gates, grad_hx,
          has_bias ? grad_input_gates.sum(0) : Tensor(),
          has_bias ? grad_hidden_gates.sum(0) : Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  library.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  library.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  library.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace openreg
