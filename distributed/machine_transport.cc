// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/machine_transport.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/exception.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include "distributed/arguments.h"
#include "distributed/host_reduction.h"
#include "runtime/c10/device.h"
#include "runtime/c10/error.h"
#include "runtime/c10/stream.h"
#include "runtime/device/host_wait.h"

namespace openreg {
namespace {

// Tags of the network. Tags of programs, which are not negative, are offset by kFirstTag.
constexpr int kAgreementTag = 0;
constexpr int kCollectiveTag = 1;
constexpr int kExchangeTag = 2;
constexpr int kFirstTag = 3;
constexpr int kMostTags = 1 << 29;

// Between a leader and the root on its machine. No message of a program has this tag.
constexpr int kDeliveryTag = -3;

// The text that leaders exchange before a collective, truncated or padded with zeros to this size.
constexpr int64_t kAgreementBytes = 256;
constexpr char kFailed = '!';

// A rank of a machine waits this much longer than its leader, so that the leader's error, which has
// more detail, is reported first.
constexpr std::chrono::milliseconds kExtraTimeout{500};

at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, at::TensorOptions().device(at::kCPU).dtype(type).pinned_memory(true));
}

// The elements in memory order.
at::Tensor flat(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
}

template <class... Parts>
std::string text_of(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

// "all-reduce of float32[8]".
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

// For an exchange that sends the same tensor to each machine.
std::vector<at::Tensor> copies(const at::Tensor& tensor, int64_t machines) {
  return std::vector<at::Tensor>(static_cast<size_t>(machines), tensor);
}

}  // namespace

// The state that host functions use.
class MachineTransport::State {
 public:
  struct Task {
    State& state;
    std::function<void(State&)> function;
  };

  State(const Topology& topology, std::unique_ptr<Transport> local,
        c10::intrusive_ptr<c10d::Backend> gloo, std::chrono::milliseconds timeout)
      : network(std::move(gloo), timeout), local(std::move(local)), topology_(topology) {}

  Network network;
  const std::unique_ptr<Transport> local;

  // Ends the group on this machine.
  void fail(const std::string& text) {
    local->abort(text);
    network.abort();
  }

