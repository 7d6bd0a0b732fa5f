// SPDX-License-Identifier: BSD-3-Clause
//
// LSTM layers in one launch each. On accelerators, torch decomposes an LSTM into cells
// (rnn_cells.cc) and needs a few launches per step, whereas the CPU has a oneDNN kernel for all
// steps of a layer. This file overrides `lstm` for the cases that the oneDNN kernel supports; the
// results are the same as on the CPU. torch handles all other cases: other dtypes, projections,
// missing biases, packed sequences, autocast.
//
// Gradients use torch's autograd formula for mkldnn_rnn_layer. Any thread may call these operators.
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/mkldnn_rnn_layer_backward_native.h>
#include <ATen/ops/mkldnn_rnn_layer_native.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "aten/launch/launch.h"
#include "aten/launch/owned.h"
#include "aten/tensors/factories.h"
#include "runtime/c10/stream.h"
#include "runtime/diagnostics/implicit_wait.h"

namespace openreg {
namespace {

using Optional = std::optional<at::Tensor>;

constexpr int64_t kLstm = 2;  // mkldnn_rnn_layer's mode for an LSTM
constexpr int64_t kGates = 4;
constexpr int64_t kFlopsPerCost = 8;

int64_t layer_cost(const at::Tensor& input, int64_t hidden) {
  return input.size(0) * input.size(1) * kGates * hidden * (input.size(2) + hidden) / kFlopsPerCost;
}

// Caches the sizes of workspaces. The gradient needs a workspace in addition to inputs and outputs.
// Its layout is private to oneDNN, and its size is known only after a kernel with the same sizes
// has run.
class WorkspaceSizes {
 public:
  using Key = std::array<int64_t, 4>;  // steps, batch size, features, hidden size

  std::optional<int64_t> find(const Key& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = sizes_.find(key);
    return found != sizes_.end() ? std::optional<int64_t>(found->second) : std::nullopt;
  }
  void add(const Key& key, int64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (sizes_.size() >= kMaxEntries) {
      sizes_.clear();
    }
    sizes_[key] = bytes;
  }

