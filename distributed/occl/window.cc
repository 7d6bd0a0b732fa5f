// SPDX-License-Identifier: BSD-3-Clause
//
// Windows over memory that the ranks' processes share: words of it are signals, and a rank that
// waits sleeps on a futex in the memory whose words it waits for.
#include "distributed/occl/window.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "distributed/occl/data_type.h"
#include "distributed/occl/error.h"
#include "distributed/occl/reduction.h"
#include "distributed/occl/segment.h"
#include "runtime/device/openreg_emulation.h"
#include "runtime/sync/spin_lock.h"

namespace openreg::occl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kDefaultTimeout = std::chrono::minutes(30);
constexpr auto kSpin = std::chrono::microseconds(10);
// Between two looks at what nobody rings for: a process that has ended, and signal pads that the
// kernels of a program write.
constexpr auto kNap = std::chrono::milliseconds(5);

// What a collective asks for; ranks have to agree.
struct Request {
  enum class Kind : uint32_t { kNone, kOneShot, kTwoShot, kReduceScatter, kAllToAll };
  Kind kind = Kind::kNone;
  occlDataType_t type = occlByte;
  occlRedOp_t op = occlSum;
  uint64_t offset = 0;
  uint64_t count = 0;
  uint64_t rows = 1;
  bool operator==(const Request&) const = default;
};

// What a window has in the memory of each rank. `bell` counts changes of that rank's signal pad.
struct State {
  std::atomic<uint32_t> bell;
  std::atomic<uint32_t> sleepers;
  Request request;
  Verdict verdict;  // each rank that fails writes it to all
};
static_assert(sizeof(State) <= OCCL_WINDOW_STATE_BYTES);
static_assert(sizeof(orIpcFileHandle) <= sizeof(occlProcess));

std::string Describe(const Request& request) {
  static constexpr const char* kNames[] = {"nothing", "one-shot all-reduce", "two-shot all-reduce",
                                           "reduce-scatter", "all-to-all"};
  const uint64_t kind = static_cast<uint64_t>(request.kind);
  std::string text = kind < std::size(kNames) ? kNames[kind] : "unknown operation";
  if (request.kind != Request::Kind::kNone) {
    text += std::string(" of ") + TypeName(request.type) + "[" +
            (request.rows == 1 ? "" : std::to_string(request.rows) + ", ") +
            std::to_string(request.count) + "] at byte " + std::to_string(request.offset);
  }
  return text;
}

// How long an operation may take.
struct Limit {
  Clock::time_point end;
  std::chrono::milliseconds asked;
};

// This process is about to end: a kernel must not wait any more.
std::atomic<bool> ending{false};

class Window {
 public:
  Window(int ranks, int rank, const occlWindowMember* members, const occlWindowConfig_t& config)
      : ranks_(ranks),
        rank_(rank),
        buffer_bytes_(config.buffer_bytes),
        channels_(config.signal_pad_bytes / sizeof(uint32_t) / static_cast<size_t>(ranks)),
        timeout_(config.timeout_ms > 0 ? std::chrono::milliseconds(config.timeout_ms)
                                       : kDefaultTimeout),
        members_(static_cast<size_t>(ranks)) {
    for (int peer = 0; peer < ranks; ++peer) {
      std::memcpy(&members_[static_cast<size_t>(peer)].process, members[peer].process.internal,
                  sizeof(orIpcFileHandle));
    }
  }

  Status SetMember(int peer, const occlWindowMember& given);

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  size_t buffer_bytes() const { return buffer_bytes_; }
  unsigned char* buffer(int peer) const { return members_[static_cast<size_t>(peer)].buffer; }
  Status CheckPeer(int peer) const;
  Status CheckChannel(int channel) const;

  // From now on no operation begins. False while one runs.
  bool Close() {
    int none = 0;
    return running_.compare_exchange_strong(none, kClosed) || none == kClosed;
  }

  // Runs an operation, within a kernel.
  Status Run(const std::function<Status(Window&)>& operation);

  // ------------------------------------------------------------------------ within operations

