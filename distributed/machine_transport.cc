// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/machine_transport.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/exception.h>

#include <sstream>
#include <utility>

#include "distributed/arguments.h"
#include "distributed/host_reduction.h"
#include "runtime/c10/device.h"
#include "runtime/c10/error.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

constexpr int kMostTags = 1 << 29;

// The tag of messages between a leader and the root on the same machine. Tags of programs are never
// negative.
constexpr int kDeliveryTag = -3;

// The additional timeout of a rank compared to its machine's leader. The leader's error has more
// detail, so it must be reported first.
constexpr std::chrono::milliseconds kExtraTimeout{500};

at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, at::TensorOptions().device(at::kCPU).dtype(type).pinned_memory(true));
}

// Returns a one-dimensional view of the elements in memory order.
at::Tensor flat(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
}

template <class... Parts>
std::string text_of(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

// Returns the text that describes a call in errors, for example "all-reduce of float32[8]".
std::string describe(const char* collective, const at::Tensor& tensor) {
  return text_of(collective, " of ", c10::getDtypeNames(tensor.scalar_type()).first, "[",
                 tensor.numel(), "]");
}

std::string describe(const char* collective, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  static constexpr const char* kNames[] = {"sum", "average", "product", "minimum",   "maximum",
                                           "and", "or",      "xor",     "scaled sum"};
  return text_of(describe(collective, tensor), ", ", kNames[static_cast<size_t>(op.op_)]);
}

std::string describe(const char* collective, const at::Tensor& tensor, int root) {
  return text_of(describe(collective, tensor), ", root ", root);
}

}  // namespace

MachineTransport::MachineTransport(c10::Device device, Topology topology,
                                   std::unique_ptr<Transport> local,
                                   c10::intrusive_ptr<c10d::Backend> gloo,
                                   std::chrono::milliseconds timeout)
    : device_(device),
      topology_(std::move(topology)),
      exchange_(
          std::make_unique<LeaderExchange>(topology_, std::move(local), std::move(gloo), timeout)),
      last_(kOpenRegType) {
  set_timeout(timeout);
}

Transport& MachineTransport::local() const { return *exchange_->local; }

MachineTransport::~MachineTransport() {
  if (!exchange_->wait_idle()) {
    (void)exchange_.release();  // one of its functions may still be running
  }
}

void MachineTransport::on_host(std::function<void(LeaderExchange&)> function) {
  exchange_->drop_done();
  auto task =
      std::make_unique<LeaderExchange::Task>(LeaderExchange::Task{*exchange_, std::move(function)});
  exchange_->begin_task();
  const auto run = [](void* data) {
    auto* const task = static_cast<LeaderExchange::Task*>(data);
    task->exchange.run(task);
  };
  if (const orError_t error =
          orLaunchHostFunc(current_native_stream(device_.index()), run, task.get());
      error != orSuccess) {
    exchange_->end_task();
    OPENREG_CHECK(error);
  }
  (void)task.release();
  // The exception of a host function does not by itself make the stream report an error. Therefore
  // send an empty message to this rank, which fails if the function has failed; the stream then
  // reports that error.
  const at::Tensor nothing = at::empty({0}, at::TensorOptions().device(device_).dtype(at::kByte));
  TransportGroup group(local());
  local().send(nothing, static_cast<int>(topology_.position), 0);
  local().receive(nothing, static_cast<int>(topology_.position), 0, nullptr);
  group.end();
}

void MachineTransport::between_leaders(const std::string& what,
                                       std::function<void(LeaderExchange&)> function) {
  if (topology_.leads()) {
    on_host([what, function = std::move(function)](LeaderExchange& leader) {
      leader.agree(what);
      function(leader);
    });
  }
}

void MachineTransport::in_order(const std::function<void()>& enqueue) {
  const c10::Stream stream = current_stream(device_.index());
  TORCH_CHECK(!is_capturing(native_stream(stream)),
              "occl: a collective of ranks on several machines cannot be captured in a graph: "
              "call it outside the capture");
  check_not_ended();
  last_.block(stream);
  enqueue();
  last_.record(stream);
}

