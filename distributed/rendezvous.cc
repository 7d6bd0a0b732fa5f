// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/rendezvous.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/exception.h>

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

namespace openreg {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kNumber = 16;  // digits

std::string random_number() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::random_device random;
  std::string number;
  for (size_t i = 0; i < kNumber; ++i) {
    number += kDigits[random() % 16];
  }
  return number;
}

// A rank's end of a rendezvous.
class Party {
 public:
  Party(c10d::Store& store, const std::string& prefix, int rank, int size, milliseconds timeout,
        const std::string& what)
      : store_(store),
        prefix_(prefix),
        rank_(rank),
        size_(size),
        timeout_(timeout),
        deadline_(Clock::now() + timeout),
        what_(what) {}

  Meeting run(const std::string& note) {
    const std::string number = random_number();
    set(note_key(rank_), number + note);
    return rank_ == 0 ? lead() : follow(number);
  }

 private:
  std::string note_key(int rank) const { return prefix_ + "/rank/" + std::to_string(rank); }
  std::string roll_key() const { return prefix_ + "/roll"; }
  static std::string agreed_key(const std::string& meeting, int rank) {
    return meeting + "/agreed/" + std::to_string(rank);
  }

  void set(const std::string& key, const std::string& text) {
    store_.set(key, std::vector<uint8_t>(text.begin(), text.end()));
  }

  std::string get(const std::string& key) {
    const std::vector<uint8_t> bytes = store_.get(key);
    return {bytes.begin(), bytes.end()};
  }

  // Of a key that a rank sets when it comes.
  void wait(const std::string& key, int late) {
    try {
      const auto left = std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now());
      store_.wait({key}, std::max(left, milliseconds(1)));
    } catch (const std::exception& error) {
      fail(late, error.what());
    }
  }

  [[noreturn]] void fail(int late, const std::string& detail) const {
    TORCH_CHECK_WITH(DistBackendError, false, "occl: ", what_, ", and rank ", late,
                     " has not come to the rendezvous within ", timeout_.count(), " ms: ", detail);
  }

  // A little, and more each time.
  void pause(int round) const { std::this_thread::sleep_for(milliseconds(std::min(round, 20))); }

  // All notes with their numbers, each behind its length.
  std::string call_roll() {
    std::string roll;
    for (int rank = 0; rank < size_; ++rank) {
      wait(note_key(rank), rank);
      const std::string note = get(note_key(rank));
      roll += std::to_string(note.size()) + " " + note;
    }
    return roll;
  }

  static std::vector<std::string> read_roll(const std::string& roll) {
    std::vector<std::string> notes;
    for (size_t begin = 0; begin < roll.size();) {
      const size_t space = roll.find(' ', begin);
      const size_t size = std::stoul(roll.substr(begin, space - begin));
      notes.push_back(roll.substr(space + 1, size));
      begin = space + 1 + size;
    }
    return notes;
  }

  Meeting made(const std::string& id, const std::string& roll) const {
    Meeting meeting{prefix_ + "/" + id, read_roll(roll)};
    for (std::string& note : meeting.notes) {
      note = note.substr(kNumber);
    }
    return meeting;
  }

  Meeting lead() {
    std::string id, called;
    for (int round = 1;; ++round) {
      const std::string roll = call_roll();
      if (roll != called) {
        called = roll;
        id = random_number();
        set(roll_key(), id + roll);
      }
      int late = 0;
      for (int rank = 1; rank < size_ && late == 0; ++rank) {
        late = store_.check({agreed_key(prefix_ + "/" + id, rank)}) ? 0 : rank;
      }
      if (late == 0) {
        set(prefix_ + "/" + id + "/go", "1");
        return made(id, roll);
      }
      if (Clock::now() > deadline_) {
        fail(late, "it has not agreed");
      }
      pause(round);
    }
  }

  Meeting follow(const std::string& number) {
    std::string agreed;
    for (int round = 1;; ++round) {
      wait(roll_key(), 0);
      const std::string text = get(roll_key());
      const std::string id = text.substr(0, kNumber), roll = text.substr(kNumber);
      const std::vector<std::string> notes = read_roll(roll);
      const bool known = notes.size() == static_cast<size_t>(size_) &&
                         notes[static_cast<size_t>(rank_)].substr(0, kNumber) == number;
      if (known && id != agreed) {
        set(agreed_key(prefix_ + "/" + id, rank_), "1");
        agreed = id;
      }
      if (known && store_.check({prefix_ + "/" + id + "/go"})) {
        return made(id, roll);
      }
      if (Clock::now() > deadline_) {
        fail(0, "it does not go on");
      }
      pause(round);
    }
  }

  c10d::Store& store_;
  const std::string prefix_;
  const int rank_;
  const int size_;
  const milliseconds timeout_;
  const Clock::time_point deadline_;
  const std::string what_;
};

}  // namespace

Meeting meet(c10d::Store& store, const std::string& prefix, int rank, int size,
             const std::string& note, std::chrono::milliseconds timeout, const std::string& what) {
  return Party(store, prefix, rank, size, timeout, what).run(note);
}

void forget(c10d::Store& store, const std::string& prefix, const Meeting& meeting, int rank) {
  std::vector<std::string> keys{prefix + "/rank/" + std::to_string(rank)};
  if (rank == 0) {
    keys.push_back(prefix + "/roll");
    keys.push_back(meeting.prefix + "/go");
  } else {
    keys.push_back(meeting.prefix + "/agreed/" + std::to_string(rank));
  }
  for (const std::string& key : keys) {
    (void)store.deleteKey(key);
  }
}

}  // namespace openreg
