// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/network.h"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/exception.h>

#include <future>
#include <utility>

#include "distributed/occl/occl.h"

namespace openreg {
namespace {

// Return Gloo's tag for a message. Even tags are for messages on which sender and receiver have
// agreed. Odd tags are for data that a header has announced; the same odd tag is never used twice
// in a row.
int agreed_tag(int tag) { return 2 * tag; }
int data_tag(int64_t number) { return static_cast<int>(2 * number + 1); }
constexpr uint32_t kDataTags = 1U << 29;

// The number of words in the header, which precedes the data. The words are the type, the number of
// elements, and the number of the data's tag. The receiver checks the header first, because Gloo
// crashes the process if the data does not fit.
constexpr int kWords = 3;

at::Tensor header_of(const at::Tensor& data, int64_t number) {
  at::Tensor words = at::empty({kWords}, at::TensorOptions().dtype(at::kLong));
  auto* const word = words.mutable_data_ptr<int64_t>();
  word[0] = static_cast<int64_t>(data.scalar_type());
  word[1] = data.numel();
  word[2] = number;
  return words;
}

std::string text_of(int64_t type, int64_t elements) {
  return std::string(c10::getDtypeNames(static_cast<at::ScalarType>(type)).first) + "[" +
         std::to_string(elements) + "]";
}

std::vector<at::Tensor> bytes_of(const at::Tensor& data) {
  return {data.view({-1}).view(at::kByte)};
}

// Throws a DistBackendError. For known causes, the message replaces Gloo's text, which contains a
// location in Gloo's sources and a peer's address.
[[noreturn]] void throw_network_error(const std::exception& error, int peer, int64_t timeout) {
  const std::string text = error.what();
  const std::string who = peer == occlAnyRank ? "a rank" : "rank " + std::to_string(peer);
  TORCH_CHECK_WITH(DistBackendError, text.find("Timed out") == std::string::npos, who,
                   " did not respond within ", timeout, " ms");
  for (const char* const lost : {"closed by peer", "reset by peer", "Broken pipe", "refused"}) {
    TORCH_CHECK_WITH(DistBackendError, text.find(lost) == std::string::npos, "the process of ", who,
                     " has exited or left the group");
  }
  TORCH_CHECK_WITH(DistBackendError, false, who, ": ", text);
}

std::atomic<MakeGloo> gloo_maker{nullptr};

}  // namespace

void register_gloo(MakeGloo make) { gloo_maker = make; }

c10::intrusive_ptr<c10d::Backend> make_gloo(c10::intrusive_ptr<c10d::Store> store, int rank,
                                            int size, std::chrono::milliseconds timeout) {
  const MakeGloo make = gloo_maker.load();
  TORCH_CHECK(
      make != nullptr,
      "occl: ranks on several machines need Gloo, which this torch does not include: build torch "
      "with USE_GLOO=1");
  return make(std::move(store), rank, size, timeout);
}

c10::intrusive_ptr<c10d::Backend> Network::gloo() {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK_WITH(DistBackendError, gloo_ != nullptr, "the group was aborted: create a new group");
  return gloo_;
}

Network::Wait Network::send(int peer, int tag, const at::Tensor& data) {
  std::vector<at::Tensor> tensors = bytes_of(data);
  try {
    return {gloo()->send(tensors, peer, tag), peer};
  } catch (const std::exception& error) {
    throw_network_error(error, peer, timeout_);
  }
}

Network::Wait Network::receive(int peer, int tag, const at::Tensor& data) {
  std::vector<at::Tensor> tensors = bytes_of(data);
  try {
    return {peer == occlAnyRank ? gloo()->recvAnysource(tensors, tag)
                                : gloo()->recv(tensors, peer, tag),
            peer};
  } catch (const std::exception& error) {
    throw_network_error(error, peer, timeout_);
  }
}

void Network::finish(const Wait& wait) {
  {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK_WITH(DistBackendError, gloo_ != nullptr,
                     "the group was aborted: create a new group");
    waiting_.insert(wait.work.get());
  }
  bool done = false;
  std::exception_ptr failed;
  try {
    done = wait.work->wait(std::chrono::milliseconds(timeout_.load()));
  } catch (...) {
    failed = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    waiting_.erase(wait.work.get());
  }
  if (failed != nullptr) {
    try {
      std::rethrow_exception(failed);
    } catch (const std::exception& error) {
      throw_network_error(error, wait.peer, timeout_);
    }
  }
  TORCH_CHECK_WITH(DistBackendError, done, "the group was aborted: create a new group");
}

void Network::abort() {
  c10::intrusive_ptr<c10d::Backend> last;
  const std::lock_guard lock(mutex_);
  last.swap(gloo_);
  for (c10d::Work* const work : waiting_) {
    work->abort();
  }
}

void Network::finish_all(const std::vector<std::function<void()>>& steps) {
  std::exception_ptr failed;
  for (const std::function<void()>& step : steps) {
    try {
      step();
    } catch (...) {
      if (failed == nullptr) {
        failed = std::current_exception();
        abort();
      }
    }
  }
  if (failed != nullptr) {
    std::rethrow_exception(failed);
  }
}

void Network::transfer_agreed(const std::vector<Message>& sends,
                              const std::vector<Message>& receives) {
  std::vector<std::function<void()>> steps;
  const auto add = [&](const Wait& wait) { steps.emplace_back([this, wait] { finish(wait); }); };
  for (const Message& message : receives) {
    if (message.data.numel() != 0) {
      add(receive(message.peer, agreed_tag(message.tag), message.data));
    }
  }
  for (const Message& message : sends) {
    if (message.data.numel() != 0) {
      add(send(message.peer, agreed_tag(message.tag), message.data));
    }
  }
  finish_all(steps);
}

void Network::receive_checked(const Message& message, const Wait& header, const at::Tensor& words) {
  finish(header);
  const int peer = message.peer == occlAnyRank ? header.work->sourceRank() : message.peer;
  const auto* const word = words.const_data_ptr<int64_t>();
  const auto type = static_cast<int64_t>(message.data.scalar_type());
  TORCH_CHECK_WITH(DistBackendError, word[0] == type && word[1] == message.data.numel(), "rank ",
                   peer, " sent ", text_of(word[0], word[1]), ", but the receiver expects ",
                   text_of(type, message.data.numel()));
  if (message.data.numel() != 0) {
    finish(receive(peer, data_tag(word[2]), message.data));
  }
  if (message.source != nullptr) {
    *message.source = peer;
  }
}

void Network::transfer(const std::vector<Message>& sends, const std::vector<Message>& receives) {
  std::vector<std::function<void()>> steps;
  for (const Message& message : receives) {
    const at::Tensor words = at::empty({kWords}, at::TensorOptions().dtype(at::kLong));
    const Wait header = receive(message.peer, agreed_tag(message.tag), words);
    const auto receive_it = [this, &message, header, words] {
      try {
        receive_checked(message, header, words);
      } catch (...) {
        abort();  // end the other waits
        throw;
      }
    };
    if (receives.size() == 1) {
      steps.emplace_back(receive_it);
    } else {
      // Each receive needs its own thread, because its message may arrive only after that of
      // another receive.
      steps.emplace_back(
          [other = std::async(std::launch::async, receive_it).share()] { other.get(); });
    }
  }
  for (const Message& message : sends) {
    const int64_t number = sent_.fetch_add(1) % kDataTags;
    const at::Tensor words = header_of(message.data, number);
    try {
      const Wait header = send(message.peer, agreed_tag(message.tag), words);
      steps.emplace_back([this, header, words] { finish(header); });
      if (message.data.numel() != 0) {
        const Wait data = send(message.peer, data_tag(number), message.data);
        steps.emplace_back([this, data] { finish(data); });
      }
    } catch (...) {
      abort();  // end the messages that have already started
      throw;
    }
  }
  finish_all(steps);
}

}  // namespace openreg
