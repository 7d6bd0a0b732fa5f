// SPDX-License-Identifier: BSD-3-Clause
//
// Tests occl. The ranks are threads of this process, each with its own stream.
#include "distributed/occl/occl.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "runtime/device/openreg_emulation.h"

namespace openreg::occl {
namespace {

#define ASSERT_DEVICE(call) ASSERT_EQ(call, orSuccess) << orGetLastErrorDetail()
#define EXPECT_DEVICE(call) EXPECT_EQ(call, orSuccess) << orGetLastErrorDetail()
#define ASSERT_OCCL(call) ASSERT_EQ(call, occlSuccess) << occlGetLastError()
#define EXPECT_OCCL(call) EXPECT_EQ(call, occlSuccess) << occlGetLastError()

// One rank, on its own thread.
struct Rank {
  int rank;
  int ranks;
  occlComm_t comm = nullptr;
  orStream_t stream = nullptr;

  orError_t Synchronize() const { return orStreamSynchronize(stream); }
};

// Runs a function as each of `ranks` ranks.
void WithRanks(int ranks, const std::function<void(Rank&)>& function, int64_t timeout_ms = 20'000,
               const int* labels = nullptr) {
  occlUniqueId id;
  ASSERT_OCCL(occlGetUniqueId(&id));
  int devices = 0;
  ASSERT_DEVICE(orGetDeviceCount(&devices));
  std::vector<std::thread> threads;
  for (int index = 0; index < ranks; ++index) {
    threads.emplace_back([&, index] {
      Rank rank{index, ranks};
      ASSERT_DEVICE(orSetDevice(index % devices));
      ASSERT_DEVICE(orStreamCreate(&rank.stream));
      const occlConfig_t config{timeout_ms, labels};
      ASSERT_OCCL(occlCommInitRankConfig(&rank.comm, ranks, id, index, &config));
      function(rank);
      EXPECT_OCCL(occlCommDestroy(rank.comm));
      EXPECT_DEVICE(orStreamDestroy(rank.stream));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// A buffer in device memory, filled with values.
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t count) : count_(count) {
    EXPECT_DEVICE(orMalloc(&memory_, std::max<size_t>(count * sizeof(T), 1)));
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    EXPECT_DEVICE(orMemcpy(memory_, values.data(), count_ * sizeof(T), orMemcpyHostToDevice));
  }
  ~Buffer() { EXPECT_DEVICE(orFree(memory_)); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() const { return static_cast<T*>(memory_); }
  std::vector<T> values() const {
    std::vector<T> values(count_);
    EXPECT_DEVICE(orMemcpy(values.data(), memory_, count_ * sizeof(T), orMemcpyDeviceToHost));
    return values;
  }

 private:
  size_t count_;
  void* memory_ = nullptr;
};

// Returns the input value of a rank at `index`. The values differ between ranks.
int32_t Value(int rank, size_t index) {
  return static_cast<int32_t>(index % 1000) + 1000 * (rank + 1);
}
std::vector<int32_t> Values(int rank, size_t count) {
  std::vector<int32_t> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = Value(rank, i);
  }
  return values;
}

// The parameters are the number of ranks and the number of elements. Some element counts fit into a
// slot, some are at its limit, and some are above it and use device memory.
class CollectiveTest : public testing::TestWithParam<std::tuple<int, size_t>> {
 protected:
  void Run(const std::function<void(Rank&, size_t)>& function) {
    const auto [ranks, count] = GetParam();
    WithRanks(ranks, [&, count = count](Rank& rank) { function(rank, count); });
  }
};

INSTANTIATE_TEST_SUITE_P(Sizes, CollectiveTest,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::Values(0, 1, 7, 5461, 16384, 16385, 100'003)));
// Messages that are so large that their copies bypass the cache (streaming_copy.h).
INSTANTIATE_TEST_SUITE_P(Large, CollectiveTest,
                         testing::Combine(testing::Values(2), testing::Values(4'200'001)));

TEST_P(CollectiveTest, AllReduce) {
  Run([](Rank& rank, size_t count) {
    Buffer<int32_t> send(Values(rank.rank, count)), receive(count);
    for (int round = 0; round < 3; ++round) {
      EXPECT_OCCL(occlAllReduce(send.data(), receive.data(), count, occlInt32, occlSum, rank.comm,
                                rank.stream));
    }
    EXPECT_OCCL(
        occlAllReduce(send.data(), send.data(), count, occlInt32, occlSum, rank.comm, rank.stream));
    EXPECT_DEVICE(rank.Synchronize());
    std::vector<int32_t> expected(count, 0);
    for (int other = 0; other < rank.ranks; ++other) {
      for (size_t i = 0; i < count; ++i) {
        expected[i] += Value(other, i);
      }
    }
    EXPECT_EQ(receive.values(), expected);
    EXPECT_EQ(send.values(), expected);
  });
}

TEST_P(CollectiveTest, BroadcastAndReduce) {
  Run([](Rank& rank, size_t count) {
    const int root = rank.ranks - 1;
    Buffer<int32_t> send(Values(rank.rank, count)), copy(count), sum(count);
    EXPECT_OCCL(
        occlBroadcast(send.data(), copy.data(), count, occlInt32, root, rank.comm, rank.stream));
    EXPECT_OCCL(occlReduce(send.data(), sum.data(), count, occlInt32, occlMax, root, rank.comm,
                           rank.stream));
    EXPECT_DEVICE(rank.Synchronize());
    EXPECT_EQ(copy.values(), Values(root, count));
    if (rank.rank == root) {
      EXPECT_EQ(sum.values(), Values(root, count));
    }
  });
}

TEST_P(CollectiveTest, AllGatherAndReduceScatter) {
  Run([](Rank& rank, size_t count) {
    const auto all = static_cast<size_t>(rank.ranks);
    Buffer<int32_t> send(Values(rank.rank, count)), gathered(count * all), mine(count);
    EXPECT_OCCL(
        occlAllGather(send.data(), gathered.data(), count, occlInt32, rank.comm, rank.stream));
    EXPECT_OCCL(occlReduceScatter(gathered.data(), mine.data(), count, occlInt32, occlSum,
                                  rank.comm, rank.stream));
    EXPECT_DEVICE(rank.Synchronize());
    std::vector<int32_t> expected;
    for (int other = 0; other < rank.ranks; ++other) {
      const std::vector<int32_t> part = Values(other, count);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    EXPECT_EQ(gathered.values(), expected);
    std::vector<int32_t> sums = Values(rank.rank, count);
    for (int32_t& sum : sums) {
      sum *= rank.ranks;
    }
    EXPECT_EQ(mine.values(), sums);
  });
}

TEST_P(CollectiveTest, AllToAllGatherAndScatter) {
  Run([](Rank& rank, size_t count) {
    const auto all = static_cast<size_t>(rank.ranks);
    Buffer<int32_t> send(Values(rank.rank, count * all)), receive(count * all);
    Buffer<int32_t> gathered(count * all), back(count);
    EXPECT_OCCL(
        occlAllToAll(send.data(), receive.data(), count, occlInt32, rank.comm, rank.stream));
    EXPECT_OCCL(
        occlGather(send.data(), gathered.data(), count, occlInt32, 0, rank.comm, rank.stream));
    EXPECT_OCCL(
        occlScatter(gathered.data(), back.data(), count, occlInt32, 0, rank.comm, rank.stream));
    EXPECT_DEVICE(rank.Synchronize());
    const std::vector<int32_t> received = receive.values();
    for (int other = 0; other < rank.ranks; ++other) {
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(received[static_cast<size_t>(other) * count + i],
                  Value(other, static_cast<size_t>(rank.rank) * count + i));
      }
    }
    EXPECT_EQ(back.values(), Values(rank.rank, count));
  });
}

TEST(OcclTest, ResultsAreBitwiseEqual) {
  constexpr size_t kCount = 70'001;
  std::vector<std::vector<float>> results(4);
  WithRanks(4, [&](Rank& rank) {
    std::vector<float> values(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      values[i] = 1.0F / static_cast<float>(i + 3 + static_cast<size_t>(rank.rank) * 7919);
    }
    Buffer<float> buffer(values);
    EXPECT_OCCL(occlAllReduce(buffer.data(), buffer.data(), kCount, occlFloat32, occlSum, rank.comm,
                              rank.stream));
    EXPECT_DEVICE(rank.Synchronize());
    results[static_cast<size_t>(rank.rank)] = buffer.values();
  });
  for (const std::vector<float>& result : results) {
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(result[i]), std::bit_cast<uint32_t>(results[0][i]));
    }
  }
}

TEST(OcclTest, SumOfScaledValues) {
  WithRanks(3, [](Rank& rank) {
    Buffer<double> buffer(std::vector<double>(5, 2.0));
    const double scalar = 0.5 * (rank.rank + 1);
    occlRedOp_t op;
    ASSERT_OCCL(occlRedOpCreatePreMulSum(&op, &scalar, occlFloat64, rank.comm));
    EXPECT_OCCL(
        occlAllReduce(buffer.data(), buffer.data(), 5, occlFloat64, op, rank.comm, rank.stream));
    EXPECT_EQ(
        occlAllReduce(buffer.data(), buffer.data(), 5, occlFloat32, op, rank.comm, rank.stream),
        occlInvalidArgument);
    EXPECT_DEVICE(rank.Synchronize());
    EXPECT_EQ(buffer.values(), std::vector<double>(5, 2.0 * (0.5 + 1.0 + 1.5)));
    EXPECT_OCCL(occlRedOpDestroy(op, rank.comm));
  });
}

TEST(OcclTest, DifferentOperationsAreReported) {
  std::atomic<int> reported{0};
  WithRanks(2, [&](Rank& rank) {
    Buffer<float> buffer(8);
    if (rank.rank == 0) {
      EXPECT_OCCL(
          occlBroadcast(buffer.data(), buffer.data(), 8, occlFloat32, 0, rank.comm, rank.stream));
    } else {
      EXPECT_OCCL(occlAllReduce(buffer.data(), buffer.data(), 4, occlFloat32, occlSum, rank.comm,
                                rank.stream));
    }
    EXPECT_NE(rank.Synchronize(), orSuccess);
    const std::string text = orGetLastErrorDetail();
    if (text.find("rank 0 called broadcast of float32[8], root 0, but rank 1 called all-reduce of "
                  "float32[4], sum") != std::string::npos) {
      ++reported;
    } else {
      ADD_FAILURE() << text;
    }
    occlResult_t error = occlSuccess;
    EXPECT_OCCL(occlCommGetAsyncError(rank.comm, &error, nullptr));
    EXPECT_EQ(error, occlInvalidUsage);
    EXPECT_EQ(occlBarrier(rank.comm, rank.stream), occlInvalidUsage) << "it is over";
  });
  EXPECT_EQ(reported, 2);
}

TEST(OcclTest, ALateRankIsAnError) {
  WithRanks(
      3,
      [](Rank& rank) {
        if (rank.rank == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(400));
          return;
        }
        EXPECT_OCCL(occlBarrier(rank.comm, rank.stream));
        EXPECT_NE(rank.Synchronize(), orSuccess);
        EXPECT_NE(std::string(orGetLastErrorDetail()).find("rank 1 did not reach the barrier"),
                  std::string::npos)
            << orGetLastErrorDetail();
      },
      100);
}

TEST(OcclTest, ADestroyedCommunicatorIsAnError) {
  WithRanks(2, [](Rank& rank) {
    if (rank.rank == 0) {
      return;  // when this function returns, the communicator is destroyed
    }
    EXPECT_OCCL(occlBarrier(rank.comm, rank.stream));
    EXPECT_NE(rank.Synchronize(), orSuccess);
    EXPECT_NE(std::string(orGetLastErrorDetail()).find("rank 0 has destroyed its communicator"),
              std::string::npos)
        << orGetLastErrorDetail();
  });
}

TEST(OcclTest, AnAbortEndsTheWaitsOfAllRanks) {
  WithRanks(3, [](Rank& rank) {
    if (rank.rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      EXPECT_OCCL(occlCommAbort(rank.comm));
      return;
    }
    EXPECT_OCCL(occlBarrier(rank.comm, rank.stream));
    EXPECT_NE(rank.Synchronize(), orSuccess);
    occlResult_t error = occlSuccess;
    EXPECT_OCCL(occlCommGetAsyncError(rank.comm, &error, nullptr));
    EXPECT_EQ(error, occlAborted);
  });
}

TEST(OcclTest, TheReasonOfAnAbortUsesTheLabelsOfRanks) {
  constexpr int kLabels[] = {5, 9};
  WithRanks(
      2,
      [](Rank& rank) {
        if (rank.rank == 1) {
          EXPECT_OCCL(occlCommAbortWithReason(rank.comm, "the network is down"));
          return;
        }
        (void)occlBarrier(rank.comm, rank.stream);
        (void)rank.Synchronize();
        const char* text = nullptr;
        occlResult_t error = occlSuccess;
        EXPECT_OCCL(occlCommGetAsyncError(rank.comm, &error, &text));
        EXPECT_EQ(std::string(text), "rank 9 reported: the network is down");
      },
      20'000, kLabels);
}

TEST(OcclTest, RanksSendInARing) {
  for (const size_t count : {size_t{3}, size_t{200'000}}) {
    WithRanks(4, [=](Rank& rank) {
      const int next = (rank.rank + 1) % rank.ranks, before = (rank.rank + 3) % rank.ranks;
      Buffer<int32_t> send(Values(rank.rank, count)), receive(count);
      EXPECT_OCCL(occlGroupStart());
      EXPECT_OCCL(occlSend(send.data(), count, occlInt32, next, 0, rank.comm, rank.stream));
      EXPECT_OCCL(
          occlRecv(receive.data(), count, occlInt32, before, 0, rank.comm, rank.stream, nullptr));
      EXPECT_OCCL(occlGroupEnd());
      EXPECT_DEVICE(rank.Synchronize());
      EXPECT_EQ(receive.values(), Values(before, count));
    });
  }
}

TEST(OcclTest, MessagesAreMatchedByTagAndOrder) {
  constexpr int kMessages = 20;  // more messages than there are mailboxes
  WithRanks(2, [](Rank& rank) {
    std::vector<std::unique_ptr<Buffer<int32_t>>> buffers;
    EXPECT_OCCL(occlGroupStart());
    for (int i = 0; i < kMessages; ++i) {
      buffers.push_back(std::make_unique<Buffer<int32_t>>(std::vector<int32_t>(2, i)));
      const int tag = i % 3;
      if (rank.rank == 0) {
        EXPECT_OCCL(occlSend(buffers.back()->data(), 2, occlInt32, 1, tag, rank.comm, rank.stream));
      } else {
        EXPECT_OCCL(occlRecv(buffers.back()->data(), 2, occlInt32, 0, 2 - tag, rank.comm,
                             rank.stream, nullptr));
      }
    }
    // At this point, rank 0 has sent seven messages each with tags 0 and 1, and six with tag 2.
    // Rank 1 has posted seven receives each for tags 2 and 1, and six for tag 0. Add the two
    // missing calls.
    if (rank.rank == 0) {
      buffers.push_back(std::make_unique<Buffer<int32_t>>(std::vector<int32_t>(2, 20)));
      EXPECT_OCCL(occlSend(buffers.back()->data(), 2, occlInt32, 1, 2, rank.comm, rank.stream));
    } else {
      buffers.push_back(std::make_unique<Buffer<int32_t>>(size_t{2}));
      EXPECT_OCCL(
          occlRecv(buffers.back()->data(), 2, occlInt32, 0, 0, rank.comm, rank.stream, nullptr));
    }
    EXPECT_OCCL(occlGroupEnd());
    EXPECT_DEVICE(rank.Synchronize());
    if (rank.rank == 1) {
      for (int i = 0; i <= kMessages; ++i) {
        const int tag = 2 - i % 3;
        const int expected = i / 3 * 3 + tag;  // the message with the same tag and the same index
        EXPECT_EQ(buffers[static_cast<size_t>(i)]->values()[0], expected) << i;
      }
    }
  });
}

TEST(OcclTest, AReceiveFromAnyRank) {
  WithRanks(3, [](Rank& rank) {
    Buffer<int32_t> buffer(Values(rank.rank, 10));
    if (rank.rank != 0) {
      EXPECT_OCCL(occlSend(buffer.data(), 10, occlInt32, 0, 5, rank.comm, rank.stream));
      EXPECT_DEVICE(rank.Synchronize());
      return;
    }
    int sum = 0;
    for (int i = 0; i < 2; ++i) {
      int source = -1;
      EXPECT_OCCL(
          occlRecv(buffer.data(), 10, occlInt32, occlAnyRank, 5, rank.comm, rank.stream, &source));
      EXPECT_DEVICE(rank.Synchronize());
      EXPECT_EQ(buffer.values(), Values(source, 10));
      sum += source;
    }
    EXPECT_EQ(sum, 3);
  });
}

TEST(OcclTest, AMessageOfAnotherSizeIsReported) {
  WithRanks(2, [](Rank& rank) {
    Buffer<int32_t> buffer(10);
    if (rank.rank == 0) {
      EXPECT_OCCL(occlSend(buffer.data(), 10, occlInt32, 1, 0, rank.comm, rank.stream));
    } else {
      EXPECT_OCCL(occlRecv(buffer.data(), 9, occlInt32, 0, 0, rank.comm, rank.stream, nullptr));
    }
    EXPECT_NE(rank.Synchronize(), orSuccess);
    EXPECT_NE(std::string(orGetLastErrorDetail())
                  .find("rank 0 sends int32[10] with tag 0, but rank 1 receives int32[9]"),
              std::string::npos)
        << orGetLastErrorDetail();
  });
}

TEST(OcclTest, SplitCommunicators) {
  WithRanks(4, [](Rank& rank) {
    occlComm_t half = nullptr;
    // Split into odd and even ranks, in reverse order.
    ASSERT_OCCL(occlCommSplit(rank.comm, rank.rank % 2, -rank.rank, &half, nullptr));
    int ranks = 0, mine = -1;
    EXPECT_OCCL(occlCommCount(half, &ranks));
    EXPECT_OCCL(occlCommUserRank(half, &mine));
    EXPECT_EQ(ranks, 2);
    EXPECT_EQ(mine, rank.rank < 2 ? 1 : 0);
    Buffer<int32_t> buffer(std::vector<int32_t>{rank.rank});
    EXPECT_OCCL(
        occlAllReduce(buffer.data(), buffer.data(), 1, occlInt32, occlSum, half, rank.stream));
    EXPECT_DEVICE(rank.Synchronize());
    EXPECT_EQ(buffer.values()[0], rank.rank % 2 == 0 ? 2 : 4);
    EXPECT_OCCL(occlCommDestroy(half));
    occlComm_t none = nullptr;
    EXPECT_OCCL(occlCommSplit(rank.comm, occlSplitNoColor, 0, &none, nullptr));
    EXPECT_EQ(none, nullptr);
  });
}

TEST(OcclTest, CapturedCollectives) {
  for (const size_t count : {size_t{4}, size_t{50'000}}) {
    WithRanks(2, [=](Rank& rank) {
      Buffer<int32_t> buffer(std::vector<int32_t>(count, 1));
      ASSERT_DEVICE(orStreamBeginCapture(rank.stream, orStreamCaptureModeThreadLocal));
      EXPECT_OCCL(occlAllReduce(buffer.data(), buffer.data(), count, occlInt32, occlSum, rank.comm,
                                rank.stream));
      orGraph_t graph = nullptr;
      ASSERT_DEVICE(orStreamEndCapture(rank.stream, &graph));
      for (int replay = 0; replay < 3; ++replay) {
        EXPECT_DEVICE(orGraphLaunch(graph, rank.stream));
      }
      EXPECT_DEVICE(rank.Synchronize());
      EXPECT_EQ(buffer.values(), std::vector<int32_t>(count, 8));
      EXPECT_DEVICE(orGraphDestroy(graph));
    });
  }
}

TEST(OcclTest, SuspendReleasesMemoryUntilResume) {
  WithRanks(3, [](Rank& rank) {
    for (const size_t count : {size_t{1000}, size_t{50'000}}) {  // use slots, then devices
      const auto expect_sum = [&] {
        Buffer<int32_t> buffer(std::vector<int32_t>(count, rank.rank));
        EXPECT_OCCL(occlAllReduce(buffer.data(), buffer.data(), count, occlInt32, occlSum,
                                  rank.comm, rank.stream));
        EXPECT_DEVICE(rank.Synchronize());
        EXPECT_EQ(buffer.values(), std::vector<int32_t>(count, 3));
      };
      expect_sum();
      occlMemoryStats_t before{}, during{}, after{};
      EXPECT_OCCL(occlCommMemoryStats(rank.comm, &before));
      EXPECT_GT(before.persistent, 0);
      EXPECT_GT(before.suspendable, 0);
      EXPECT_GT(before.mapped, 0);
      EXPECT_EQ(before.suspended, 0);
      EXPECT_OCCL(occlCommSuspend(rank.comm));
      EXPECT_OCCL(occlCommMemoryStats(rank.comm, &during));
      EXPECT_EQ(during.suspendable, 0);
      EXPECT_EQ(during.mapped, 0);
      EXPECT_EQ(during.suspended, 1);
      EXPECT_EQ(occlBarrier(rank.comm, rank.stream), occlInvalidUsage);
      EXPECT_NE(std::string(occlGetLastError()).find("call occlCommResume first"),
                std::string::npos);
      occlComm_t split = nullptr;
      EXPECT_EQ(occlCommSplit(rank.comm, 0, 0, &split, nullptr), occlInvalidUsage);
      EXPECT_EQ(occlCommSuspend(rank.comm), occlInvalidUsage);
      EXPECT_OCCL(occlCommResume(rank.comm));
      EXPECT_EQ(occlCommResume(rank.comm), occlInvalidUsage);
      expect_sum();
      EXPECT_OCCL(occlCommMemoryStats(rank.comm, &after));
      EXPECT_EQ(after.mapped, before.mapped);
    }
  });
}

TEST(OcclTest, SuspendWaitsForEnqueuedOperationsOfAllRanks) {
  WithRanks(2, [](Rank& rank) {
    constexpr size_t kCount = 50'000;
    Buffer<int32_t> buffer(std::vector<int32_t>(kCount, 1));
    for (int i = 0; i < 10; ++i) {
      EXPECT_OCCL(occlAllReduce(buffer.data(), buffer.data(), kCount, occlInt32, occlSum, rank.comm,
                                rank.stream));
    }
    if (rank.rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    EXPECT_OCCL(occlCommSuspend(rank.comm));
    EXPECT_DEVICE(rank.Synchronize());
    EXPECT_EQ(buffer.values(), std::vector<int32_t>(kCount, 1 << 10));
  });
}

TEST(OcclTest, AReplayOfASuspendedCommunicatorIsAnError) {
  WithRanks(2, [](Rank& rank) {
    Buffer<int32_t> buffer(std::vector<int32_t>(50'000, 1));
    ASSERT_DEVICE(orStreamBeginCapture(rank.stream, orStreamCaptureModeThreadLocal));
    EXPECT_OCCL(occlAllReduce(buffer.data(), buffer.data(), 50'000, occlInt32, occlSum, rank.comm,
                              rank.stream));
    orGraph_t graph = nullptr;
    ASSERT_DEVICE(orStreamEndCapture(rank.stream, &graph));
    EXPECT_OCCL(occlCommSuspend(rank.comm));
    EXPECT_DEVICE(orGraphLaunch(graph, rank.stream));
    EXPECT_NE(rank.Synchronize(), orSuccess);
    EXPECT_NE(std::string(orGetLastErrorDetail()).find("the communicator is suspended"),
              std::string::npos)
        << orGetLastErrorDetail();
    EXPECT_DEVICE(orGraphDestroy(graph));
  });
}

TEST(OcclTest, ASuspendThatMeetsAnotherOperationIsReported) {
  WithRanks(2, [](Rank& rank) {
    if (rank.rank == 0) {
      EXPECT_EQ(occlCommSuspend(rank.comm), occlInvalidUsage);
      EXPECT_NE(std::string(occlGetLastError()).find("rank 0 called suspend"), std::string::npos)
          << occlGetLastError();
      return;
    }
    EXPECT_OCCL(occlBarrier(rank.comm, rank.stream));
    EXPECT_NE(rank.Synchronize(), orSuccess);
  });
}

TEST(OcclTest, OperationsOfSeveralStreamsKeepTheirOrder) {
  WithRanks(2, [](Rank& rank) {
    orStream_t second = nullptr;
    ASSERT_DEVICE(orStreamCreate(&second));
    Buffer<int32_t> first(std::vector<int32_t>(100'000, 1)), other(std::vector<int32_t>(10, 1));
    for (int i = 0; i < 20; ++i) {
      EXPECT_OCCL(occlAllReduce(first.data(), first.data(), 100'000, occlInt32, occlMax, rank.comm,
                                rank.stream));
      EXPECT_OCCL(
          occlAllReduce(other.data(), other.data(), 10, occlInt32, occlMin, rank.comm, second));
    }
    EXPECT_DEVICE(rank.Synchronize());
    EXPECT_DEVICE(orStreamSynchronize(second));
    EXPECT_DEVICE(orStreamDestroy(second));
  });
}

TEST(OcclTest, InvalidArguments) {
  occlUniqueId id{};
  occlComm_t comm = nullptr;
  EXPECT_EQ(occlCommInitRank(&comm, 2, id, 2), occlInvalidArgument);
  EXPECT_EQ(occlCommInitRank(&comm, 1, id, 0), occlInvalidArgument);
  EXPECT_NE(std::string(occlGetLastError()).find("the id is not from occlGetUniqueId"),
            std::string::npos);
  EXPECT_EQ(occlBarrier(nullptr, nullptr), occlInvalidArgument);
  EXPECT_EQ(occlGroupEnd(), occlInvalidUsage);
  WithRanks(1, [](Rank& rank) {
    Buffer<float> buffer(4);
    float host[4];
    const auto reduce = [&](void* pointer, size_t count, occlDataType_t type, occlRedOp_t op) {
      return occlAllReduce(pointer, pointer, count, type, op, rank.comm, rank.stream);
    };
    EXPECT_EQ(reduce(host, 4, occlFloat32, occlSum), occlInvalidArgument);
    EXPECT_EQ(reduce(buffer.data(), 5, occlFloat32, occlSum), occlInvalidArgument);
    EXPECT_EQ(reduce(buffer.data(), 4, occlFloat32, occlBitAnd), occlInvalidArgument);
    EXPECT_EQ(reduce(buffer.data(), 4, static_cast<occlDataType_t>(99), occlSum),
              occlInvalidArgument);
    EXPECT_EQ(reduce(buffer.data(), 4, occlFloat32, static_cast<occlRedOp_t>(77)),
              occlInvalidArgument);
    EXPECT_EQ(
        occlBroadcast(buffer.data(), buffer.data(), 4, occlFloat32, 1, rank.comm, rank.stream),
        occlInvalidArgument);
    EXPECT_EQ(occlSend(buffer.data(), 4, occlFloat32, 3, 0, rank.comm, rank.stream),
              occlInvalidArgument);
    EXPECT_DEVICE(rank.Synchronize());
  });
}

}  // namespace
}  // namespace openreg::occl