  // Throws unless all leaders are about to run the same operation.
  void agree(const std::string& what) {
    const std::optional<std::string> ended = local->ended();
    const std::string mine = ended.has_value() ? kFailed + *ended : what;
    const auto padded = [](const std::string& text) {
      at::Tensor bytes = at::zeros({kAgreementBytes}, at::kByte);
      std::memcpy(bytes.mutable_data_ptr(), text.data(),
                  std::min(text.size(), static_cast<size_t>(kAgreementBytes) - 1));
      return bytes;
    };
    const auto machines = static_cast<int64_t>(topology_.machines.size());
    const std::vector<at::Tensor> texts =
        at::zeros({machines, kAgreementBytes}, at::kByte).unbind();
    exchange(copies(padded(mine), machines), texts, kAgreementTag);
    TORCH_CHECK_WITH(DistBackendError, !ended.has_value(), *ended);
    const auto text_from = [&](size_t machine) {
      return std::string(static_cast<const char*>(texts[machine].const_data_ptr()));
    };
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string theirs = text_from(i);
      const int leader = topology_.leader(static_cast<int64_t>(i));
      TORCH_CHECK_WITH(DistBackendError, theirs[0] != kFailed, "on the machine of rank ", leader,
                       ": ", theirs.substr(1));
      TORCH_CHECK_WITH(DistBackendError, theirs == text_from(topology_.machine),
                       "ranks called different operations: rank ", topology_.rank(), " called ",
                       mine, ", rank ", leader, " called ", theirs);
    }
  }

  // Sends the i-th tensor of `to` to the leader of machine i and receives the i-th tensor of `from`
  // from it. Undefined tensors are skipped.
  void exchange(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from,
                int tag = kCollectiveTag) {
    std::vector<Network::Message> sends, receives;
    for (size_t i = 0; i < topology_.machines.size(); ++i) {
      const int leader = topology_.leader(static_cast<int64_t>(i));
      if (i != topology_.machine) {
        if (i < to.size() && to[i].defined()) {
          sends.push_back({leader, tag, to[i]});
        }
        if (i < from.size() && from[i].defined()) {
          receives.push_back({leader, tag, from[i]});
        }
      } else if (i < to.size() && i < from.size() && to[i].defined() && from[i].defined()) {
        from[i].copy_(to[i]);
      }
    }
    network.transfer_agreed(sends, receives);
  }

  void begin_task() {
    const std::lock_guard lock(mutex_);
    if (!watcher_.joinable()) {
      watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
    }
    ++tasks_;
  }
  void end_task() {
    const std::lock_guard lock(mutex_);
    --tasks_;
  }

  void run(Task* task) {
    {
      const std::lock_guard lock(mutex_);
      ++running_;
      begun_.notify_one();
    }
    // The tensors may be inference tensors.
    const at::AutoDispatchBelowADInplaceOrView guard;
    try {
      task->function(*this);
    } catch (const c10::Error& error) {
      fail(error.what_without_backtrace());
    } catch (const std::exception& error) {
      fail(error.what());
    }
    {
      // A host function cannot free memory of the device.
      const std::lock_guard lock(mutex_);
      --running_;
      done_.emplace_back(task);
    }
    end_task();
  }

  void drop_done() {
    std::vector<std::unique_ptr<Task>> done;
    const std::lock_guard lock(mutex_);
    done.swap(done_);
  }

  // Whether this is a forked child, which has neither the threads nor the connections.
  bool in_child() const { return getpid() != process_; }

  // Waits until all functions have run. Returns false if some never will, because the process is
  // exiting or this is a forked child.
  bool wait_idle() {
    if (in_child()) {
      return false;
    }
    const HostWait wait;
    const auto idle = [this] {
      const std::lock_guard lock(mutex_);
      return tasks_ == 0;
    };
    for (int round = 0; !idle(); ++round) {
      if (round < 100) {
        std::this_thread::yield();
      } else if (orInit() == orErrorShutdown) {
        return false;
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    }
    drop_done();
    return true;
  }

 private:
  // While functions run, ends them if another rank of the machine has ended the communicator. The
  // grace period lets the next function tell the other leaders the reason first.
  void watch(const std::stop_token& stop) {
    constexpr std::chrono::milliseconds kInterval{50};
    constexpr int kGraceIntervals = 5;
    int ended = 0;
    std::unique_lock lock(mutex_);
    while (begun_.wait(lock, stop, [this] { return running_ != 0; })) {
      (void)begun_.wait_for(lock, stop, kInterval, [] { return false; });
      lock.unlock();
      ended = local->ended().has_value() ? ended + 1 : 0;
      if (ended == kGraceIntervals) {
        network.abort();
      }
      lock.lock();
    }
  }

  const Topology& topology_;
  const int process_ = getpid();
  std::mutex mutex_;   // guards the next three members
  int64_t tasks_ = 0;  // enqueued or running
  int64_t running_ = 0;
  std::vector<std::unique_ptr<Task>> done_;
  std::condition_variable_any begun_;
  std::jthread watcher_;
};

MachineTransport::MachineTransport(c10::Device device, Topology topology,
                                   std::unique_ptr<Transport> local,
                                   c10::intrusive_ptr<c10d::Backend> gloo,
                                   std::chrono::milliseconds timeout)
    : device_(device),
      topology_(std::move(topology)),
      state_(std::make_unique<State>(topology_, std::move(local), std::move(gloo), timeout)),
      last_(kOpenRegType) {
  set_timeout(timeout);
}

Transport& MachineTransport::local() const { return *state_->local; }

MachineTransport::~MachineTransport() {
  if (!state_->wait_idle()) {
    (void)state_.release();  // one of its functions may still run
  }
}

void MachineTransport::on_host(std::function<void(State&)> function) {
  state_->drop_done();
  auto task = std::make_unique<State::Task>(State::Task{*state_, std::move(function)});
  state_->begin_task();
  const auto run = [](void* data) {
    auto* const task = static_cast<State::Task*>(data);
    task->state.run(task);
  };
  if (const orError_t error =
          orLaunchHostFunc(current_native_stream(device_.index()), run, task.get());
      error != orSuccess) {
    state_->end_task();
    OPENREG_CHECK(error);
  }
  (void)task.release();
  // These messages fail if the function failed: an exception of a host function is not an error of
  // its stream.
  const at::Tensor nothing = at::empty({0}, at::TensorOptions().device(device_).dtype(at::kByte));
  TransportGroup group(local());
  local().send(nothing, static_cast<int>(topology_.position), 0);
  local().receive(nothing, static_cast<int>(topology_.position), 0, nullptr);
  group.end();
}

