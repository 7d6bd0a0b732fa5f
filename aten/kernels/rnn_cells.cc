// SPDX-License-Identifier: BSD-3-Clause
//
// Recurrent network cells. On accelerators, torch's LSTM and GRU call fused cells, which the CPU
// does not have: one launch per step performs everything between two matrix products. Here a fused
// cell consists of the CPU's elementwise kernels, applied to views of the gates.
//
// The gates are adjacent in a tensor of shape (batch, count * hidden): i, f, g, o for an LSTM, and
// r, z, n for a GRU. The workspace stores the data for the gradient. For an LSTM these are the
// activated gates. For a GRU they are the activated gates, the previous state, and the hidden part
// of n. Any thread may call these operators.
#include <ATen/core/Tensor.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/sigmoid_backward_cpu_dispatch.h>
#include <ATen/ops/sub_cpu_dispatch.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#include <ATen/ops/tanh_backward_cpu_dispatch.h>
#include <ATen/ops/tanh_cpu_dispatch.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "aten/kernels/dtype.h"
#include "aten/launch/launch.h"
#include "aten/launch/owned.h"
#include "aten/tensors/factories.h"

namespace openreg {
namespace {

using Optional = std::optional<at::Tensor>;

constexpr int64_t kCost = 8;  // elementary operations per element of the gates

// Returns `count` gates, starting with gate `index`.
at::Tensor gate(const at::Tensor& gates, int64_t hidden, int64_t index, int64_t count = 1) {
  return gates.narrow(1, index * hidden, count * hidden);
}

void check_gates(const char* kernel, const at::Tensor& gates, int64_t count,
                 const at::Tensor& state) {
  check_floating(kernel, gates);
  TORCH_CHECK(gates.dim() == 2 && state.dim() == 2 && gates.size(0) == state.size(0) &&
                  gates.size(1) == count * state.size(1) &&
                  gates.scalar_type() == state.scalar_type(),
              "openreg: ", kernel, ": expected ", count,
              " gates for each element of the state, with the state's dtype, but the gates are ",
              gates.scalar_type(), " of size ", gates.sizes(), " and the state is ",
              state.scalar_type(), " of size ", state.sizes());
}

void check_bias(const char* kernel, const at::Tensor& gates, const Optional& bias) {
  if (bias.has_value() && bias->defined()) {
    TORCH_CHECK(bias->numel() == gates.size(1) && bias->scalar_type() == gates.scalar_type(),
                "openreg: ", kernel, ": expected a bias of dtype ", gates.scalar_type(), " with ",
                gates.size(1), " elements, but got ", bias->scalar_type(), " of size ",
                bias->sizes());
  }
}

void add_bias(at::Tensor& gates, const at::Tensor& bias) {
  if (bias.defined()) {
    at::cpu::add_(gates, bias);
  }
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates,
                                                         const at::Tensor& hidden_gates,
                                                         const at::Tensor& cx,
                                                         const Optional& input_bias,
                                                         const Optional& hidden_bias) {
  constexpr const char* kName = "_thnn_fused_lstm_cell";
  Operands operands;
  operands.add_device(input_gates);
  operands.add_device(hidden_gates);
  operands.add_device(cx);
  operands.add_device(input_bias.value_or(at::Tensor()));
  operands.add_device(hidden_bias.value_or(at::Tensor()));
  check_gates(kName, input_gates, 4, cx);
  check_gates(kName, hidden_gates, 4, cx);
  check_bias(kName, input_gates, input_bias);
  check_bias(kName, input_gates, hidden_bias);
  const c10::DeviceIndex device = operands.device();
  at::Tensor hy = empty_on(device, cx.sizes(), cx.scalar_type());
  at::Tensor cy = empty_on(device, cx.sizes(), cx.scalar_type());
  at::Tensor workspace = empty_on(device, input_gates.sizes(), input_gates.scalar_type());
  launch_kernel(
      {"aten::_thnn_fused_lstm_cell", workspace.numel() * kCost}, device, [&](AliasPool& aliases) {
        return
            [input_gates = aliases.alias(input_gates), hidden_gates = aliases.alias(hidden_gates),
             cx = aliases.alias(cx), input_bias = Owned<Optional>(aliases, input_bias),
             hidden_bias = Owned<Optional>(aliases, hidden_bias), hy = aliases.alias(hy),
             cy = aliases.alias(cy), workspace = aliases.alias(workspace)]() mutable {
              const int64_t hidden = cx.size(1);
              at::cpu::add_out(workspace, input_gates, hidden_gates);
              add_bias(workspace, input_bias.value);
              add_bias(workspace, hidden_bias.value);
              gate(workspace, hidden, 0, 2).sigmoid_();
              gate(workspace, hidden, 2).tanh_();
              gate(workspace, hidden, 3).sigmoid_();
              at::cpu::mul_out(cy, gate(workspace, hidden, 1), cx);
              cy.addcmul_(gate(workspace, hidden, 0), gate(workspace, hidden, 2));
              at::cpu::tanh_out(hy, cy);
              hy.mul_(gate(workspace, hidden, 3));
            };
      });
  return {std::move(hy), std::move(cy), std::move(workspace)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const Optional& grad_hy, const Optional& grad_cy, const at::Tensor& cx, const at::Tensor& cy,
    const at::Tensor& workspace, bool has_bias) {
  const auto defined = [](const Optional& grad) { return grad.has_value() && grad->defined(); };
  if (!defined(grad_hy) && !defined(grad_cy)) {
    return {};
  }
  constexpr const char* kName = "_thnn_fused_lstm_cell_backward";
  Operands operands;
  operands.add_device(grad_hy.value_or(at::Tensor()));
  operands.add_device(grad_cy.value_or(at::Tensor()));
  operands.add_device(cx);
  operands.add_device(cy);
  operands.add_device(workspace);
  check_gates(kName, workspace, 4, cx);
  check_gates(kName, workspace, 4, cy);
  const c10::DeviceIndex device = operands.device();
  at::Tensor grad_gates = empty_on(device, workspace.sizes(), workspace.scalar_type());
  at::Tensor grad_cx = empty_on(device, cx.sizes(), cx.scalar_type());
  at::Tensor grad_bias;
  if (has_bias) {
    grad_bias = empty_on(device, {workspace.size(1)}, workspace.scalar_type());
  }
  launch_kernel({"aten::_thnn_fused_lstm_cell_backward_impl", workspace.numel() * kCost}, device,
                [&](AliasPool& aliases) {
                  return [grad_hy = Owned<Optional>(aliases, grad_hy).value,
                          grad_cy = Owned<Optional>(aliases, grad_cy).value, cx = aliases.alias(cx),
                          cy = aliases.alias(cy), workspace = aliases.alias(workspace),
                          grad_gates = aliases.alias(grad_gates), grad_cx = aliases.alias(grad_cx),
                          grad_bias = own_tensor(aliases, grad_bias)]() mutable {
                    const int64_t hidden = cx.size(1);
                    const at::Tensor i = gate(workspace, hidden, 0);
                    const at::Tensor f = gate(workspace, hidden, 1);
                    const at::Tensor g = gate(workspace, hidden, 2);
                    const at::Tensor o = gate(workspace, hidden, 3);
                    at::Tensor grad_i = gate(grad_gates, hidden, 0);
                    at::Tensor grad_f = gate(grad_gates, hidden, 1);
                    at::Tensor grad_g = gate(grad_gates, hidden, 2);
                    at::Tensor grad_o = gate(grad_gates, hidden, 3);
                    at::Tensor grad_state;  // the gradient with respect to cy
                    if (grad_hy.defined()) {
                      const at::Tensor activated = at::cpu::tanh(cy);
                      grad_state = at::cpu::tanh_backward(at::cpu::mul(grad_hy, o), activated);
                      at::cpu::sigmoid_backward_out(grad_o, at::cpu::mul(grad_hy, activated), o);
                      if (grad_cy.defined()) {
                        at::cpu::add_(grad_state, grad_cy);
                      }
                    } else {
                      grad_state = grad_cy;
                      grad_o.zero_();
                    }
                    at::cpu::sigmoid_backward_out(grad_i, at::cpu::mul(grad_state, g), i);
                    at::cpu::sigmoid_backward_out(grad_f, at::cpu::mul(grad_state, cx), f);
                    at::cpu::tanh_backward_out(grad_g, at::cpu::mul(grad_state, i), g);
                    at::cpu::mul_out(grad_cx, grad_state, f);
                    if (grad_bias.defined()) {
                      at::cpu::sum_out(grad_bias, grad_gates, at::IntArrayRef({0}));
                    }
                  };
                });
  return {std::move(grad_gates), std::move(grad_cx), std::move(grad_bias)};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates,
                                            const at::Tensor& hidden_gates, const at::Tensor& hx,
                                            const Optional& input_bias,
                                            const Optional& hidden_bias) {
  constexpr const char* kName = "_thnn_fused_gru_cell";
  Operands operands;
  operands.add_device(input_gates);
  operands.add_device(hidden_gates);
  operands.add_device(hx);
  operands.add_device(input_bias.value_or(at::Tensor()));
  operands.add_device(hidden_bias.value_or(at::Tensor()));
  check_gates(kName, input_gates, 3, hx);
  check_gates(kName, hidden_gates, 3, hx);
  check_bias(kName, input_gates, input_bias);
  check_bias(kName, input_gates, hidden_bias);
  const c10::DeviceIndex device = operands.device();
  at::Tensor hy = empty_on(device, hx.sizes(), hx.scalar_type());
  at::Tensor workspace = empty_on(device, {hx.size(0), 5 * hx.size(1)}, hx.scalar_type());
  launch_kernel(
      {"aten::_thnn_fused_gru_cell", workspace.numel() * kCost}, device, [&](AliasPool& aliases) {
        return [input_gates = aliases.alias(input_gates),
                hidden_gates = aliases.alias(hidden_gates), hx = aliases.alias(hx),
                input_bias = Owned<Optional>(aliases, input_bias).value,
                hidden_bias = Owned<Optional>(aliases, hidden_bias).value, hy = aliases.alias(hy),
                workspace = aliases.alias(workspace)]() mutable {
          const int64_t hidden = hx.size(1);
          at::Tensor rz = gate(workspace, hidden, 0, 2);
          const at::Tensor r = gate(workspace, hidden, 0);
          const at::Tensor z = gate(workspace, hidden, 1);
          at::Tensor n = gate(workspace, hidden, 2);
          at::Tensor hidden_n = gate(workspace, hidden, 4);
          gate(workspace, hidden, 3).copy_(hx);
          at::cpu::add_out(rz, gate(input_gates, hidden, 0, 2), gate(hidden_gates, hidden, 0, 2));
          hidden_n.copy_(gate(hidden_gates, hidden, 2));
          if (input_bias.defined()) {
            at::cpu::add_(rz, input_bias.narrow(0, 0, 2 * hidden));
          }
          if (hidden_bias.defined()) {
            at::cpu::add_(rz, hidden_bias.narrow(0, 0, 2 * hidden));
            at::cpu::add_(hidden_n, hidden_bias.narrow(0, 2 * hidden, hidden));
          }
          rz.sigmoid_();
          at::cpu::mul_out(n, r, hidden_n);
          at::cpu::add_(n, gate(input_gates, hidden, 2));
          if (input_bias.defined()) {
            at::cpu::add_(n, input_bias.narrow(0, 2 * hidden, hidden));
          }
          n.tanh_();
          at::cpu::sub_out(hy, hx, n);
          hy.mul_(z).add_(n);
        };
      });
  return {std::move(hy), std::move(workspace)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(
    const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  Operands operands;
  operands.add_device(grad_hy);
  operands.add_device(workspace);
  check_gates("_thnn_fused_gru_cell_backward", workspace, 5, grad_hy);
  const c10::DeviceIndex device = operands.device();
  const int64_t batch = grad_hy.size(0);
  const int64_t hidden = grad_hy.size(1);
  const c10::ScalarType dtype = grad_hy.scalar_type();
  at::Tensor grad_input_gates = empty_on(device, {batch, 3 * hidden}, dtype);
  at::Tensor grad_hidden_gates = empty_on(device, {batch, 3 * hidden}, dtype);
  at::Tensor grad_hx = empty_on(device, grad_hy.sizes(), dtype);
  at::Tensor grad_input_bias;
  at::Tensor grad_hidden_bias;
  if (has_bias) {
    grad_input_bias = empty_on(device, {3 * hidden}, dtype);
    grad_hidden_bias = empty_on(device, {3 * hidden}, dtype);
  }
  launch_kernel(
      {"aten::_thnn_fused_gru_cell_backward", workspace.numel() * kCost}, device,
      [&](AliasPool& aliases) {
        return
            [grad_hy = aliases.alias(grad_hy), workspace = aliases.alias(workspace), hidden,
             grad_input_gates = aliases.alias(grad_input_gates),
             grad_hidden_gates = aliases.alias(grad_hidden_gates), grad_hx = aliases.alias(grad_hx),
             grad_input_bias = own_tensor(aliases, grad_input_bias),
             grad_hidden_bias = own_tensor(aliases, grad_hidden_bias)]() mutable {
              const at::Tensor r = gate(workspace, hidden, 0);
              const at::Tensor z = gate(workspace, hidden, 1);
              const at::Tensor n = gate(workspace, hidden, 2);
              const at::Tensor hx = gate(workspace, hidden, 3);
              const at::Tensor hidden_n = gate(workspace, hidden, 4);
              at::Tensor grad_r = gate(grad_input_gates, hidden, 0);
              at::Tensor grad_z = gate(grad_input_gates, hidden, 1);
              at::Tensor grad_n = gate(grad_input_gates, hidden, 2);
              at::Tensor grad_hidden_n = gate(grad_hidden_gates, hidden, 2);
              at::cpu::mul_out(grad_hx, grad_hy, z);
              at::cpu::sigmoid_backward_out(grad_z, at::cpu::mul(grad_hy, at::cpu::sub(hx, n)), z);
              at::cpu::tanh_backward_out(grad_n, at::cpu::sub(grad_hy, grad_hx), n);
              at::cpu::mul_out(grad_hidden_n, grad_n, r);
              at::cpu::sigmoid_backward_out(grad_r, at::cpu::mul(grad_n, hidden_n), r);
              gate(grad_hidden_gates, hidden, 0, 2).copy_(gate(grad_input_gates, hidden, 0, 2));
              if (grad_input_bias.defined()) {
                at::cpu::sum_out(grad_input_bias, grad_input_gates, at::IntArrayRef({0}));
                at::cpu::sum_out(grad_hidden_bias, grad_hidden_gates, at::IntArrayRef({0}));
              }
            };
      });
  return {std::move(grad_input_gates), std::move(grad_hidden_gates), std::move(grad_hx),
          std::move(grad_input_bias), std::move(grad_hidden_bias)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  library.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  library.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  library.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace openreg