 private:
  static constexpr size_t kMaxEntries = 4096;
  std::mutex mutex_;
  std::map<Key, int64_t> sizes_;
};

WorkspaceSizes& workspace_sizes() {
  static WorkspaceSizes sizes;
  return sizes;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> rnn_layer(
    const at::Tensor& input, const at::Tensor& weight_ih, const at::Tensor& weight_hh,
    const at::Tensor& bias_ih, const at::Tensor& bias_hh, const at::Tensor& hx,
    const at::Tensor& cx, bool reverse, at::IntArrayRef batch_sizes, int64_t mode,
    int64_t hidden_size, int64_t num_layers, bool has_biases, bool bidirectional, bool batch_first,
    bool train) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      mode == kLstm && num_layers == 1 && !bidirectional && !batch_first && batch_sizes.empty(),
      "openreg: mkldnn_rnn_layer runs one LSTM layer in one direction over (steps, batch, "
      "features); for other networks call torch.lstm, torch.gru or torch.rnn_tanh");
  Operands operands;
  for (const at::Tensor& tensor : {input, weight_ih, weight_hh, bias_ih, bias_hh, hx, cx}) {
    operands.add_device(tensor);
  }
  TORCH_CHECK(
      input.dim() == 3,
      "openreg: mkldnn_rnn_layer: expected an input of shape (steps, batch, features), but got ",
      input.sizes());
  const c10::DeviceIndex device = operands.device();
  at::Tensor output =
      empty_on(device, {input.size(0), input.size(1), hidden_size}, input.scalar_type());
  at::Tensor hy = empty_on(device, hx.sizes(), hx.scalar_type());
  at::Tensor cy = empty_on(device, cx.sizes(), cx.scalar_type());
  const WorkspaceSizes::Key key{input.size(0), input.size(1), input.size(2), hidden_size};
  const std::optional<int64_t> bytes = train ? workspace_sizes().find(key) : 0;
  if (!bytes.has_value() && is_capturing(current_native_stream(device))) {
    announce_wait("aten::mkldnn_rnn_layer",
                  "its first call with these sizes determines how much memory it needs: make it "
                  "before the capture",
                  device);
  }
  at::Tensor workspace = empty_on(device, {bytes.value_or(0)}, c10::kByte);
  // If the size is unknown, receives the workspace that the kernel allocates.
  const auto made = bytes.has_value() ? nullptr : std::make_shared<at::Tensor>();
  launch_kernel(
      {.name = "aten::mkldnn_rnn_layer",
       .cost = layer_cost(input, hidden_size),
       .awaited = made != nullptr,
       .loops = input.size(0),
       // The call that determined the size of the workspace also checked the arguments. This call
       // differs only in the size of the workspace, so it need not be checked again.
       .check = bytes.has_value() && input.scalar_type() == c10::kFloat ? Check::kNever
                                                                        : Check::kNewArguments},
      device, [&](AliasPool& aliases) {
        return
            [input = aliases.alias(input), weight_ih = aliases.alias(weight_ih),
             weight_hh = aliases.alias(weight_hh), bias_ih = aliases.alias(bias_ih),
             bias_hh = aliases.alias(bias_hh), hx = aliases.alias(hx), cx = aliases.alias(cx),
             output = aliases.alias(output), hy = aliases.alias(hy), cy = aliases.alias(cy),
             workspace = aliases.alias(workspace), made, reverse, hidden_size, has_biases, train] {
              const auto [y, h, c, space] = at::native::mkldnn_rnn_layer(
                  input, weight_ih, weight_hh, bias_ih, bias_hh, hx, cx, reverse, {}, kLstm,
                  hidden_size, /*num_layers=*/1, has_biases, /*bidirectional=*/false,
                  /*batch_first=*/false, train);
              output.copy_(y);
              hy.copy_(h);
              cy.copy_(c);
              if (made != nullptr) {
                *made = space;
              } else if (train) {
                workspace.copy_(space);
              }
            };
      });
  if (made != nullptr) {
    synchronize_stream(current_native_stream(device));
    workspace_sizes().add(key, made->numel());
    workspace = made->to(output.device());
  }
  return {std::move(output), std::move(hy), std::move(cy), std::move(workspace)};
}

using Gradients =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Gradients rnn_layer_backward(const at::Tensor& input, const at::Tensor& weight_ih,
                             const at::Tensor& weight_hh, const at::Tensor& bias_ih,
                             const at::Tensor& bias_hh, const at::Tensor& hx, const at::Tensor& cx,
                             const at::Tensor& output, const at::Tensor& hy, const at::Tensor& cy,
                             const Optional& grad_output, const Optional& grad_hy,
                             const Optional& grad_cy, bool reverse, int64_t mode,
                             int64_t hidden_size, int64_t num_layers, bool has_biases, bool train,
                             bool bidirectional, at::IntArrayRef batch_sizes, bool batch_first,
                             const at::Tensor& workspace) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      mode == kLstm && num_layers == 1 && !bidirectional && !batch_first && batch_sizes.empty(),
      "openreg: mkldnn_rnn_layer_backward runs one LSTM layer in one direction over (steps, "
      "batch, features), like mkldnn_rnn_layer");
  Operands operands;
  for (const at::Tensor& tensor :
       {input, weight_ih, weight_hh, bias_ih, bias_hh, hx, cx, output, hy, cy, workspace}) {
    operands.add_device(tensor);
  }
  bool has_gradient = false;
  for (const Optional& grad : {grad_output, grad_hy, grad_cy}) {
    operands.add_device(grad);
    has_gradient |= grad.has_value() && grad->defined();
  }
  if (!has_gradient) {
    return {};
  }
  const c10::DeviceIndex device = operands.device();
  const auto like = [&](const at::Tensor& tensor) {
    return empty_on(device, tensor.sizes(), tensor.scalar_type());
  };
  // Only the sum of a layer's two biases affects the result, so both have the same gradient.
  const std::array<at::Tensor, 6> gradients{like(input),   like(weight_ih), like(weight_hh),
                                            like(bias_ih), like(hx),        like(cx)};
  launch_kernel(
      {.name = "aten::mkldnn_rnn_layer_backward",
       .cost = 2 * layer_cost(input, hidden_size),
       .loops = input.size(0)},
      device, [&](AliasPool& aliases) {
        std::array<at::Tensor, 6> results;
        std::transform(gradients.begin(), gradients.end(), results.begin(),
                       [&](const at::Tensor& gradient) { return aliases.alias(gradient); });
        return [input = aliases.alias(input), weight_ih = aliases.alias(weight_ih),
                weight_hh = aliases.alias(weight_hh), bias_ih = aliases.alias(bias_ih),
                bias_hh = aliases.alias(bias_hh), hx = aliases.alias(hx), cx = aliases.alias(cx),
                output = aliases.alias(output), hy = aliases.alias(hy), cy = aliases.alias(cy),
                grad_output = Owned<Optional>(aliases, grad_output),
                grad_hy = Owned<Optional>(aliases, grad_hy),
                grad_cy = Owned<Optional>(aliases, grad_cy), workspace = aliases.alias(workspace),
                results = std::move(results), reverse, hidden_size, has_biases, train] {
          const auto [x, w_ih, w_hh, b_ih, b_hh, h, c] = at::native::mkldnn_rnn_layer_backward(
              input, weight_ih, weight_hh, bias_ih, bias_hh, hx, cx, output, hy, cy, grad_output,
              grad_hy, grad_cy, reverse, kLstm, hidden_size, /*num_layers=*/1, has_biases, train,
              /*bidirectional=*/false, /*batch_sizes=*/{}, /*batch_first=*/false, workspace);
          size_t i = 0;
          for (const at::Tensor& made : {x, w_ih, w_hh, b_ih, h, c}) {
            results[i++].copy_(made);
          }
        };
      });
  const auto& [x, w_ih, w_hh, b, h, c] = gradients;
  return {x, w_ih, w_hh, b, b, h, c};
}

