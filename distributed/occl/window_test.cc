// SPDX-License-Identifier: BSD-3-Clause
//
// Tests windows. All ranks are in this process, each with its own memory, window and stream.
#include "distributed/occl/window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace openreg::occl {
namespace {

#define ASSERT_DEVICE(call) ASSERT_EQ(call, orSuccess) << orGetLastErrorDetail()
#define EXPECT_DEVICE(call) EXPECT_EQ(call, orSuccess) << orGetLastErrorDetail()
#define ASSERT_OCCL(call) ASSERT_EQ(call, occlSuccess) << occlGetLastError()
#define EXPECT_OCCL(call) EXPECT_EQ(call, occlSuccess) << occlGetLastError()

constexpr size_t kBuffer = 4096;
constexpr size_t kPad = 1024;
constexpr size_t kPiece = kBuffer + kPad + OCCL_WINDOW_STATE_BYTES;

class WindowTest : public testing::TestWithParam<int> {
 protected:
  struct Rank {
    void* memory = nullptr;
    orStream_t stream = nullptr;
    occlWindow_t window = nullptr;
  };

  void SetUp() override { Make(GetParam(), /*timeout_ms=*/20'000); }

  void Make(int ranks, int64_t timeout_ms) {
    int devices = 0;
    ASSERT_DEVICE(orGetDeviceCount(&devices));
    ranks_.resize(static_cast<size_t>(ranks));
    std::vector<occlWindowMember> members(ranks_.size());
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      ASSERT_DEVICE(orSetDevice(static_cast<int>(rank) % devices));
      ASSERT_DEVICE(orMalloc(&ranks_[rank].memory, kPiece));
      ASSERT_DEVICE(orMemset(ranks_[rank].memory, 0, kPiece));
      ASSERT_DEVICE(orStreamCreate(&ranks_[rank].stream));
      ASSERT_OCCL(occlGetProcess(&members[rank].process));
      auto* const start = static_cast<char*>(ranks_[rank].memory);
      members[rank].buffer = start;
      members[rank].signal_pad = start + kBuffer;
      members[rank].state = start + kBuffer + kPad;
    }
    const occlWindowConfig_t config{kBuffer, kPad, timeout_ms};
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      ASSERT_OCCL(occlWindowCreate(&ranks_[rank].window, ranks, static_cast<int>(rank),
                                   members.data(), &config));
    }
  }

  void TearDown() override {
    for (const Rank& rank : ranks_) {
      (void)orStreamSynchronize(rank.stream);
      EXPECT_OCCL(occlWindowDestroy(rank.window));
    }
    for (const Rank& rank : ranks_) {
      EXPECT_DEVICE(orStreamDestroy(rank.stream));
      EXPECT_DEVICE(orFree(rank.memory));
    }
  }

  int ranks() const { return static_cast<int>(ranks_.size()); }
  void Write(int rank, const std::vector<float>& values) {
    EXPECT_DEVICE(orMemcpy(ranks_[static_cast<size_t>(rank)].memory, values.data(),
                           values.size() * sizeof(float), orMemcpyHostToDevice));
  }
  template <class T = float>
  std::vector<T> Read(const void* from, size_t count) {
    std::vector<T> values(count);
    EXPECT_DEVICE(orMemcpy(values.data(), from, count * sizeof(T), orMemcpyDeviceToHost));
    return values;
  }
  void Synchronize() {
    for (const Rank& rank : ranks_) {
      EXPECT_DEVICE(orStreamSynchronize(rank.stream));
    }
  }
  std::string Failure(int rank) {
    EXPECT_EQ(orStreamSynchronize(ranks_[static_cast<size_t>(rank)].stream), orErrorLaunchFailure);
    return orGetLastErrorDetail();
  }
  void ExpectPadsAreZero() {
    for (const Rank& rank : ranks_) {
      const auto words = Read<uint32_t>(static_cast<char*>(rank.memory) + kBuffer, kPad / 4);
      EXPECT_EQ(std::count(words.begin(), words.end(), 0), static_cast<ptrdiff_t>(words.size()));
    }
  }

