// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/c10/error.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

constexpr size_t kStateBytes = 2 * sizeof(uint64_t);

}  // namespace

void GeneratorState::check_not_captured() const {
  TORCH_CHECK(
      capture_ == 0,
      "openreg: cannot read or change the seed or the offset of a generator while a graph "
      "that uses it is being captured, because each replay sets its own seed and offset; do "
      "so before or after the capture");
}

PhiloxState GeneratorState::position() const {
  const std::lock_guard lock(mutex_);
  check_not_captured();
  return {seed_, offset_};
}

void GeneratorState::move(uint64_t seed, uint64_t offset) {
  const std::lock_guard lock(mutex_);
  check_not_captured();
  seed_ = seed;
  offset_ = offset;
}

PhiloxState GeneratorState::advance(uint64_t count, uint64_t capture) {
  const uint64_t taken = (count + 3) / 4 * 4;
  const std::lock_guard lock(mutex_);
  if (capture != capture_) {
    TORCH_CHECK(
        capture_ != 0,
        "openreg: a captured random operator uses a generator that is not registered with the "
        "graph: register the generator before the capture "
        "(graph.register_generator_state(generator))");
    TORCH_CHECK(false,
                "openreg: a random operator that is not captured uses a generator of a capture in "
                "progress: give the operator its own generator, or wait until the capture has "
                "ended");
  }
  if (capture == 0) {
    return {seed_, std::exchange(offset_, offset_ + taken)};
  }
  return {0, std::exchange(drawn_, drawn_ + taken), replayed_};
}

void GeneratorState::begin_capture(uint64_t capture,
                                   std::shared_ptr<const ReplayedNumbers> replayed) {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(capture_ == 0,
              "openreg: this generator already belongs to another capture in progress: finish that "
              "capture first, or use another generator");
  capture_ = capture;
  drawn_ = 0;
  replayed_ = std::move(replayed);
}

uint64_t GeneratorState::end_capture(uint64_t capture) {
  const std::lock_guard lock(mutex_);
  if (capture_ != capture) {
    return 0;
  }
  capture_ = 0;
  replayed_.reset();
  return drawn_;
}

GeneratorImpl::GeneratorImpl(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(kOpenRegType, device),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(c10::make_intrusive<GeneratorState>()) {}

void GeneratorImpl::set_current_seed(uint64_t seed) { state_->move(seed, 0); }

void GeneratorImpl::set_offset(uint64_t offset) {
  TORCH_CHECK(offset % 4 == 0,
              "the offset of an openreg generator must be a multiple of 4, but got ", offset);
  state_->move(current_seed(), offset);
}

uint64_t GeneratorImpl::get_offset() const { return state_->position().offset; }

uint64_t GeneratorImpl::current_seed() const { return state_->position().seed; }

uint64_t GeneratorImpl::seed() {
  const uint64_t seed = c10::detail::getNonDeterministicRandom();
  set_current_seed(seed);
  return seed;
}

void GeneratorImpl::set_state(const c10::TensorImpl& new_state) {
  TORCH_CHECK_TYPE(new_state.device().is_cpu() && new_state.layout() == c10::kStrided &&
                       new_state.dtype() == caffe2::TypeMeta::Make<uint8_t>(),
                   "the RNG state must be a torch.ByteTensor on the CPU, but got ",
                   new_state.dtype(), " on ", new_state.device());
  TORCH_CHECK(new_state.is_contiguous() && new_state.numel() == kStateBytes,
              "the RNG state of an openreg generator must have ", kStateBytes,
              " contiguous bytes (seed, offset), but got ", new_state.numel());
  std::array<uint64_t, 2> words{};
  std::memcpy(words.data(), new_state.data(), kStateBytes);
  TORCH_CHECK(words[1] % 4 == 0, "the offset in an RNG state must be a multiple of 4, but got ",
              words[1]);
  state_->move(words[0], words[1]);
}

c10::intrusive_ptr<c10::TensorImpl> GeneratorImpl::get_state() const {
  at::Tensor state = at::detail::empty_cpu({kStateBytes}, c10::kByte);
  const PhiloxState position = state_->position();
  const std::array<uint64_t, 2> words{position.seed, position.offset};
  std::memcpy(state.mutable_data_ptr(), words.data(), kStateBytes);
  return state.getIntrusivePtr();
}

void GeneratorImpl::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& new_state) {
  const auto* other = dynamic_cast<const GeneratorImpl*>(new_state.get());
  TORCH_CHECK(
      other != nullptr,
      "graphsafe_set_state: expected the state of an openreg generator, but got that of another "
      "device");
  state_ = other->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> GeneratorImpl::graphsafe_get_state() const {
  auto copy = c10::make_intrusive<GeneratorImpl>(device().index());
  copy->state_ = state_;
  return copy;
}

GeneratorImpl* GeneratorImpl::clone_impl() const {
  // Return a raw pointer without an owning reference: the caller, c10::GeneratorImpl::clone,
  // creates the first one.
  auto copy = std::make_unique<GeneratorImpl>(device().index());
  const PhiloxState position = state_->position();
  copy->state_->move(position.seed, position.offset);
  return copy.release();
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static std::array<std::once_flag, OPENREG_MAX_DEVICES> made;
  static std::array<at::Generator, OPENREG_MAX_DEVICES> generators;
  const auto index = static_cast<size_t>(resolve_device(device));
  std::call_once(made[index], [&] {
    generators[index] = at::make_generator<GeneratorImpl>(static_cast<c10::DeviceIndex>(index));
  });
  return generators[index];
}

PhiloxState reserve(const std::optional<at::Generator>& generator, c10::DeviceIndex device,
                    uint64_t count) {
  const at::Generator& used =
      generator.has_value() && generator->defined() ? *generator : default_generator(device);
  TORCH_CHECK(used.device().type() == kOpenRegType,
              "Expected a 'openreg' device type for generator but found '", used.device().type(),
              "'");
  TORCH_CHECK(used.device().index() == device,
              "Expected a generator of device openreg:", static_cast<int>(device),
              " but found one of ", used.device());
  auto* impl = used.get<GeneratorImpl>();
  orStreamCaptureStatus status = orStreamCaptureStatusNone;
  uint64_t capture = 0;
  if (is_initialized()) {
    OPENREG_CHECK(orStreamGetCaptureInfo(current_native_stream(device), &status, &capture));
  }
  const std::lock_guard<std::mutex> lock(impl->mutex_);
  return impl->state()->advance(count, capture);
}

at::Generator make_cpu_generator(const PhiloxState& state) {
  const ReplayedNumbers start = state.replayed ? *state.replayed : ReplayedNumbers{state.seed, 0};
  // Philox counts in blocks of four numbers, so the offset is divided by 4.
  at::Philox4_32 philox(start.seed, /*subsequence=*/0, (start.offset + state.offset) / 4);
  at::mt19937_data_pod twister{};
  twister.seed_ = start.seed;
  twister.seeded_ = true;
  twister.left_ = 1;  // the first draw refreshes the whole state
  twister.next_ = 0;
  for (uint32_t& word : twister.state_) {
    word = philox();
  }
  at::mt19937 engine;
  engine.set_data(twister);
  at::Generator generator = at::detail::createCPUGenerator();
  generator.get<at::CPUGeneratorImpl>()->set_engine(engine);
  return generator;
}

}  // namespace openreg