void MachineTransport::between_leaders(const std::string& what,
                                       std::function<void(State&)> function) {
  if (topology_.leads()) {
    on_host([what, function = std::move(function)](State& state) {
      state.agree(what);
      function(state);
    });
  }
}

// Enqueues a collective after the previous one.
void MachineTransport::in_order(const std::function<void()>& enqueue) {
  const c10::Stream stream = current_stream(device_.index());
  TORCH_CHECK(!is_capturing(native_stream(stream)),
              "occl: a collective of ranks on several machines cannot be captured in a graph");
  check_not_ended();
  last_.block(stream);
  enqueue();
  last_.record(stream);
}

void MachineTransport::check_not_ended() const {
  const std::optional<std::string> ended = this->ended(nullptr);
  if (ended.has_value()) {
    state_->network.abort();  // the other machines may be waiting for this one
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

// Each leader reduces one part of the result, and all leaders get all parts.
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
                      [whole, op, ranks = topology_.ranks()](State& state) {
                        const at::Tensor parts = at::empty_like(whole);
                        state.exchange(whole.unbind(), parts.unbind());
                        const at::Tensor sum = reduce_on_host(parts, op, ranks);
                        state.exchange(copies(sum, whole.size(0)), whole.unbind());
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
      between_leaders(describe("broadcast", output, root), [data, machine, is_here,
                                                            machines = machines()](State& state) {
        std::vector<at::Tensor> from(static_cast<size_t>(machines));
        from[machine] = data;
        is_here ? state.exchange(copies(data, machines), {}) : state.exchange({}, from);
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

// An all-reduce whose result only the root keeps.
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
      between_leaders(describe("all-gather", input), [mine, all](State& state) {
        state.exchange(copies(mine, all.size(0)), all.unbind());
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
                      [parts, reduced, op, ranks = topology_.ranks()](State& state) {
                        const at::Tensor theirs = at::empty_like(parts);
                        state.exchange(parts.unbind(), theirs.unbind());
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
      // From each rank here to each rank there.
      const at::Tensor gathered = at::empty({here(), ranks, count}, input.options());
      local().gather(gathered, input, 0);
      const at::Tensor sorted = at::zeros({machines(), most, most, count}, input.options());
      for (int64_t i = 0; i < here(); ++i) {
        sorted.select(1, i).copy_(by_machine(gathered[i]));
      }
      const at::Tensor to = pinned(sorted.sizes(), input.scalar_type());
      const at::Tensor from = pinned(sorted.sizes(), input.scalar_type());
      to.copy_(sorted, /*non_blocking=*/true);
      between_leaders(describe("all-to-all", input),
                      [to, from](State& state) { state.exchange(to.unbind(), from.unbind()); });
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
                    [mine, all, machine, machines = machines()](State& state) {
                      std::vector<at::Tensor> to(static_cast<size_t>(machines));
                      to[machine] = mine;
                      state.exchange(to, all.defined() ? all.unbind() : std::vector<at::Tensor>());
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
      between_leaders(describe("scatter", output, root), [mine, all, machine,
                                                          machines = machines()](State& state) {
        std::vector<at::Tensor> from(static_cast<size_t>(machines));
        from[machine] = mine;
        state.exchange(all.defined() ? all.unbind() : std::vector<at::Tensor>(), from);
      });
      result = mine.narrow(0, 0, here()).to(device_, /*non_blocking=*/true);
    }
    local().scatter(output, result, 0);
  });
}

void MachineTransport::barrier() {
  in_order([&] {
    local().barrier();
    between_leaders("barrier", [](State&) {});
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
  on_host([sends, receives](State& state) { state.network.transfer(sends, receives); });
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
              "occl: a message between ranks on several machines cannot be captured in a graph");
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
  state_->network.set_timeout(timeout);
}

void MachineTransport::abort(const std::string& reason) {
  if (!state_->in_child()) {
    state_->fail(reason);
  }
}

void MachineTransport::finalize() {
  if (state_->wait_idle()) {
    local().finalize();
  }
}

}  // namespace openreg