void MachineTransport::check_not_ended() const {
  const std::optional<std::string> ended = this->ended(nullptr);
  if (ended.has_value()) {
    exchange_->network.abort();  // the other machines may be waiting for this one
  }
  TORCH_CHECK_WITH(DistBackendError, !ended.has_value(), "occl: ", *ended);
}

void MachineTransport::check_rank(const char* name, int rank) const {
  TORCH_CHECK_VALUE(rank >= 0 && rank < topology_.ranks(), "occl: ", name, ": there is no rank ",
                    rank, ": the group has ", topology_.ranks(), " ranks");
}

at::Tensor MachineTransport::by_machine(const at::Tensor& by_rank) const {
  at::Tensor result = at::zeros({machines(), topology_.most(), by_rank.size(1)}, by_rank.options());
  for (int64_t machine = 0; machine < machines(); ++machine) {
    const std::vector<int>& ranks = topology_.machines[static_cast<size_t>(machine)];
    for (size_t i = 0; i < ranks.size(); ++i) {
      result[machine][static_cast<int64_t>(i)].copy_(by_rank[ranks[i]]);
    }
  }
  return result;
}

void MachineTransport::by_rank(const at::Tensor& output, const at::Tensor& by_machine) const {
  for (int64_t machine = 0; machine < machines(); ++machine) {
    const std::vector<int>& ranks = topology_.machines[static_cast<size_t>(machine)];
    for (size_t i = 0; i < ranks.size(); ++i) {
      output[ranks[i]].copy_(by_machine[machine][static_cast<int64_t>(i)]);
    }
  }
}

// Reduces within each machine. Then each leader reduces one part of the result over all machines,
// and the leaders exchange their parts.
void MachineTransport::all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  if (sum_is_wider(op, tensor.scalar_type())) {
    const at::Tensor wide = tensor.to(at::kFloat);
    all_reduce(wide, op);
    tensor.copy_(wide);
    return;
  }
  in_order([&] {
    local().reduce(tensor, tensor, within_machine(op, tensor.scalar_type()), 0);
    if (topology_.leads()) {
      const int64_t part = (tensor.numel() + machines() - 1) / machines();
      const at::Tensor whole = pinned({machines(), part}, tensor.scalar_type());
      const at::Tensor used = flat(whole).narrow(0, 0, tensor.numel());
      used.copy_(flat(tensor), /*non_blocking=*/true);
      between_leaders(describe("all-reduce", tensor, op),
                      [whole, op, ranks = topology_.ranks()](LeaderExchange& leader) {
                        const at::Tensor parts = at::empty_like(whole);
                        leader.exchange(whole.unbind(), parts.unbind());
                        const at::Tensor sum = reduce_on_host(parts, op, ranks);
                        leader.exchange(copies(sum, whole.size(0)), whole.unbind());
                      });
      flat(tensor).copy_(used, /*non_blocking=*/true);
    }
    local().broadcast(tensor, tensor, 0);
  });
}

void MachineTransport::broadcast(const at::Tensor& output, const at::Tensor& input, int root) {
  check_rank("broadcast", root);
  in_order([&] {
    const size_t machine = topology_.machine_of(root);
    const bool is_here = machine == topology_.machine;
    if (is_here) {
      local().broadcast(output, input, topology_.position_of(root));
    }
    if (topology_.leads()) {
      const at::Tensor data = pinned({output.numel()}, output.scalar_type());
      if (is_here) {
        data.copy_(flat(output), /*non_blocking=*/true);
      }
      between_leaders(describe("broadcast", output, root),
                      [data, machine, is_here, machines = machines()](LeaderExchange& leader) {
                        std::vector<at::Tensor> from(static_cast<size_t>(machines));
                        from[machine] = data;
                        is_here ? leader.exchange(copies(data, machines), {})
                                : leader.exchange({}, from);
                      });
      if (!is_here) {
        flat(output).copy_(data, /*non_blocking=*/true);
      }
    }
    if (!is_here) {
      local().broadcast(output, output, 0);
    }
  });
}

