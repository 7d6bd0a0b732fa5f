// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/loan.h"

#include <signal.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "runtime/device/board.h"
#include "runtime/device/device_fixture.h"
#include "runtime/device/ipc_peer.h"

namespace openreg::device {
namespace {

class LoanTest : public DeviceTest {
 protected:
  static constexpr size_t kSize = 3 << 20;

  void SetUp() override {
    DeviceTest::SetUp();
    QueueLaunches();
    memory_ = Allocate<unsigned char>(kSize, &view_);
    std::memset(view_, 5, kSize);
  }
  orIpcLoan Lend(size_t offset, size_t size) {
    orIpcLoan loan{};
    EXPECT_OK(orIpcLend(&loan, memory_ + offset, size, nullptr));
    return loan;
  }
  bool IsLent(size_t offset, size_t size) {
    int lent = -1;
    EXPECT_OK(orIpcIsLent(&lent, memory_ + offset, size));
    return lent == 1;
  }
  unsigned char* Borrow(const orIpcLoan& loan) {
    void* pointer = nullptr;
    EXPECT_OK(orIpcBorrow(&pointer, &loan, nullptr));
    return static_cast<unsigned char*>(pointer);
  }
  unsigned char Read(const void* pointer) {
    unsigned char byte = 0;
    EXPECT_OK(orMemcpy(&byte, pointer, 1, orMemcpyDeviceToHost));
    return byte;
  }