  std::vector<Rank> ranks_;
};

INSTANTIATE_TEST_SUITE_P(Ranks, WindowTest, testing::Values(1, 2, 4));

TEST_P(WindowTest, BarriersAndSignals) {
  for (int round = 0; round < 100; ++round) {
    for (const Rank& rank : ranks_) {
      ASSERT_OCCL(occlWindowBarrier(rank.window, round % 3, 0, rank.stream));
    }
  }
  for (int rank = 0; rank < ranks(); ++rank) {
    const Rank& mine = ranks_[static_cast<size_t>(rank)];
    // Signal twice, because the second signal must wait until the first one has been consumed.
    for (int round = 0; round < 2; ++round) {
      ASSERT_OCCL(occlWindowPutSignal(mine.window, (rank + 1) % ranks(), 5, 0, mine.stream));
      ASSERT_OCCL(
          occlWindowWaitSignal(mine.window, (rank + ranks() - 1) % ranks(), 5, 0, mine.stream));
    }
  }
  Synchronize();
  ExpectPadsAreZero();
}

TEST_P(WindowTest, AllReduces) {
  constexpr size_t kCount = 100;
  std::vector<float> expected(kCount);
  for (int rank = 0; rank < ranks(); ++rank) {
    std::vector<float> values(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      values[i] = static_cast<float>(i) + 1000.0F * static_cast<float>(rank);
      expected[i] += values[i];
    }
    Write(rank, values);
  }
  constexpr size_t kOutput = 2048;  // a part of the buffer that no other rank reads
  for (int round = 0; round < 3; ++round) {
    for (const Rank& rank : ranks_) {
      void* const output = static_cast<char*>(rank.memory) + kOutput;
      if (round == 0) {
        ASSERT_OCCL(occlWindowAllReduceOneShot(rank.window, 0, kCount, occlFloat32, occlSum,
                                               nullptr, output, rank.stream));
      } else {
        ASSERT_OCCL(occlWindowAllReduceTwoShot(rank.window, 0, kCount, occlFloat32, occlSum,
                                               round == 1 ? output : nullptr, rank.stream));
      }
    }
    Synchronize();
    for (int rank = 0; rank < ranks(); ++rank) {
      const auto* const start = static_cast<char*>(ranks_[static_cast<size_t>(rank)].memory);
      EXPECT_EQ(Read(start + (round == 2 ? 0 : kOutput), kCount), expected);
      if (round == 1) {  // restore the input for the next round
        std::vector<float> values(kCount);
        for (size_t i = 0; i < kCount; ++i) {
          values[i] = static_cast<float>(i) + 1000.0F * static_cast<float>(rank);
        }
        Write(rank, values);
      }
    }
  }
  ExpectPadsAreZero();
}

TEST_P(WindowTest, InvalidArgumentsAreRejected) {
  const Rank& rank = ranks_[0];
  EXPECT_EQ(occlWindowBarrier(nullptr, 0, 0, rank.stream), occlInvalidArgument);
  EXPECT_EQ(occlWindowBarrier(rank.window, -1, 0, rank.stream), occlInvalidArgument);
  EXPECT_EQ(occlWindowBarrier(rank.window, static_cast<int>(kPad / 4) / ranks(), 0, rank.stream),
            occlInvalidArgument);
  EXPECT_EQ(occlWindowPutSignal(rank.window, ranks(), 0, 0, rank.stream), occlInvalidArgument);
  EXPECT_EQ(occlWindowAllReduceTwoShot(rank.window, 8, kBuffer / 4, occlFloat32, occlSum, nullptr,
                                       rank.stream),
            occlInvalidArgument);
  EXPECT_EQ(occlWindowAllReduceTwoShot(rank.window, 8, SIZE_MAX, occlFloat32, occlSum, nullptr,
                                       rank.stream),
            occlInvalidArgument);
  EXPECT_EQ(occlWindowReduceScatter(rank.window, 0, SIZE_MAX, SIZE_MAX, occlFloat32, occlSum,
                                    rank.memory, rank.stream),
            occlInvalidArgument);
  int on_host = 0;
  EXPECT_EQ(occlWindowAllReduceOneShot(rank.window, 0, 1, occlFloat32, occlSum, nullptr, &on_host,
                                       rank.stream),
            occlInvalidArgument);
  EXPECT_DEVICE(orStreamSynchronize(rank.stream));
}

class WindowFaultTest : public WindowTest {
 protected:
  void SetUp() override { Make(2, /*timeout_ms=*/200); }
};

TEST_F(WindowFaultTest, ALateRankEndsTheWindowOfAllRanks) {
  ASSERT_OCCL(occlWindowBarrier(ranks_[0].window, 2, 0, ranks_[0].stream));
  EXPECT_NE(Failure(0).find("rank 0 received no signal from rank 1 on channel 2 within 200 ms"),
            std::string::npos);
  ASSERT_OCCL(occlWindowBarrier(ranks_[1].window, 2, 0, ranks_[1].stream));
  EXPECT_NE(Failure(1).find("rank 0 reported: rank 0 received no signal"), std::string::npos);
}

TEST_F(WindowFaultTest, DifferentOperationsAreReported) {
  for (size_t rank = 0; rank < 2; ++rank) {
    ASSERT_OCCL(occlWindowAllReduceTwoShot(ranks_[rank].window, 0, 4 + rank, occlFloat32, occlSum,
                                           nullptr, ranks_[rank].stream));
  }
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_NE(
        Failure(rank).find("rank 0 called two-shot all-reduce of float32[4] at byte 0, but rank 1 "
                           "called two-shot all-reduce of float32[5] at byte 0"),
        std::string::npos);
  }
}

TEST_F(WindowFaultTest, IsNotDestroyedWhileAnOperationRuns) {
  ASSERT_OCCL(occlWindowBarrier(ranks_[0].window, 0, 0, ranks_[0].stream));
  occlResult_t result = occlWindowDestroy(nullptr);
  EXPECT_EQ(result, occlSuccess);
  // The kernel may not have started yet. If so, it now starts to wait, and fails only after 200 ms.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  result = occlWindowDestroy(ranks_[0].window);
  EXPECT_EQ(result, occlInProgress);
  ASSERT_OCCL(occlWindowBarrier(ranks_[1].window, 0, 0, ranks_[1].stream));
  Synchronize();
}

}  // namespace
}  // namespace openreg::occl