// Runs an all-reduce whose result only the root keeps.
void MachineTransport::reduce(const at::Tensor& output, const at::Tensor& input,
                              const c10d::ReduceOp& op, int root) {
  check_rank("reduce", root);
  in_order([&] {
    const at::Tensor all = input.clone();
    all_reduce(all, op);
    if (root == topology_.rank()) {
      flat(output).copy_(flat(all));
    }
  });
}

void MachineTransport::all_gather(const at::Tensor& output, const at::Tensor& input) {
  in_order([&] {
    const int64_t count = input.numel();
    if (topology_.leads()) {
      const at::Tensor gathered = at::empty({here(), count}, input.options());
      local().gather(gathered, input, 0);
      const at::Tensor mine = pinned({topology_.most(), count}, input.scalar_type());
      const at::Tensor all = pinned({machines(), topology_.most(), count}, input.scalar_type());
      mine.narrow(0, 0, here()).copy_(gathered, /*non_blocking=*/true);
      between_leaders(describe("all-gather", input), [mine, all](LeaderExchange& leader) {
        leader.exchange(copies(mine, all.size(0)), all.unbind());
      });
      by_rank(output.view({topology_.ranks(), count}), all.to(device_, /*non_blocking=*/true));
    } else {
      local().gather({}, input, 0);
    }
    local().broadcast(output, output, 0);
  });
}

void MachineTransport::reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                      const c10d::ReduceOp& op) {
  if (sum_is_wider(op, input.scalar_type())) {
    const at::Tensor wide = output.to(at::kFloat);
    reduce_scatter(wide, input.to(at::kFloat), op);
    output.copy_(wide);
    return;
  }
  in_order([&] {
    const int64_t count = output.numel();
    at::Tensor result;
    if (topology_.leads()) {
      const at::Tensor sums = at::empty_like(input);
      local().reduce(sums, input, within_machine(op, input.scalar_type()), 0);
      const at::Tensor sorted = by_machine(sums.view({topology_.ranks(), count}));
      const at::Tensor parts = pinned(sorted.sizes(), input.scalar_type());
      const at::Tensor reduced = pinned({topology_.most(), count}, input.scalar_type());
      parts.copy_(sorted, /*non_blocking=*/true);
      between_leaders(describe("reduce-scatter", output, op),
                      [parts, reduced, op, ranks = topology_.ranks()](LeaderExchange& leader) {
                        const at::Tensor theirs = at::empty_like(parts);
                        leader.exchange(parts.unbind(), theirs.unbind());
                        reduced.copy_(reduce_on_host(theirs, op, ranks));
                      });
      result = reduced.narrow(0, 0, here()).to(device_, /*non_blocking=*/true);
    } else {
      local().reduce({}, input, within_machine(op, input.scalar_type()), 0);
    }
    local().scatter(output, result, 0);
  });
}

void MachineTransport::all_to_all(const at::Tensor& output, const at::Tensor& input) {
  in_order([&] {
    const int64_t ranks = topology_.ranks(), most = topology_.most(), count = input.numel() / ranks;
    at::Tensor result;
    if (topology_.leads()) {
      // Collect the data, indexed by the sender on this machine and the receiver in the group.
      const at::Tensor gathered = at::empty({here(), ranks, count}, input.options());
      local().gather(gathered, input, 0);
      const at::Tensor sorted = at::zeros({machines(), most, most, count}, input.options());
      for (int64_t i = 0; i < here(); ++i) {
        sorted.select(1, i).copy_(by_machine(gathered[i]));
      }
      const at::Tensor to = pinned(sorted.sizes(), input.scalar_type());
      const at::Tensor from = pinned(sorted.sizes(), input.scalar_type());
      to.copy_(sorted, /*non_blocking=*/true);
      between_leaders(describe("all-to-all", input), [to, from](LeaderExchange& leader) {
        leader.exchange(to.unbind(), from.unbind());
      });
      const at::Tensor received = from.to(device_, /*non_blocking=*/true);
      result = at::empty({here(), ranks, count}, input.options());
      for (int64_t i = 0; i < here(); ++i) {
        by_rank(result[i], received.select(2, i));
      }
    } else {
      local().gather({}, input, 0);
    }
    local().scatter(output, result, 0);
  });
}