  unsigned char* memory_ = nullptr;
  unsigned char* view_ = nullptr;
};

TEST_F(LoanTest, BothSidesSeeTheBytesAndTheLenderKnows) {
  view_[5000] = 11;
  EXPECT_FALSE(IsLent(0, kSize));
  const orIpcLoan loan = Lend(5000, 100);
  EXPECT_TRUE(IsLent(5000, 100));  // nobody has taken it yet
  EXPECT_FALSE(IsLent(0, 5000));
  EXPECT_FALSE(IsLent(5100, 100));
  PeerProcess peer;
  ASSERT_EQ(peer.Ask("borrow " + Hex(loan)), "ok 0");
  EXPECT_TRUE(IsLent(5000, 100));
  EXPECT_FALSE(IsLent(0, 5000));
  EXPECT_FALSE(IsLent(5100, 100));
  EXPECT_EQ(peer.Ask("read 0 0"), "11");
  EXPECT_EQ(peer.Ask("write 0 99 77"), "ok ");
  EXPECT_EQ(view_[5099], 77);
  EXPECT_EQ(peer.Ask("return 0"), "ok ");
  EXPECT_FALSE(IsLent(5000, 100));
  EXPECT_NE(peer.Ask("return 0").find("returned already"), std::string::npos);
}

TEST_F(LoanTest, ALoanIsGoodForOnce) {
  const orIpcLoan loan = Lend(0, 64);
  PeerProcess peer;
  ASSERT_EQ(peer.Ask("borrow " + Hex(loan)), "ok 0");
  EXPECT_NE(peer.Ask("borrow " + Hex(loan)).find("was borrowed already"), std::string::npos);
  PeerProcess other;
  EXPECT_NE(other.Ask("borrow " + Hex(loan)).find("was borrowed already"), std::string::npos);
}

TEST_F(LoanTest, BorrowingAgainGivesTheSamePointer) {
  PeerProcess peer;
  ASSERT_EQ(peer.Ask("new 10000 7"), "ok 0");
  unsigned char* first = Borrow(peer.Give<orIpcLoan>("lend 0 64 128"));
  unsigned char* again = Borrow(peer.Give<orIpcLoan>("lend 0 64 128"));
  unsigned char* beside = Borrow(peer.Give<orIpcLoan>("lend 0 192 128"));
  unsigned char* overlapping = Borrow(peer.Give<orIpcLoan>("lend 0 128 128"));
  EXPECT_EQ(first, again);
  EXPECT_NE(first, beside);
  orPointerAttributes attributes;
  ASSERT_OK(orPointerGetAttributes(&attributes, first + 127));
  EXPECT_EQ(attributes.base, first);
  EXPECT_EQ(attributes.size, 128u);
  EXPECT_EQ(attributes.imported, 1);
  EXPECT_FAILS(orIpcCloseMemHandle(first), orErrorInvalidDevicePointer, "not what orIpcOpen");
  ASSERT_OK(orIpcReturn(first, nullptr));
  EXPECT_EQ(peer.Ask("lent 0 10000"), "ok 1");
  EXPECT_EQ(Read(again), 7);
  ASSERT_OK(orIpcReturn(again, nullptr));
  ASSERT_OK(orIpcReturn(beside, nullptr));
  EXPECT_EQ(peer.Ask("lent 0 10000"), "ok 1");  // by what overlapped both
  EXPECT_EQ(Read(overlapping), 7);
  ASSERT_OK(orIpcReturn(overlapping, nullptr));
  EXPECT_EQ(peer.Ask("lent 0 10000"), "ok 0");
  EXPECT_FAILS(orIpcReturn(first, nullptr), orErrorInvalidDevicePointer, "returned already");
}

TEST_F(LoanTest, WhatIsBorrowedIsSeenInTheOrderOfStreams) {
  Gate gate;
  ASSERT_OK(gate.Launch(nullptr));
  ASSERT_OK(orMemsetAsync(memory_, 42, 16, nullptr));
  const orIpcLoan loan = Lend(0, 16);
  PeerProcess peer;
  ASSERT_EQ(peer.Ask("borrow " + Hex(loan)), "ok 0");
  ASSERT_EQ(peer.Ask("fill 0 43"), "ok ");  // queued behind the work here
  ASSERT_EQ(peer.Ask("return 0"), "ok ");   // and this behind that
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(view_[0], 5);
  EXPECT_TRUE(IsLent(0, 16));
  gate.Open();
  EXPECT_TRUE(Eventually([&] { return !IsLent(0, 16); }));
  EXPECT_EQ(Read(memory_), 43);
}

TEST_F(LoanTest, ABorrowerLendsOn) {
  PeerProcess first, second;
  ASSERT_EQ(first.Ask("borrow " + Hex(Lend(4096, 256))), "ok 0");
  const std::string loan = Hex(first.Give<orIpcLoan>("lend 0 128 64"));
  ASSERT_EQ(first.Ask("lent 0 256"), "ok 1");
  ASSERT_EQ(second.Ask("borrow " + loan), "ok 0");
  ASSERT_EQ(first.Ask("lent 0 256"), "ok 0");
  ASSERT_EQ(first.Ask("return 0"), "ok ");
  EXPECT_FALSE(IsLent(4096, 128));
  EXPECT_TRUE(IsLent(4096 + 128, 64));
  EXPECT_EQ(second.Ask("write 0 0 99"), "ok ");
  EXPECT_EQ(view_[4096 + 128], 99);
  second.Kill();
  EXPECT_FALSE(IsLent(0, kSize));
}

TEST_F(LoanTest, TheOwnerBorrowsItsOwn) {
  PeerProcess peer;
  ASSERT_EQ(peer.Ask("borrow " + Hex(Lend(4096, 256))), "ok 0");
  const auto loan = peer.Give<orIpcLoan>("lend 0 0 256");
  EXPECT_EQ(Borrow(loan), memory_ + 4096);
  EXPECT_EQ(peer.Ask("lent 0 256"), "ok 0");
  EXPECT_FAILS(orIpcReturn(memory_ + 4096, nullptr), orErrorInvalidDevicePointer, "not what");
  EXPECT_EQ(Borrow(Lend(64, 64)), memory_ + 64);
  EXPECT_FALSE(IsLent(0, 4096));
}

TEST_F(LoanTest, AKillEndsALoan) {
  PeerProcess peer;
  ASSERT_EQ(peer.Ask("borrow " + Hex(Lend(0, 64))), "ok 0");
  ASSERT_TRUE(IsLent(0, 64));
  const std::string forked = peer.Ask("fork");  // whose copies of the files count for nothing
  peer.Kill();
  EXPECT_TRUE(Eventually([&] { return !IsLent(0, 64); }));
  kill(std::stoi(forked.substr(3)), SIGKILL);
}

TEST_F(LoanTest, BorrowedMemoryOutlivesItsKilledLender) {
  PeerProcess peer;
  ASSERT_EQ(peer.Ask("new 100000 33"), "ok 0");
  unsigned char* pointer = Borrow(peer.Give<orIpcLoan>("lend 0 0 100000"));
  const auto untaken = peer.Give<orIpcLoan>("lend 0 0 100000");
  // What it has queued is not done.
  ASSERT_EQ(peer.Ask("gate"), "ok ");
  const auto late = peer.Give<orIpcLoan>("lend 0 64 64");
  void* other = Borrow(late);
  peer.Kill();
  EXPECT_FAILS(orStreamSynchronize(nullptr), orErrorProcessEnded, "ended before it had done");
  EXPECT_EQ(Read(pointer + 99999), 33);
  EXPECT_FAILS(orIpcBorrow(&other, &untaken, nullptr), orErrorProcessEnded,
               "that process has to live");
  EXPECT_EQ(other, nullptr);
  // And it can be lent on.
  PeerProcess next;
  orIpcLoan loan{};
  ASSERT_OK(orIpcLend(&loan, pointer, 100000, nullptr));
  ASSERT_EQ(next.Ask("borrow " + Hex(loan)), "ok 0");
  EXPECT_EQ(next.Ask("read 0 99999"), "33");
  EXPECT_OK(orIpcReturn(pointer, nullptr));
}

TEST_F(LoanTest, FreedMemoryIsKeptWhileItIsBorrowed) {
  size_t before = 0, now = 0, total = 0;
  PeerProcess peer;
  ASSERT_EQ(peer.Ask("borrow " + Hex(Lend(kSize - 8, 8))), "ok 0");
  const orIpcLoan untaken = Lend(0, 8);
  ASSERT_OK(orMemGetInfo(&before, &total));
  ASSERT_OK(orFree(memory_));
  ASSERT_OK(orMemGetInfo(&now, &total));
  EXPECT_EQ(now, before);
  EXPECT_EQ(peer.Ask("read 0 7"), "5");
  EXPECT_NE(peer.Ask("borrow " + Hex(untaken)).find("its memory was freed"), std::string::npos);
  ASSERT_EQ(peer.Ask("return 0"), "ok ");
  ASSERT_OK(orMemGetInfo(&now, &total));
  EXPECT_EQ(now, before + kSize);
}

TEST_F(LoanTest, LendingTheSameBytesOftenKeepsNothing) {
  PeerProcess peer;
  ASSERT_EQ(peer.Ask("new 10000 7"), "ok 0");
  for (int round = 0; round < 2000; ++round) {
    unsigned char* pointer = Borrow(peer.Give<orIpcLoan>("lend 0 0 64"));
    ASSERT_OK(orIpcReturn(pointer, nullptr));
  }
  EXPECT_EQ(peer.Ask("lent 0 64"), "ok 0");
}

TEST_F(LoanTest, WhatIsNoLoanIsRefused) {
  orIpcLoan loan{};
  void* pointer = nullptr;
  EXPECT_FAILS(orIpcBorrow(&pointer, &loan, nullptr), orErrorInvalidValue, "no loan");
  EXPECT_FAILS(orIpcBorrow(nullptr, &loan, nullptr), orErrorInvalidValue, "must not be null");
  EXPECT_FAILS(orIpcBorrow(&pointer, nullptr, nullptr), orErrorInvalidValue, "must not be null");
  EXPECT_FAILS(orIpcLend(nullptr, memory_, 1, nullptr), orErrorInvalidValue, "loan is null");
  EXPECT_FAILS(orIpcLend(&loan, memory_, kSize + 1, nullptr), orErrorInvalidDevicePointer,
               "no part of one live allocation");
  EXPECT_FAILS(orIpcLend(&loan, memory_, 0, nullptr), orErrorInvalidDevicePointer,
               "no part of one live allocation");
  EXPECT_FAILS(orIpcLend(&loan, &loan, 1, nullptr), orErrorInvalidDevicePointer,
               "no part of one live allocation");
  int lent = 0;
  EXPECT_FAILS(orIpcIsLent(nullptr, memory_, 1), orErrorInvalidValue, "lent is null");
  EXPECT_FAILS(orIpcIsLent(&lent, &lent, 1), orErrorInvalidDevicePointer, "no part of");

  // Every damaged byte is found: no process gets other bytes than those that were lent.
  PeerProcess peer;
  for (size_t index = 0; index < sizeof(loan.reserved); ++index) {
    if (index >= 56) {
      continue;  // bytes that mean nothing
    }
    for (const unsigned char damage : {0x55, 0x01}) {
      orIpcLoan damaged = Lend(0, 64);
      damaged.reserved[index] ^= damage;
      const std::string answer = peer.Ask("borrow " + Hex(damaged));
      EXPECT_EQ(answer.substr(0, 6), "error ") << index << ": " << answer;
    }
  }
  ASSERT_EQ(peer.Ask("borrow " + Hex(Lend(0, 64))).substr(0, 3), "ok ");
}

TEST_F(LoanTest, ACapturedStreamCanNeitherLendNorBorrow) {
  PeerProcess peer;
  ASSERT_EQ(peer.Ask("new 64 7"), "ok 0");
  orIpcLoan loan{};
  void* pointer = nullptr;
  for (const bool lends : {true, false}) {
    const orIpcLoan theirs = peer.Give<orIpcLoan>("lend 0 0 64");
    orStream_t stream = nullptr;
    ASSERT_OK(orStreamCreate(&stream));
    ASSERT_OK(orStreamBeginCapture(stream, orStreamCaptureModeGlobal));
    if (lends) {
      EXPECT_FAILS(orIpcLend(&loan, memory_, 64, stream), orErrorCaptureUnsupported,
                   "do it before or after the capture");
    } else {
      EXPECT_FAILS(orIpcBorrow(&pointer, &theirs, stream), orErrorCaptureUnsupported,
                   "do it before or after the capture");
    }
    orGraph_t graph = nullptr;
    EXPECT_FAILS(orStreamEndCapture(stream, &graph), orErrorCaptureInvalidated, "is captured");
    ASSERT_OK(orIpcBorrow(&pointer, &theirs, stream));  // the loan is as good as before
    ASSERT_OK(orIpcReturn(pointer, stream));
    ASSERT_OK(orStreamDestroy(stream));
  }
  EXPECT_FALSE(IsLent(0, kSize));
}

TEST_F(LoanTest, NothingIsReturnedOnACapturedStream) {
  PeerProcess peer;
  ASSERT_EQ(peer.Ask("new 64 7"), "ok 0");
  void* pointer = Borrow(peer.Give<orIpcLoan>("lend 0 0 64"));
  orStream_t stream = nullptr;
  ASSERT_OK(orStreamCreate(&stream));
  ASSERT_OK(orStreamBeginCapture(stream, orStreamCaptureModeGlobal));
  EXPECT_FAILS(orIpcReturn(pointer, stream), orErrorCaptureUnsupported,
               "do it before or after the capture");
  EXPECT_EQ(peer.Ask("lent 0 64"), "ok 1");
  orGraph_t graph = nullptr;
  EXPECT_FAILS(orStreamEndCapture(stream, &graph), orErrorCaptureInvalidated, "orIpcReturn");
  EXPECT_OK(orIpcReturn(pointer, stream));
  EXPECT_EQ(peer.Ask("lent 0 64"), "ok 0");
}

TEST_F(LoanTest, ReturnedLoansMakeRoomForMore) {
  // All slots but a few.
  std::vector<orEvent_t> events(Board::kSlots - 4);
  for (orEvent_t& event : events) {
    ASSERT_OK(orEventCreateWithFlags(&event, orEventInterprocess));
  }
  PeerProcess peer;
  for (int round = 0; round < 20; ++round) {
    const size_t offset = static_cast<size_t>(round) * 64;  // each time other bytes
    const std::string borrowed = peer.Ask("borrow " + Hex(Lend(offset, 64)));
    ASSERT_EQ(borrowed.substr(0, 3), "ok ") << borrowed;
    ASSERT_EQ(peer.Ask("return " + borrowed.substr(3)), "ok ");
  }
  // A slot that serves another loan by now is not given back with the one before.
  EXPECT_FALSE(IsLent(0, kSize));
  ASSERT_OK(orFree(memory_));
  memory_ = Allocate<unsigned char>(kSize, &view_);
  std::vector<orIpcLoan> loans;
  for (size_t index = 0; index < 4; ++index) {
    loans.push_back(Lend(index * 64, 64));
  }
  orIpcLoan one_more{};
  EXPECT_FAILS(orIpcLend(&one_more, memory_ + 1000, 64, nullptr), orErrorSystem, "exist already");
  for (const orIpcLoan& loan : loans) {
    EXPECT_EQ(peer.Ask("borrow " + Hex(loan)).substr(0, 3), "ok ");
  }
}

TEST_F(LoanTest, StreamsOfOtherDevicesAreRefused) {
  if (count_ == 1) {
    GTEST_SKIP() << "needs a stream of another device";
  }
  orStream_t stream = nullptr;
  ASSERT_OK(orGetDefaultStream(&stream, other()));
  orIpcLoan loan{};
  EXPECT_FAILS(orIpcLend(&loan, memory_, 1, stream), orErrorInvalidDevice, "the stream on");
}

}  // namespace
}  // namespace openreg::device
