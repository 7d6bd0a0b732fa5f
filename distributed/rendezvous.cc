// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/rendezvous.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/exception.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

namespace openreg {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kNumber = 16;  // number of digits in a random number

std::string random_number() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::random_device random;
  std::string number;
  for (size_t i = 0; i < kNumber; ++i) {
    number += kDigits[random() % 16];
  }
  return number;
}

// One rank's part in a rendezvous. It runs once, on the caller's thread.
class Participant {
 public:
  Participant(c10d::Store& store, const std::string& prefix, int rank, int size,
              milliseconds timeout, const std::string& what)
      : store_(store),
        prefix_(prefix),
        rank_(rank),
        size_(size),
        timeout_(timeout),
        deadline_(Clock::now() + timeout),
        what_(what) {}

  RendezvousResult run(const std::string& note) {
    const std::string number = random_number();
    set(note_key(rank_), number + note);
    return rank_ == 0 ? lead() : follow(number);
  }

 private:
  std::string note_key(int rank) const { return prefix_ + "/rank/" + std::to_string(rank); }
  std::string roster_key() const { return prefix_ + "/roster"; }
  static std::string agreed_key(const std::string& list, int rank) {
    return list + "/agreed/" + std::to_string(rank);
  }

  void set(const std::string& key, const std::string& text) {
    store_.set(key, std::vector<uint8_t>(text.begin(), text.end()));
  }

  std::string get(const std::string& key) {
    const std::vector<uint8_t> bytes = store_.get(key);
    return {bytes.begin(), bytes.end()};
  }

  // Waits for a key that rank `late` sets when it arrives at the rendezvous.
  void wait(const std::string& key, int late) {
    try {
      const auto left = std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now());
      store_.wait({key}, std::max(left, milliseconds(1)));
    } catch (const std::exception& error) {
      fail(late, error.what());
    }
  }

  [[noreturn]] void fail(int late, const std::string& detail) const {
    TORCH_CHECK_WITH(DistBackendError, false, "occl: ", what_, ": rank ", late,
                     " did not reach the rendezvous within ", timeout_.count(), " ms: ", detail);
  }

  // Sleeps for `round` milliseconds, at most 20.
  void pause(int round) const { std::this_thread::sleep_for(milliseconds(std::min(round, 20))); }

  // Collects the notes of all ranks, including their numbers. The length of each note precedes it.
  std::string collect_roster() {
    std::string roster;
    for (int rank = 0; rank < size_; ++rank) {
      wait(note_key(rank), rank);
      const std::string note = get(note_key(rank));
      roster += std::to_string(note.size()) + " " + note;
    }
    return roster;
  }

  static std::vector<std::string> parse_roster(const std::string& roster) {
    std::vector<std::string> notes;
    for (size_t begin = 0; begin < roster.size();) {
      const size_t space = roster.find(' ', begin);
      const size_t size = std::stoul(roster.substr(begin, space - begin));
      notes.push_back(roster.substr(space + 1, size));
      begin = space + 1 + size;
    }
    return notes;
  }

  RendezvousResult result_of(const std::string& id, const std::string& roster) const {
    RendezvousResult result{prefix_ + "/" + id, parse_roster(roster)};
    for (std::string& note : result.notes) {
      note = note.substr(kNumber);
    }
    return result;
  }

  RendezvousResult lead() {
    std::string id, published;
    for (int round = 1;; ++round) {
      const std::string roster = collect_roster();
      if (roster != published) {
        published = roster;
        id = random_number();
        set(roster_key(), id + roster);
      }
      int late = 0;
      for (int rank = 1; rank < size_ && late == 0; ++rank) {
        late = store_.check({agreed_key(prefix_ + "/" + id, rank)}) ? 0 : rank;
      }
      if (late == 0) {
        set(prefix_ + "/" + id + "/go", "1");
        return result_of(id, roster);
      }
      if (Clock::now() > deadline_) {
        fail(late, "it did not confirm the list of ranks");
      }
      pause(round);
    }
  }

  RendezvousResult follow(const std::string& number) {
    std::string agreed;
    for (int round = 1;; ++round) {
      wait(roster_key(), 0);
      const std::string text = get(roster_key());
      const std::string id = text.substr(0, kNumber), roster = text.substr(kNumber);
      const std::vector<std::string> notes = parse_roster(roster);
      const bool known = notes.size() == static_cast<size_t>(size_) &&
                         notes[static_cast<size_t>(rank_)].substr(0, kNumber) == number;
      if (known && id != agreed) {
        set(agreed_key(prefix_ + "/" + id, rank_), "1");
        agreed = id;
      }
      if (known && store_.check({prefix_ + "/" + id + "/go"})) {
        return result_of(id, roster);
      }
      if (Clock::now() > deadline_) {
        fail(0, "it did not complete the rendezvous");
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

c10::intrusive_ptr<c10d::Store> separate_client(const c10::intrusive_ptr<c10d::Store>& store) {
  try {
    return store->clone();
  } catch (const std::runtime_error&) {
    // pybind11 throws it if a Python class has no such method. The errors of torch's own stores,
    // and those of a Python method, have other classes.
    return store;
  }
}

RendezvousResult run_rendezvous(c10d::Store& store, const std::string& prefix, int rank, int size,
                                const std::string& note, std::chrono::milliseconds timeout,
                                const std::string& what) {
  return Participant(store, prefix, rank, size, timeout, what).run(note);
}

void delete_rendezvous_keys(c10d::Store& store, const std::string& prefix,
                            const RendezvousResult& result, int rank) {
  std::vector<std::string> keys{prefix + "/rank/" + std::to_string(rank)};
  if (rank == 0) {
    keys.push_back(prefix + "/roster");
    keys.push_back(result.prefix + "/go");
  } else {
    keys.push_back(result.prefix + "/agreed/" + std::to_string(rank));
  }
  for (const std::string& key : keys) {
    (void)store.deleteKey(key);
  }
}

}  // namespace openreg