void MachineTransport::gather(const at::Tensor& output, const at::Tensor& input, int root) {
  check_rank("gather", root);
  in_order([&] {
    const int64_t count = input.numel();
    const size_t machine = topology_.machine_of(root);
    const bool is_here = machine == topology_.machine;
    const bool is_root = root == topology_.rank();
    const int position = topology_.position_of(root);
    if (!topology_.leads()) {
      local().gather({}, input, 0);
      if (is_root) {
        local().receive(output, 0, kDeliveryTag, nullptr);
      }
      return;
    }
    const at::Tensor gathered = at::empty({here(), count}, input.options());
    local().gather(gathered, input, 0);
    const at::Tensor mine = pinned({topology_.most(), count}, input.scalar_type());
    mine.narrow(0, 0, here()).copy_(gathered, /*non_blocking=*/true);
    const at::Tensor all =
        is_here ? pinned({machines(), topology_.most(), count}, input.scalar_type()) : at::Tensor();
    between_leaders(describe("gather", input, root),
                    [mine, all, machine, machines = machines()](LeaderExchange& leader) {
                      std::vector<at::Tensor> to(static_cast<size_t>(machines));
                      to[machine] = mine;
                      leader.exchange(to, all.defined() ? all.unbind() : std::vector<at::Tensor>());
                    });
    if (is_here) {
      const at::Tensor sorted = is_root ? output.view({topology_.ranks(), count})
                                        : at::empty({topology_.ranks(), count}, input.options());
      by_rank(sorted, all.to(device_, /*non_blocking=*/true));
      if (!is_root) {
        local().send(sorted, position, kDeliveryTag);
      }
    }
  });
}

void MachineTransport::scatter(const at::Tensor& output, const at::Tensor& input, int root) {
  check_rank("scatter", root);
  in_order([&] {
    const int64_t count = output.numel();
    const size_t machine = topology_.machine_of(root);
    const bool is_here = machine == topology_.machine;
    const bool is_root = root == topology_.rank();
    at::Tensor result;
    if (is_root && !topology_.leads()) {
      local().send(input, 0, kDeliveryTag);
    }
    if (topology_.leads()) {
      const at::Tensor mine = pinned({topology_.most(), count}, output.scalar_type());
      at::Tensor all;
      if (is_here) {
        at::Tensor whole = input;
        if (!is_root) {
          whole = at::empty({topology_.ranks() * count}, output.options());
          local().receive(whole, topology_.position_of(root), kDeliveryTag, nullptr);
        }
        all = pinned({machines(), topology_.most(), count}, output.scalar_type());
        all.copy_(by_machine(whole.view({topology_.ranks(), count})), /*non_blocking=*/true);
      }
      between_leaders(describe("scatter", output, root),
                      [mine, all, machine, machines = machines()](LeaderExchange& leader) {
                        std::vector<at::Tensor> from(static_cast<size_t>(machines));
                        from[machine] = mine;
                        leader.exchange(all.defined() ? all.unbind() : std::vector<at::Tensor>(),
                                        from);
                      });
      result = mine.narrow(0, 0, here()).to(device_, /*non_blocking=*/true);
    }
    local().scatter(output, result, 0);
  });
}

void MachineTransport::barrier() {
  in_order([&] {
    local().barrier();
    between_leaders("barrier", [](LeaderExchange&) {});
    local().barrier();
  });
}

