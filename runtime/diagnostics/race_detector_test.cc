// SPDX-License-Identifier: BSD-3-Clause
//
// Tests the race detector with synthetic programs of streams, events and memory.
#include "runtime/diagnostics/race_detector.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace openreg {
namespace {

constexpr StreamName kA{10, 0};
constexpr StreamName kB{20, 0};
constexpr StreamName kC{30, 1};
constexpr uintptr_t kBlock = 0x10000;
constexpr size_t kBytes = 0x1000;

class RaceDetectorTest : public ::testing::Test {
 protected:
  static std::shared_ptr<const WatchedLaunch> named(const char* name, StreamName stream) {
    return std::make_shared<const WatchedLaunch>(WatchedLaunch{name, stream, nullptr});
  }
  std::vector<Race> allocate(StreamName stream, uintptr_t begin = kBlock, size_t bytes = kBytes) {
    return detector_.allocate(begin, bytes, named("empty", stream));
  }
  std::vector<Race> use(StreamName stream, UseKind kind, Extent extent) {
    return detector_.launch(named(kind == UseKind::kRead ? "reader" : "writer", stream),
                            {{extent, kind}}, /*keep=*/false);
  }
  std::vector<Race> read(StreamName stream, uintptr_t begin = kBlock, size_t bytes = kBytes) {
    return use(stream, UseKind::kRead, {begin, begin + bytes, bytes, 0});
  }
  std::vector<Race> write(StreamName stream, uintptr_t begin = kBlock, size_t bytes = kBytes) {
    return use(stream, UseKind::kWrite, {begin, begin + bytes, bytes, 0});
  }
  RaceDetector detector_;
};

TEST_F(RaceDetectorTest, OneStreamIsInOrder) {
  EXPECT_TRUE(allocate(kA).empty());
  for (int round = 0; round < 200; ++round) {
    EXPECT_TRUE(write(kA).empty());
    EXPECT_TRUE(read(kA).empty());
  }
}

TEST_F(RaceDetectorTest, AUseAfterAnUnorderedWriteRaces) {
  allocate(kA);
  write(kA);
  const std::vector<Race> races = read(kB);
  ASSERT_EQ(races.size(), 1u);
  EXPECT_EQ(races[0].earlier.launch->name, "writer");
  EXPECT_EQ(races[0].earlier.kind, UseKind::kWrite);
  EXPECT_EQ(races[0].earlier.launch->stream.handle, kA.handle);
  EXPECT_EQ(races[0].later.launch->name, "reader");
  EXPECT_EQ(races[0].later.kind, UseKind::kRead);
  EXPECT_EQ(races[0].later.launch->stream.handle, kB.handle);
  EXPECT_EQ(races[0].block, kBlock);
  EXPECT_EQ(races[0].bytes, kBytes);
}

TEST_F(RaceDetectorTest, AnAllocationIsAWrite) {
  allocate(kA);
  EXPECT_EQ(write(kB).size(), 1u);
}

TEST_F(RaceDetectorTest, ReadsDoNotRaceWithReads) {
  allocate(kA);
  write(kA);
  detector_.order(kA, kB);
  EXPECT_TRUE(read(kA).empty());
  EXPECT_TRUE(read(kB).empty());
  EXPECT_TRUE(read(kA).empty());
  // A write, however, races with a read on the other stream.
  EXPECT_EQ(write(kA).size(), 1u);
  EXPECT_EQ(write(kB).size(), 1u);
}

TEST_F(RaceDetectorTest, AnEventOrdersOnlyUsesBeforeItsRecord) {
  allocate(kA);
  write(kA);
  detector_.record(1, kA);
  detector_.wait(kB, 1);
  EXPECT_TRUE(read(kB).empty());
  detector_.record(2, kB);
  EXPECT_EQ(write(kA).size(), 1u);  // races with the read on stream B
  detector_.wait(kA, 2);
  EXPECT_TRUE(write(kA).empty());
  EXPECT_EQ(read(kB).size(), 1u);
}

TEST_F(RaceDetectorTest, RecordingAgainReplacesAndAnUnknownEventOrdersNothing) {
  allocate(kA);
  detector_.record(1, kA);
  write(kA);
  detector_.wait(kB, 1);
  EXPECT_EQ(read(kB).size(), 1u);
  detector_.record(1, kA);
  detector_.forget(1);
  detector_.wait(kB, 1);
  EXPECT_EQ(read(kB).size(), 1u);
  detector_.record(1, kA);
  detector_.wait(kB, 1);
  EXPECT_TRUE(read(kB).empty());
}

TEST_F(RaceDetectorTest, OrderIsTransitive) {
  allocate(kA);
  write(kA);
  detector_.order(kA, kB);
  detector_.order(kB, kC);
  EXPECT_TRUE(write(kC).empty());
  EXPECT_EQ(read(kB).size(), 1u);
}

TEST_F(RaceDetectorTest, AWaitOfTheHostOrdersAllLaterLaunches) {
  allocate(kA);
  write(kA);
  detector_.record(1, kA);
  write(kA);
  detector_.join(uint64_t{1});
  EXPECT_EQ(read(kB).size(), 1u);  // races with the second write
  detector_.join(kA);
  EXPECT_TRUE(write(kB).empty());
  detector_.join_device(kC.device);
  EXPECT_EQ(read(kC).size(), 1u);
  detector_.join_device(kB.device);
  EXPECT_TRUE(read(kC).empty());
}

TEST_F(RaceDetectorTest, ARejectedLaunchIsNotRecorded) {
  allocate(kA);
  write(kA);
  EXPECT_EQ(write(kB).size(), 1u);
  EXPECT_TRUE(write(kA).empty());  // does not race with the rejected launch
}

TEST_F(RaceDetectorTest, PartsOfABlockAreIndependent) {
  allocate(kA);
  detector_.order(kA, kB);
  EXPECT_TRUE(write(kA, kBlock, 0x800).empty());
  EXPECT_TRUE(write(kB, kBlock + 0x800, 0x800).empty());
  EXPECT_EQ(write(kB, kBlock + 0x7ff, 1).size(), 1u);
  EXPECT_EQ(read(kA, kBlock + 0xfff, 1).size(), 1u);
}

TEST_F(RaceDetectorTest, ColumnsAreIndependent) {
  allocate(kA);
  detector_.order(kA, kB);
  // The memory consists of 16 rows of 256 bytes. `left` is the first 64 bytes of each row, and
  // `right` is the next 64 bytes.
  const Extent left{kBlock, kBlock + 15 * 256 + 64, 64, 256};
  const Extent right{kBlock + 64, kBlock + 15 * 256 + 128, 64, 256};
  const Extent wide{kBlock + 32, kBlock + 15 * 256 + 128, 96, 256};
  EXPECT_TRUE(use(kA, UseKind::kWrite, left).empty());
  EXPECT_TRUE(use(kB, UseKind::kWrite, right).empty());
  EXPECT_EQ(use(kB, UseKind::kWrite, wide).size(), 1u);
  EXPECT_EQ(use(kA, UseKind::kRead, wide).size(), 1u);
  // Read dense memory that lies within a gap, and dense memory that extends beyond a gap.
  EXPECT_TRUE(read(kA, kBlock + 256 + 128, 128).empty());
  EXPECT_EQ(read(kA, kBlock + 256 + 128, 256).size(), 1u);
}

TEST_F(RaceDetectorTest, FreedMemoryRacesWithReuseByItsStream) {
  allocate(kA);
  detector_.order(kA, kB);
  read(kB);
  detector_.free(kBlock);
  const std::vector<Race> races = allocate(kA, kBlock + 0x100, 0x100);
  ASSERT_EQ(races.size(), 1u);
  EXPECT_EQ(races[0].earlier.kind, UseKind::kRead);
  EXPECT_EQ(races[0].later.kind, UseKind::kAllocation);
  // The remaining part of the old block keeps its history.
  EXPECT_EQ(allocate(kA, kBlock, 0x100).size(), 1u);
  detector_.order(kB, kA);
  EXPECT_TRUE(allocate(kA, kBlock + 0x200, 0x100).empty());
}

TEST_F(RaceDetectorTest, GuardedMemoryDoesNotRaceWithReuse) {
  allocate(kA);
  detector_.order(kA, kB);
  read(kB);
  detector_.guard(kBlock, kB);
  detector_.free(kBlock);
  EXPECT_TRUE(allocate(kA).empty());
}

TEST_F(RaceDetectorTest, MemoryOfAnotherStreamWasWaitedFor) {
  allocate(kA);
  detector_.order(kA, kB);
  read(kB);
  detector_.free(kBlock);
  EXPECT_TRUE(allocate(kC).empty());
}

TEST_F(RaceDetectorTest, UnknownMemoryIsIgnored) {
  EXPECT_TRUE(write(kA).empty());
  EXPECT_TRUE(write(kB).empty());
}

}  // namespace
}  // namespace openreg