  Limit Start(int64_t timeout_ms) const;
  Status Put(int peer, int channel, const Limit& limit);
  Status Take(int peer, int channel, const Limit& limit);
  Status Barrier(int channel, const Limit& limit);
  // A barrier after which it is known that all ranks ask for the same.
  Status Meet(const Request& request, const Limit& limit);

 private:
  static constexpr int kClosed = -1;

  struct Member {
    orIpcFileHandle process;
    unsigned char* buffer;
    uint32_t* pad;
    State* state;
  };

  Member& member(int peer) { return members_[static_cast<size_t>(peer)]; }
  std::atomic_ref<uint32_t> Word(int owner, int source, int channel) {
    return std::atomic_ref<uint32_t>(
        member(owner).pad[static_cast<size_t>(channel) * static_cast<size_t>(ranks_) +
                          static_cast<size_t>(source)]);
  }
  void Ring(int peer);
  // Waits until `done`, which looks at the signal pad of `owner`, or `missed` has ended.
  Status WaitUntil(int owner, int missed, const Limit& limit, const std::function<bool()>& done,
                   const std::function<std::string()>& what);
  Status Ended();
  void End(const Status& status);

  const int ranks_;
  const int rank_;
  const size_t buffer_bytes_;
  const size_t channels_;
  const std::chrono::milliseconds timeout_;
  std::vector<Member> members_;
  std::atomic<int> running_{0};
};

// By the addresses at which kernels see it.
Status Window::SetMember(int peer, const occlWindowMember& given) {
  Member& to = member(peer);
  void* addresses[3] = {given.buffer, given.signal_pad, given.state};
  for (void*& address : addresses) {
    if (const orError_t error = orCheckKernelPointer(address); error != orSuccess) {
      return DeviceStatus(error);
    }
    if (const orError_t error = orGetKernelPointer(&address, address); error != orSuccess) {
      return DeviceStatus(error);
    }
  }
  for (int aligned = 1; aligned < 3; ++aligned) {
    if (addresses[aligned] == nullptr ||
        reinterpret_cast<uintptr_t>(addresses[aligned]) % 64 != 0) {
      return Error(occlInvalidArgument, "the signal pad and the state of rank " +
                                            std::to_string(peer) +
                                            " must be aligned to 64 bytes and not null");
    }
  }
  to.buffer = static_cast<unsigned char*>(addresses[0]);
  to.pad = static_cast<uint32_t*>(addresses[1]);
  to.state = static_cast<State*>(addresses[2]);
  return {};
}

Status Window::CheckPeer(int peer) const {
  return peer >= 0 && peer < ranks_
             ? Status()
             : Error(occlInvalidArgument, "there is no rank " + std::to_string(peer) + ": " +
                                              std::to_string(ranks_) +
                                              " ranks share the symmetric memory");
}

Status Window::CheckChannel(int channel) const {
  return channel >= 0 && static_cast<size_t>(channel) < channels_
             ? Status()
             : Error(occlInvalidArgument, "there is no channel " + std::to_string(channel) + ": " +
                                              "the signal pad has room for " +
                                              std::to_string(channels_) +
                                              " channels (set_signal_pad_size)");
}

Status Window::Run(const std::function<Status(Window&)>& operation) {
  int running = running_.load();
  do {
    if (running == kClosed) {
      return Error(occlInvalidUsage,
                   "the symmetric memory was freed: keep its tensor or its handle as long as a "
                   "graph that uses it is replayed");
    }
  } while (!running_.compare_exchange_weak(running, running + 1));
  Status status = Ended();
  if (status.ok()) {
    status = operation(*this);
    if (!status.ok()) {
      End(status);
    }
  }
  running_.fetch_sub(1);
  return status;
}

Limit Window::Start(int64_t timeout_ms) const {
  const auto asked = timeout_ms > 0 ? std::chrono::milliseconds(timeout_ms) : timeout_;
  return {Clock::now() + asked, asked};
}

