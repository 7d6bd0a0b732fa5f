// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <optional>
#include <set>

#include "runtime/c10/error.h"
#include "runtime/c10/graph.h"
#include "runtime/c10/stream.h"
#include "runtime/device/openreg_emulation.h"

namespace openreg {
namespace {

constexpr c10::DeviceIndex kDevice = 0;

at::Generator make(uint64_t seed) {
  at::Generator generator = at::make_generator<GeneratorImpl>(kDevice);
  generator.set_current_seed(seed);
  return generator;
}

at::Tensor state_of(const at::Generator& generator) {
  return at::Tensor(generator.getIntrusivePtr()->get_state());
}

uint64_t draw(const PhiloxState& state) {
  at::Generator generator = make_cpu_generator(state);
  return generator.get<at::CPUGeneratorImpl>()->random64();
}

TEST(GeneratorTest, StateIsSeedAndOffsetInSixteenBytes) {
  at::Generator generator = make(0x0123456789abcdef);
  generator.set_offset(64);
  const at::Tensor state = state_of(generator);
  ASSERT_EQ(state.numel(), 16);
  std::array<uint64_t, 2> words{};
  std::memcpy(words.data(), state.const_data_ptr(), sizeof(words));
  EXPECT_EQ(words[0], 0x0123456789abcdefU);
  EXPECT_EQ(words[1], 64U);
}

TEST(GeneratorTest, StateRoundTrip) {
  at::Generator generator = make(7);
  (void)reserve(generator, kDevice, 10);
  const at::Tensor state = state_of(generator);
  const PhiloxState next = reserve(generator, kDevice, 4);
  generator.set_state(state);
  const PhiloxState again = reserve(generator, kDevice, 4);
  EXPECT_EQ(next.seed, again.seed);
  EXPECT_EQ(next.offset, again.offset);
}

TEST(GeneratorTest, RejectsAStateOfAnotherSize) {
  at::Generator generator = make(7);
  const at::Tensor cpu = state_of(at::detail::createCPUGenerator(1));
  EXPECT_THROW(generator.set_state(cpu), c10::Error);
}

TEST(GeneratorTest, OffsetsAdvanceInWholeBlocksOfFour) {
  at::Generator generator = make(7);
  EXPECT_EQ(reserve(generator, kDevice, 1).offset, 0U);
  EXPECT_EQ(reserve(generator, kDevice, 8).offset, 4U);
  EXPECT_EQ(generator.get_offset(), 12U);
  EXPECT_THROW(generator.set_offset(3), c10::Error);
}

TEST(GeneratorTest, SeedingRestartsTheSequence) {
  at::Generator generator = make(7);
  (void)reserve(generator, kDevice, 100);
  generator.set_current_seed(7);
  EXPECT_EQ(generator.get_offset(), 0U);
  EXPECT_EQ(generator.current_seed(), 7U);
}

TEST(GeneratorTest, CloneIsIndependent) {
  at::Generator generator = make(7);
  (void)reserve(generator, kDevice, 4);
  const at::Generator copy = generator.clone();
  (void)reserve(generator, kDevice, 4);
  EXPECT_EQ(copy.get_offset(), 4U);
  EXPECT_EQ(generator.get_offset(), 8U);
}

TEST(GeneratorTest, GraphsafeStateIsShared) {
  at::Generator generator = make(7);
  at::Generator other = make(9);
  other.graphsafe_set_state(generator.graphsafe_get_state());
  (void)reserve(generator, kDevice, 4);
  EXPECT_EQ(other.get_offset(), 4U);
  EXPECT_EQ(other.current_seed(), 7U);
}

TEST(GeneratorTest, RejectsAGeneratorOfAnotherDevice) {
  EXPECT_THROW((void)reserve(at::detail::createCPUGenerator(1), kDevice, 4), c10::Error);
  EXPECT_THROW((void)reserve(make(1), 1, 4), c10::Error);
}

TEST(CpuGeneratorTest, IsAFunctionOfTheState) {
  EXPECT_EQ(draw({1, 0}), draw({1, 0}));
  std::set<uint64_t> draws;
  for (uint64_t seed = 0; seed < 64; ++seed) {
    for (uint64_t offset = 0; offset < 64; ++offset) {
      draws.insert(draw({seed, offset * kCpuGeneratorNumbers}));
    }
  }
  EXPECT_EQ(draws.size(), 64U * 64U);
}

TEST(CpuGeneratorTest, BitsAreUniform) {
  std::array<int, 64> ones{};
  constexpr int kDraws = 4096;
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t bits = draw({42, static_cast<uint64_t>(i) * kCpuGeneratorNumbers});
    for (size_t bit = 0; bit < 64; ++bit) {
      ones[bit] += static_cast<int>(bits >> bit & 1);
    }
  }
  for (const int count : ones) {
    EXPECT_NEAR(count, kDraws / 2, 6 * 32);  // six standard deviations
  }
}

TEST(CpuGeneratorTest, DoesNotUseTheDefaultCpuGenerator) {
  const at::Generator& cpu = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = state_of(cpu);
  (void)draw({1, 0});
  (void)reserve(std::nullopt, kDevice, 4);
  const at::Tensor after = state_of(cpu);
  ASSERT_EQ(before.numel(), after.numel());
  EXPECT_EQ(std::memcmp(before.const_data_ptr(), after.const_data_ptr(),
                        static_cast<size_t>(before.numel())),
            0);
}

TEST(GraphTest, AReplayThatFailsAfterItsStartKeepsNoEntry) {
  const c10::Stream before = exchange_stream(pooled_stream(kDevice, 0));
  const orStream_t stream = current_native_stream(kDevice);
  bool fails = true;
  Graph graph;
  graph.capture_begin({0, 0}, at::GraphCaptureMode::Global);
  const PhiloxState drawn = reserve(std::nullopt, kDevice, 8);
  OPENREG_CHECK(
      orLaunchKernel(stream, [&fails] { return fails ? orErrorInvalidValue : orSuccess; }));
  graph.capture_end();
  OPENREG_CHECK(orSetLaunchBlocking(1));
  EXPECT_THROW(graph.replay(), c10::Error);
  OPENREG_CHECK(orSetLaunchBlocking(0));
  fails = false;
  const uint64_t offset = default_generator(kDevice).get<GeneratorImpl>()->get_offset();
  graph.replay();
  synchronize_stream(stream);
  EXPECT_EQ(drawn.replayed->offset, offset);
  (void)exchange_stream(before);
}

}  // namespace
}  // namespace openreg