// Returns whether oneDNN's kernel and the loop in lstm() support the arguments. Otherwise torch
// computes the result or throws the error.
bool is_fused(const at::Tensor& input, at::TensorList hx, at::TensorList params, bool has_biases,
              int64_t layers, int64_t directions) {
  const auto suits = [&](const at::Tensor& tensor, at::IntArrayRef sizes) {
    return tensor.defined() && !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides() &&
           tensor.device() == input.device() && tensor.scalar_type() == c10::kFloat &&
           tensor.sizes() == sizes;
  };
  if (!has_biases || layers < 1 || hx.size() != 2 ||
      params.size() != static_cast<size_t>(4 * layers * directions) || !at::hasMKLDNN() ||
      !at::globalContext().userEnabledMkldnn() ||
      at::autocast::is_autocast_enabled(c10::kPrivateUse1)) {
    return false;
  }
  if (input.unsafeGetTensorImpl()->has_symbolic_sizes_strides() || input.dim() != 3 ||
      input.numel() == 0 || hx[0].unsafeGetTensorImpl()->has_symbolic_sizes_strides() ||
      hx[0].dim() != 3 || hx[0].numel() == 0) {
    return false;
  }
  const int64_t batch = hx[0].size(1);
  const int64_t hidden = hx[0].size(2);
  const auto suits_layer = [&](const at::Tensor* weights, int64_t features) {
    return suits(weights[0], {kGates * hidden, features}) &&
           suits(weights[1], {kGates * hidden, hidden}) && suits(weights[2], {kGates * hidden}) &&
           suits(weights[3], {kGates * hidden});
  };
  for (int64_t i = 0; i < layers * directions; ++i) {
    const int64_t features = i < directions ? input.size(2) : hidden * directions;
    if (!suits_layer(&params[static_cast<size_t>(4 * i)], features)) {
      return false;
    }
  }
  return suits(input, input.sizes()) && suits(hx[0], {layers * directions, batch, hidden}) &&
         suits(hx[1], {layers * directions, batch, hidden});
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(const at::Tensor& input, at::TensorList hx,
                                                    at::TensorList params, bool has_biases,
                                                    int64_t num_layers, double dropout, bool train,
                                                    bool bidirectional, bool batch_first) {
  const int64_t directions = bidirectional ? 2 : 1;
  if (!is_fused(input, hx, params, has_biases, num_layers, directions) ||
      input.size(batch_first ? 0 : 1) != hx[0].size(1)) {
    return at::native::lstm(input, hx, params, has_biases, num_layers, dropout, train,
                            bidirectional, batch_first);
  }
  const auto requires_grad = [](const at::Tensor& tensor) { return tensor.requires_grad(); };
  const bool differentiates =
      c10::GradMode::is_enabled() &&
      (input.requires_grad() || std::any_of(hx.begin(), hx.end(), requires_grad) ||
       std::any_of(params.begin(), params.end(), requires_grad));
  at::Tensor layer = (batch_first ? input.transpose(0, 1) : input).contiguous();
  std::vector<at::Tensor> hy;
  std::vector<at::Tensor> cy;
  for (int64_t i = 0; i < num_layers; ++i) {
    std::vector<at::Tensor> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const int64_t index = i * directions + direction;
      const at::Tensor* const weights = &params[static_cast<size_t>(4 * index)];
      auto [output, h, c, workspace] = at::mkldnn_rnn_layer(
          layer, weights[0].contiguous(), weights[1].contiguous(), weights[2].contiguous(),
          weights[3].contiguous(), hx[0].select(0, index).contiguous(),
          hx[1].select(0, index).contiguous(), /*reverse=*/direction == 1, /*batch_sizes=*/{},
          kLstm, hx[0].size(2), /*num_layers=*/1, has_biases, /*bidirectional=*/false,
          /*batch_first=*/false, differentiates);
      outputs.push_back(std::move(output));
      hy.push_back(std::move(h));
      cy.push_back(std::move(c));
    }
    layer = bidirectional ? at::cat(outputs, -1) : std::move(outputs[0]);
    if (dropout != 0 && train && i < num_layers - 1) {
      layer = at::dropout(layer, dropout, /*train=*/true);
    }
  }
  if (batch_first) {
    layer = layer.transpose(0, 1);
  }
  return {std::move(layer), at::stack(hy), at::stack(cy)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("mkldnn_rnn_layer", TORCH_FN(rnn_layer));
  library.impl("mkldnn_rnn_layer_backward", TORCH_FN(rnn_layer_backward));
  library.impl("lstm.input", TORCH_FN(lstm));  // for inference mode
}

// `lstm` is composed of differentiable operators, so the same function is registered for autograd.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  library.impl("lstm.input", TORCH_FN(lstm));
}

}  // namespace openreg