void MachineTransport::exchange(const std::vector<at::Tensor>& outputs,
                                const std::vector<at::Tensor>& inputs) {
  in_order([&] {
    std::vector<Message> messages;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto peer = static_cast<int>(i);
      if (peer != topology_.rank()) {
        messages.push_back(incoming(outputs[i], peer, kExchangeTag, nullptr));
        messages.push_back(outgoing(inputs[i], peer, kExchangeTag));
      } else {
        TORCH_CHECK_VALUE(outputs[i].numel() == inputs[i].numel(), "occl: all_to_all: rank ", peer,
                          " has ", inputs[i].numel(), " elements for itself but expects ",
                          outputs[i].numel());
        flat(outputs[i]).copy_(flat(inputs[i]));
      }
    }
    pass(std::move(messages));
  });
}

// ------------------------------------------------------------------------------------- messages

MachineTransport::Message MachineTransport::outgoing(const at::Tensor& tensor, int peer, int tag) {
  const at::Tensor data = pinned({tensor.numel()}, tensor.scalar_type());
  data.copy_(flat(tensor), /*non_blocking=*/true);
  return {{peer, tag, data}, /*sent=*/true, {}};
}

MachineTransport::Message MachineTransport::incoming(const at::Tensor& tensor, int peer, int tag,
                                                     int* source) {
  const at::Tensor data = pinned({tensor.numel()}, tensor.scalar_type());
  return {{peer, tag, data, source}, /*sent=*/false, tensor};
}

void MachineTransport::pass(std::vector<Message> messages) {
  std::vector<Network::Message> sends, receives;
  for (const Message& message : messages) {
    (message.sent ? sends : receives).push_back(message.network);
  }
  on_host([sends, receives](LeaderExchange& leader) { leader.network.transfer(sends, receives); });
  for (const Message& message : messages) {
    if (!message.sent) {
      flat(message.target).copy_(message.network.data, /*non_blocking=*/true);
    }
  }
}

void MachineTransport::enqueue(Message message) {
  messages_.push_back(std::move(message));
  if (groups_ == 0) {
    pass(std::exchange(messages_, {}));
  }
}

void MachineTransport::end_group() {
  if (--groups_ == 0 && !messages_.empty()) {
    pass(std::exchange(messages_, {}));
  }
}

void MachineTransport::drop_group() {
  --groups_;
  messages_.clear();
}

int MachineTransport::tag_of_program(int tag) const {
  TORCH_CHECK(!is_capturing(current_native_stream(device_.index())),
              "occl: a message between ranks on several machines cannot be captured in a graph: "
              "call it outside the capture");
  TORCH_CHECK_VALUE(tag >= 0 && tag < kMostTags, "occl: tag ", tag,
                    " is out of range: it must be from 0 to ", kMostTags - 1);
  check_not_ended();
  return tag + kFirstTag;
}

void MachineTransport::send(const at::Tensor& tensor, int peer, int tag) {
  check_rank("send", peer);
  const int network_tag = tag_of_program(tag);
  enqueue(outgoing(tensor, peer, network_tag));
}

void MachineTransport::receive(const at::Tensor& tensor, int peer, int tag, int* source) {
  if (peer != occlAnyRank) {
    check_rank("recv", peer);
  }
  const int network_tag = tag_of_program(tag);
  enqueue(incoming(tensor, peer, network_tag, peer == occlAnyRank ? source : nullptr));
}

// ------------------------------------------------------------------------------------------ end

std::optional<std::string> MachineTransport::ended(occlResult_t* result) const {
  return local().ended(result);
}

void MachineTransport::set_timeout(std::chrono::milliseconds timeout) {
  local().set_timeout(timeout + kExtraTimeout);
  exchange_->network.set_timeout(timeout);
}

void MachineTransport::abort(const std::string& reason) {
  if (!exchange_->in_child()) {
    exchange_->fail(reason);
  }
}

void MachineTransport::finalize() {
  if (exchange_->wait_idle()) {
    local().finalize();
  }
}

void MachineTransport::suspend() {
  check_not_ended();
  if (exchange_->wait_idle()) {
    local().suspend();
  }
}

void MachineTransport::resume() { local().resume(); }

// Returns only occl's memory, because the Gloo group stores no tensors between operations.
occlMemoryStats_t MachineTransport::memory_stats() const { return local().memory_stats(); }

}  // namespace openreg