void Window::Ring(int peer) {
  State& state = *member(peer).state;
  state.bell.fetch_add(1, std::memory_order_seq_cst);
  if (state.sleepers.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, &state.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

Status Window::WaitUntil(int owner, int missed, const Limit& limit,
                         const std::function<bool()>& done,
                         const std::function<std::string()>& what) {
  const Clock::time_point start = Clock::now();
  do {
    for (int round = 0; round < 16; ++round) {
      if (done()) {
        return {};
      }
      SpinPause();
    }
  } while (Clock::now() - start < kSpin);
  State& state = *member(owner).state;
  bool rung = true;
  for (;;) {
    const uint32_t bell = state.bell.load(std::memory_order_seq_cst);
    if (done()) {
      return {};
    }
    if (Status ended = Ended(); !ended.ok()) {
      return ended;
    }
    if (ending.load()) {
      return Error(occlAborted, "process of rank " + std::to_string(rank_) + " ends: " + what());
    }
    int there = 1;
    if (!rung && orIpcFileIsThere(&there, &member(missed).process) == orSuccess && there == 0) {
      return done() ? Status()  // it was done, and ended
                    : Error(occlRemoteError, "rank " + std::to_string(missed) +
                                                 ", another process, has ended: " + what());
    }
    const Clock::time_point now = Clock::now();
    if (now >= limit.end) {
      return Error(occlTimeout, what() + " within " + std::to_string(limit.asked.count()) + " ms");
    }
    const auto nap = std::min<std::chrono::nanoseconds>(kNap, limit.end - now);
    const timespec time{0, nap.count()};
    state.sleepers.fetch_add(1, std::memory_order_seq_cst);
    rung = syscall(SYS_futex, &state.bell, FUTEX_WAIT, bell, &time, nullptr, 0) == 0 ||
           errno == EAGAIN;
    state.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
}

Status Window::Put(int peer, int channel, const Limit& limit) {
  const std::atomic_ref<uint32_t> word = Word(peer, rank_, channel);
  const auto set = [&] {
    uint32_t none = 0;
    return word.compare_exchange_strong(none, 1, std::memory_order_seq_cst);
  };
  const Status status = WaitUntil(peer, peer, limit, set, [&] {
    return "rank " + std::to_string(peer) + " has not taken the last signal of rank " +
           std::to_string(rank_) + " on channel " + std::to_string(channel);
  });
  if (status.ok()) {
    Ring(peer);
  }
  return status;
}

Status Window::Take(int peer, int channel, const Limit& limit) {
  const std::atomic_ref<uint32_t> word = Word(rank_, peer, channel);
  const auto take = [&] {
    uint32_t set = 1;
    return word.compare_exchange_strong(set, 0, std::memory_order_seq_cst);
  };
  const Status status = WaitUntil(rank_, peer, limit, take, [&] {
    return "rank " + std::to_string(rank_) + " has no signal of rank " + std::to_string(peer) +
           " on channel " + std::to_string(channel);
  });
  if (status.ok()) {
    Ring(rank_);  // a second signal of the peer may wait for it
  }
  return status;
}

Status Window::Barrier(int channel, const Limit& limit) {
  for (int next = 1; next < ranks_; ++next) {
    if (Status status = Put((rank_ + next) % ranks_, channel, limit); !status.ok()) {
      return status;
    }
  }
  for (int next = 1; next < ranks_; ++next) {
    if (Status status = Take((rank_ + next) % ranks_, channel, limit); !status.ok()) {
      return status;
    }
  }
  return {};
}

Status Window::Meet(const Request& request, const Limit& limit) {
  member(rank_).state->request = request;
  if (Status status = Barrier(0, limit); !status.ok()) {
    return status;
  }
  for (int peer = 0; peer < ranks_; ++peer) {
    const Request& theirs = member(peer).state->request;
    if (theirs != request) {
      const int first = std::min(rank_, peer), second = std::max(rank_, peer);
      return Error(occlInvalidUsage, "ranks do not ask for the same: rank " +
                                         std::to_string(first) + " for " +
                                         Describe(first == rank_ ? request : theirs) + ", rank " +
                                         std::to_string(second) + " for " +
                                         Describe(second == rank_ ? request : theirs));
    }
  }
  return {};
}

Status Window::Ended() {
  const Verdict& verdict = member(rank_).state->verdict;
  if (verdict.state.load(std::memory_order_acquire) != Verdict::kWritten) {
    return {};
  }
  const std::string who =
      verdict.rank == rank_ ? "" : "rank " + std::to_string(verdict.rank) + " says: ";
  return Error(verdict.result, who + verdict.text);
}

void Window::End(const Status& status) {
  for (int peer = 0; peer < ranks_; ++peer) {
    Verdict& verdict = member(peer).state->verdict;
    uint32_t none = Verdict::kNone;
    if (verdict.state.compare_exchange_strong(none, Verdict::kBeingWritten)) {
      verdict.rank = rank_;
      verdict.result = status.result;
      std::snprintf(verdict.text, sizeof(verdict.text), "%s", status.text.c_str());
      verdict.state.store(Verdict::kWritten, std::memory_order_release);
      Ring(peer);
    }
  }
}

// ----------------------------------------------------------------------------------- launches

// An operation that is enqueued. Owned by the call that launches and by the kernel, or by a graph.
class Launch {
 public:
  Launch(std::shared_ptr<Window> window, std::function<Status(Window&)> operation)
      : window_(std::move(window)), operation_(std::move(operation)) {}

  static Status Enqueue(const char* name, const std::shared_ptr<Window>& window, orStream_t stream,
                        std::function<Status(Window&)> operation) {
    static constexpr orRepeatable kRepeatable{&Launch::Run, &Launch::Release};
    // On the stream's own thread: it waits for other processes.
    const orLaunchAttributes attributes{name, orLaunchHasRepeatable, 0, &kRepeatable};
    Launch* const launch = std::make_unique<Launch>(window, std::move(operation)).release();
    const orError_t error =
        orLaunchKernel(stream, &Launch::RunOnce, &launch, sizeof(launch), &attributes);
    // An error may be that of a launch which was refused, or of a kernel that has run (with launch
    // blocking): the kernel's share tells. At the end of the process it may still be running.
    const bool refused = error != orSuccess && error != orErrorShutdown &&
                         launch->owners_.load(std::memory_order_acquire) == 2;
    launch->Drop(refused ? 2 : 1);
    return DeviceStatus(error);
  }

 private:
  void Drop(int owners) {
    if (owners_.fetch_sub(owners, std::memory_order_acq_rel) == owners) {
      const std::unique_ptr<Launch> last(this);
    }
  }
  static orError_t Run(void* argument) {
    const Launch& self = **static_cast<Launch**>(argument);
    const Status status = self.window_->Run(self.operation_);
    return status.ok() ? orSuccess
                       : orKernelFail(orErrorLaunchFailure, ("occl: " + status.text).c_str(),
                                      nullptr, nullptr);
  }
  static orError_t RunOnce(void* argument) {
    const orError_t error = Run(argument);
    Release(argument);
    return error;
  }
  static void Release(void* argument) { (*static_cast<Launch**>(argument))->Drop(1); }

  const std::shared_ptr<Window> window_;
  const std::function<Status(Window&)> operation_;
  std::atomic<int> owners_{2};
};

// `bytes` of device memory, as kernels see them.
Status KernelPointer(const char* which, const void* pointer, size_t bytes, void** found) {
  orPointerAttributes attributes{};
  if (const orError_t error = orPointerGetAttributes(&attributes, pointer); error != orSuccess) {
    return DeviceStatus(error);
  }
  const size_t before =
      static_cast<size_t>(static_cast<const char*>(pointer) - static_cast<char*>(attributes.base));
  if (attributes.type != orMemoryTypeDevice || bytes > attributes.size - before) {
    return Error(occlInvalidArgument, std::string(which) + " is no device memory of " +
                                          std::to_string(bytes) + " bytes");
  }
  return DeviceStatus(orGetKernelPointer(found, pointer));
}

struct Collective {
  Request request;
  size_t bytes = 0;  // of this rank's buffer
};

Status Check(const Window& window, const Request& request, Collective* made) {
  const size_t size = TypeSize(request.type);
  if (size == 0 || !CanReduce(request.type, request.op)) {
    return Error(occlInvalidArgument, std::string(TypeName(request.type)) + " has no reduction " +
                                          std::to_string(request.op));
  }
  const size_t blocks =
      request.kind == Request::Kind::kReduceScatter ? static_cast<size_t>(window.ranks()) : 1;
  const size_t room =
      (window.buffer_bytes() - std::min<size_t>(request.offset, window.buffer_bytes())) / size;
  if (request.count != 0 && request.rows > room / blocks / request.count) {
    return Error(occlInvalidArgument, Describe(request) + " does not fit into " +
                                          std::to_string(window.buffer_bytes()) +
                                          " bytes of symmetric memory");
  }
  *made = {request, request.rows * request.count * blocks * size};
  return {};
}

// The sum of `count` elements, `place` bytes from the start of all buffers.
void ReduceAll(const Window& window, const Request& request, size_t place, size_t count,
               void* output) {
  const void* inputs[OCCL_MAX_RANKS];
  const void* scales[OCCL_MAX_RANKS] = {};
  for (int peer = 0; peer < window.ranks(); ++peer) {
    inputs[peer] = window.buffer(peer) + place;
  }
  Reduce(request.type, request.op, window.ranks(), inputs, scales, output, count);
}

void Move(void* to, const void* from, size_t bytes) {
  if (bytes != 0 && to != from) {
    std::memmove(to, from, bytes);
  }
}

// Bytes [begin, end) that a rank reduces, of a two-shot all-reduce.
std::pair<size_t, size_t> Part(const Window& window, const Request& request, int rank) {
  const auto ranks = static_cast<size_t>(window.ranks());
  const size_t size = TypeSize(request.type);
  const size_t each = (request.count + ranks - 1) / ranks;
  const size_t begin = std::min(static_cast<size_t>(rank) * each, request.count);
  return {begin * size, std::min(begin + each, request.count) * size};
}

Status RunOneShot(Window& window, const Collective& collective, const void* input, void* output) {
  const Request& request = collective.request;
  const Limit limit = window.Start(0);
  if (input != nullptr) {
    Move(window.buffer(window.rank()) + request.offset, input, collective.bytes);
  }
  if (Status status = window.Meet(request, limit); !status.ok()) {
    return status;
  }
  ReduceAll(window, request, request.offset, request.count, output);
  return window.Barrier(0, limit);
}

Status RunTwoShot(Window& window, const Collective& collective, void* output) {
  const Request& request = collective.request;
  const Limit limit = window.Start(0);
  if (Status status = window.Meet(request, limit); !status.ok()) {
    return status;
  }
  const int ranks = window.ranks(), me = window.rank();
  const auto [begin, end] = Part(window, request, me);
  unsigned char* const mine = window.buffer(me) + request.offset + begin;
  ReduceAll(window, request, request.offset + begin, (end - begin) / TypeSize(request.type), mine);
  if (output == nullptr) {
    // Nobody else reads or writes this part.
    for (int next = 1; next < ranks; ++next) {
      Move(window.buffer((me + next) % ranks) + request.offset + begin, mine, end - begin);
    }
    return window.Barrier(0, limit);
  }
  if (Status status = window.Barrier(0, limit); !status.ok()) {
    return status;
  }
  for (int next = 0; next < ranks; ++next) {
    const int peer = (me + next) % ranks;
    const auto [from, to] = Part(window, request, peer);
    Move(static_cast<unsigned char*>(output) + from, window.buffer(peer) + request.offset + from,
         to - from);
  }
  return window.Barrier(0, limit);
}

Status RunReduceScatter(Window& window, const Collective& collective, void* output) {
  const Request& request = collective.request;
  const Limit limit = window.Start(0);
  if (Status status = window.Meet(request, limit); !status.ok()) {
    return status;
  }
  const size_t chunk = request.count * TypeSize(request.type);
  const auto ranks = static_cast<size_t>(window.ranks());
  for (size_t row = 0; row < request.rows; ++row) {
    ReduceAll(window, request,
              request.offset + (row * ranks + static_cast<size_t>(window.rank())) * chunk,
              request.count, static_cast<unsigned char*>(output) + row * chunk);
  }
  return window.Barrier(0, limit);
}

struct RowExchange {
  Request request;
  size_t splits_offset = 0;
  occlRows rows{};
  unsigned char* output = nullptr;
  int64_t* output_splits = nullptr;
};

// Which rows of a rank go to this one.
Status FindRows(const Window& window, const RowExchange& exchange, int peer, const int64_t* splits,
                size_t* begin, size_t* count) {
  size_t before = 0;
  for (int target = 0; target < window.ranks(); ++target) {
    const int64_t split = splits[target];
    if (split < 0 || static_cast<size_t>(split) > exchange.rows.input_rows - before) {
      return Error(occlInvalidUsage,
                   "rank " + std::to_string(peer) + " sends " + std::to_string(split) +
                       " rows to rank " + std::to_string(target) + ", but has " +
                       std::to_string(exchange.rows.input_rows - before) + " more in its input");
    }
    if (target == window.rank()) {
      *begin = before;
      *count = static_cast<size_t>(split);
    }
    before += static_cast<size_t>(split);
  }
  return {};
}

Status RunRowExchange(Window& window, const Window& splits, const RowExchange& exchange) {
  const Limit limit = window.Start(0);
  if (Status status = window.Meet(exchange.request, limit); !status.ok()) {
    return status;
  }
  size_t total = 0;
  for (int peer = 0; peer < window.ranks(); ++peer) {
    size_t begin = 0, count = 0;
    if (Status status =
            FindRows(window, exchange, peer,
                     reinterpret_cast<const int64_t*>(splits.buffer(peer) + exchange.splits_offset),
                     &begin, &count);
        !status.ok()) {
      return status;
    }
    if (count > exchange.rows.output_rows - total) {
      return Error(occlInvalidUsage, "rank " + std::to_string(window.rank()) + " gets " +
                                         std::to_string(total + count) + " rows from ranks 0 to " +
                                         std::to_string(peer) + ", but its output has room for " +
                                         std::to_string(exchange.rows.output_rows));
    }
    Move(exchange.output + total * exchange.rows.bytes,
         window.buffer(peer) + exchange.request.offset + begin * exchange.rows.bytes,
         count * exchange.rows.bytes);
    exchange.output_splits[peer] = static_cast<int64_t>(count);
    exchange.output_splits[window.ranks() + peer] = static_cast<int64_t>(total);
    total += count;
  }
  return window.Barrier(0, limit);
}

Status CheckRows(const Window& window, const Window& splits, size_t offset, size_t splits_offset,
                 const occlRows& rows) {
  const size_t words = static_cast<size_t>(window.ranks()) * sizeof(int64_t);
  if (splits.ranks() != window.ranks() || splits.rank() != window.rank()) {
    return Error(occlInvalidArgument, "the rows and their numbers are shared by other ranks");
  }
  const auto fits = [](size_t bytes, size_t from, size_t count, size_t size) {
    return from <= bytes && (size == 0 || count <= (bytes - from) / size);
  };
  if (!fits(window.buffer_bytes(), offset, rows.input_rows, rows.bytes) ||
      !fits(splits.buffer_bytes(), splits_offset, words, 1) ||
      splits_offset % sizeof(int64_t) != 0) {
    return Error(occlInvalidArgument, "the rows or their numbers leave the symmetric memory");
  }
  return {};
}

}  // namespace
}  // namespace openreg::occl

// ------------------------------------------------------------------------------------ the C API

struct occlWindow {
  std::shared_ptr<openreg::occl::Window> window;
};

namespace openreg::occl {
namespace {

// Calls `enqueue` with the window, and names the function in its error.
template <class Function>
occlResult_t WithWindow(const char* function, occlWindow_t window, const Function& enqueue) {
  Status status = window == nullptr ? Error(occlInvalidArgument, "the window is null")
                                    : enqueue(window->window);
  if (!status.ok()) {
    status.text = std::string(function) + ": " + status.text;
  }
  return Return(status);
}

Status CheckMembers(int ranks, int rank, const occlWindowMember* members,
                    const occlWindowConfig_t* config) {
  if (members == nullptr || config == nullptr) {
    return Error(occlInvalidArgument, "members and config must not be null");
  }
  if (ranks < 1 || ranks > OCCL_MAX_RANKS || rank < 0 || rank >= ranks) {
    return Error(occlInvalidArgument, "rank " + std::to_string(rank) + " of " +
                                          std::to_string(ranks) + " ranks: there are 1 to " +
                                          std::to_string(OCCL_MAX_RANKS) + ", counted from 0");
  }
  return {};
}

}  // namespace

extern "C" {

OPENREG_API occlResult_t occlGetProcess(occlProcess* process) {
  if (process == nullptr) {
    return Return(Error(occlInvalidArgument, "occlGetProcess: process is null"));
  }
  orIpcFileHandle file;
  if (const orError_t error = orIpcGetDeviceFile(&file, 0); error != orSuccess) {
    return Return(DeviceStatus(error));
  }
  *process = {};
  std::memcpy(process->internal, &file, sizeof(file));
  return occlSuccess;
}

OPENREG_API occlResult_t occlWindowCreate(occlWindow_t* window, int ranks, int rank,
                                          const occlWindowMember* members,
                                          const occlWindowConfig_t* config) {
  if (window == nullptr) {
    return Return(Error(occlInvalidArgument, "occlWindowCreate: window is null"));
  }
  *window = nullptr;
  if (Status status = CheckMembers(ranks, rank, members, config); !status.ok()) {
    status.text = "occlWindowCreate: " + status.text;
    return Return(status);
  }
  // Made after the device's exit handler, so called before it.
  struct ExitWatcher {
    ~ExitWatcher() { ending = true; }
  };
  static const ExitWatcher watcher;
  auto made = std::make_shared<Window>(ranks, rank, members, *config);
  for (int peer = 0; peer < ranks; ++peer) {
    if (const Status status = made->SetMember(peer, members[peer]); !status.ok()) {
      return Return(status);
    }
  }
  *window = std::make_unique<occlWindow>(occlWindow{std::move(made)}).release();
  return occlSuccess;
}

OPENREG_API occlResult_t occlWindowDestroy(occlWindow_t window) {
  if (window == nullptr) {
    return occlSuccess;
  }
  if (!window->window->Close()) {
    return occlInProgress;
  }
  const std::unique_ptr<occlWindow> last(window);
  return occlSuccess;
}

OPENREG_API void occlWindowEndWaits(void) { ending = true; }

OPENREG_API occlResult_t occlWindowPutSignal(occlWindow_t window, int peer, int channel,
                                             int64_t timeout_ms, orStream_t stream) {
  return WithWindow("occlWindowPutSignal", window, [&](const std::shared_ptr<Window>& of) {
    Status status = of->CheckPeer(peer);
    status = status.ok() ? of->CheckChannel(channel) : status;
    return !status.ok() ? status : Launch::Enqueue("occl::PutSignal", of, stream, [=](Window& on) {
      return on.Put(peer, channel, on.Start(timeout_ms));
    });
  });
}

OPENREG_API occlResult_t occlWindowWaitSignal(occlWindow_t window, int peer, int channel,
                                              int64_t timeout_ms, orStream_t stream) {
  return WithWindow("occlWindowWaitSignal", window, [&](const std::shared_ptr<Window>& of) {
    Status status = of->CheckPeer(peer);
    status = status.ok() ? of->CheckChannel(channel) : status;
    return !status.ok() ? status : Launch::Enqueue("occl::WaitSignal", of, stream, [=](Window& on) {
      return on.Take(peer, channel, on.Start(timeout_ms));
    });
  });
}

OPENREG_API occlResult_t occlWindowBarrier(occlWindow_t window, int channel, int64_t timeout_ms,
                                           orStream_t stream) {
  return WithWindow("occlWindowBarrier", window, [&](const std::shared_ptr<Window>& of) {
    const Status status = of->CheckChannel(channel);
    return !status.ok() ? status
                        : Launch::Enqueue("occl::WindowBarrier", of, stream, [=](Window& on) {
                            return on.Barrier(channel, on.Start(timeout_ms));
                          });
  });
}

OPENREG_API occlResult_t occlWindowAllReduceOneShot(occlWindow_t window, size_t offset,
                                                    size_t count, occlDataType_t type,
                                                    occlRedOp_t op, const void* input, void* output,
                                                    orStream_t stream) {
  return WithWindow("occlWindowAllReduceOneShot", window, [&](const std::shared_ptr<Window>& of) {
    Collective collective;
    void* from = nullptr;
    void* to = nullptr;
    Status status = Check(*of, {Request::Kind::kOneShot, type, op, offset, count, 1}, &collective);
    if (status.ok() && input != nullptr) {
      status = KernelPointer("input", input, collective.bytes, &from);
    }
    if (status.ok() && count != 0) {
      status = KernelPointer("output", output, collective.bytes, &to);
    }
    return !status.ok() ? status
                        : Launch::Enqueue("occl::OneShotAllReduce", of, stream, [=](Window& on) {
                            return RunOneShot(on, collective, from, to);
                          });
  });
}

OPENREG_API occlResult_t occlWindowAllReduceTwoShot(occlWindow_t window, size_t offset,
                                                    size_t count, occlDataType_t type,
                                                    occlRedOp_t op, void* output,
                                                    orStream_t stream) {
  return WithWindow("occlWindowAllReduceTwoShot", window, [&](const std::shared_ptr<Window>& of) {
    Collective collective;
    void* to = nullptr;
    Status status = Check(*of, {Request::Kind::kTwoShot, type, op, offset, count, 1}, &collective);
    if (status.ok() && output != nullptr) {
      status = KernelPointer("output", output, collective.bytes, &to);
    }
    return !status.ok() ? status
                        : Launch::Enqueue("occl::TwoShotAllReduce", of, stream, [=](Window& on) {
                            return RunTwoShot(on, collective, to);
                          });
  });
}

OPENREG_API occlResult_t occlWindowReduceScatter(occlWindow_t window, size_t offset, size_t rows,
                                                 size_t count, occlDataType_t type, occlRedOp_t op,
                                                 void* output, orStream_t stream) {
  return WithWindow("occlWindowReduceScatter", window, [&](const std::shared_ptr<Window>& of) {
    Collective collective;
    void* to = nullptr;
    Status status =
        Check(*of, {Request::Kind::kReduceScatter, type, op, offset, count, rows}, &collective);
    if (status.ok() && collective.bytes != 0) {
      status =
          KernelPointer("output", output, collective.bytes / static_cast<size_t>(of->ranks()), &to);
    }
    return !status.ok() ? status
                        : Launch::Enqueue("occl::WindowReduceScatter", of, stream, [=](Window& on) {
                            return RunReduceScatter(on, collective, to);
                          });
  });
}

OPENREG_API occlResult_t occlWindowAllToAllV(occlWindow_t window, size_t offset,
                                             occlWindow_t splits, size_t splits_offset,
                                             const occlRows* rows, void* output,
                                             void* output_splits, orStream_t stream) {
  return WithWindow("occlWindowAllToAllV", window, [&](const std::shared_ptr<Window>& of) {
    if (splits == nullptr || rows == nullptr) {
      return Error(occlInvalidArgument, "splits and rows must not be null");
    }
    Status status = CheckRows(*of, *splits->window, offset, splits_offset, *rows);
    RowExchange exchange{{Request::Kind::kAllToAll, occlByte, occlSum, offset, rows->bytes, 1},
                         splits_offset,
                         *rows};
    const size_t words = 2 * static_cast<size_t>(of->ranks()) * sizeof(int64_t);
    void* address = nullptr;
    if (status.ok() && rows->output_rows * rows->bytes != 0) {
      status = KernelPointer("output", output, rows->output_rows * rows->bytes, &address);
      exchange.output = static_cast<unsigned char*>(address);
    }
    if (status.ok()) {
      status = KernelPointer("output_splits", output_splits, words, &address);
      exchange.output_splits = static_cast<int64_t*>(address);
    }
    return !status.ok() ? status
                        : Launch::Enqueue("occl::WindowAllToAll", of, stream,
                                          [=, numbers = splits->window](Window& on) {
                                            return numbers->Run([&](Window& counts) {
                                              return RunRowExchange(on, counts, exchange);
                                            });
                                          });
  });
}

}  // extern "C"
}  // namespace openreg::occl
