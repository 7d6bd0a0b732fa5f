// SPDX-License-Identifier: BSD-3-Clause
//
// Measures the cost of launches, events, synchronization, address translation and copies.
//
//   ./bazelw run //runtime/device:openreg_benchmark [-- --benchmark_filter=copy]
//
// Run it on an otherwise idle machine. For medians, add --benchmark_repetitions=11
// --benchmark_report_aggregates_only.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/device/launch.h"
#include "runtime/device/openreg_emulation.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kQueued = 200;  // fits in the queue, so no launch waits for room
constexpr orLaunchAttributes kCheap{"add", orLaunchInline, 0};
constexpr orLaunchAttributes kOrdinary{"add", 0, 0};
constexpr orLaunchAttributes kParallel{"add", orLaunchParallel, 0};

void Check(orError_t error) {
  if (error != orSuccess) {
    std::fprintf(stderr, "%s: %s\n", orGetErrorName(error), orGetLastErrorDetail());
    std::exit(1);
  }
}

double Seconds(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void* AllocateDevice(size_t size) {
  void* pointer = nullptr;
  Check(orMalloc(&pointer, size));
  return pointer;
}

struct FreeDevice {
  void operator()(void* pointer) const { Check(orFree(pointer)); }
};
using DeviceMemory = std::unique_ptr<void, FreeDevice>;

// A stream on which nothing is queued. It never starts a worker.
class IdleStream {
 public:
  IdleStream() { Check(orStreamCreate(&stream_)); }
  ~IdleStream() { Check(orStreamDestroy(stream_)); }
  IdleStream(const IdleStream&) = delete;
  IdleStream& operator=(const IdleStream&) = delete;
  orStream_t get() const { return stream_; }

 private:
  orStream_t stream_ = nullptr;
};

class RecordedEvent {
 public:
  explicit RecordedEvent(unsigned flags = 0) {
    Check(orEventCreateWithFlags(&event_, flags));
    Check(orEventRecord(event_, stream_.get()));
  }
  ~RecordedEvent() { Check(orEventDestroy(event_)); }
  RecordedEvent(const RecordedEvent&) = delete;
  RecordedEvent& operator=(const RecordedEvent&) = delete;
  orEvent_t get() const { return event_; }
  orStream_t stream() const { return stream_.get(); }

 private:
  IdleStream stream_;
  orEvent_t event_ = nullptr;
};

struct Arguments {
  float* values;
  int64_t size;
};

__attribute__((noinline)) orError_t AddOne(void* raw) {
  const auto* arguments = static_cast<const Arguments*>(raw);
  for (int64_t index = 0; index < arguments->size; ++index) {
    arguments->values[index] += 1;
  }
  return orSuccess;
}

void AddOneTyped(float* values, int64_t size) {
  for (int64_t index = 0; index < size; ++index) {
    values[index] += 1;
  }
}

// A kernel that adds 1 to 16 floats.
class Kernel {
 public:
  Kernel() {
    void* view = nullptr;
    Check(orGetKernelPointer(&view, memory_.get()));
    arguments_ = {static_cast<float*>(view), 16};
  }
  float* values() const { return static_cast<float*>(memory_.get()); }
  const Arguments& arguments() const { return arguments_; }
  orError_t Launch(orStream_t stream, const orLaunchAttributes& attributes) const {
    return orLaunchKernel(stream, AddOne, &arguments_, sizeof(arguments_), &attributes);
  }

 private:
  DeviceMemory memory_{AllocateDevice(4096)};
  Arguments arguments_{};
};

void kernel_called_directly(benchmark::State& state) {
  const Kernel kernel;
  Arguments arguments = kernel.arguments();
  for (auto _ : state) {
    orError_t error = AddOne(&arguments);
    benchmark::DoNotOptimize(error);
  }
}
BENCHMARK(kernel_called_directly);

void kernel_inline(benchmark::State& state) {
  const Kernel kernel;
  const IdleStream stream;
  for (auto _ : state) {
    kernel.Launch(stream.get(), kCheap);
  }
}
BENCHMARK(kernel_inline);

void kernel_inline_through_launch_h(benchmark::State& state) {
  const Kernel kernel;
  const IdleStream stream;
  for (auto _ : state) {
    openreg::Launch(stream.get(), kCheap, AddOneTyped, kernel.values(), 16);
  }
}
BENCHMARK(kernel_inline_through_launch_h);

// Measures the time that each of kQueued launches takes on the launching thread. `prepare` runs
// before them.
template <class Prepare>
void Enqueue(benchmark::State& state, const orLaunchAttributes& attributes,
             const Prepare& prepare) {
  const Kernel kernel;
  while (state.KeepRunningBatch(kQueued)) {
    prepare();
    const auto start = Clock::now();
    for (int64_t index = 0; index < kQueued; ++index) {
      kernel.Launch(nullptr, attributes);
    }
    state.SetIterationTime(Seconds(start));
    Check(orStreamSynchronize(nullptr));
  }
}

void enqueue_beside_worker(benchmark::State& state) {
  Enqueue(state, kOrdinary, [] {});
}
BENCHMARK(enqueue_beside_worker)->UseManualTime();

void enqueue_parallel_beside_executor(benchmark::State& state) {
  Enqueue(state, kParallel, [] {});
}
BENCHMARK(enqueue_parallel_beside_executor)->UseManualTime();

// Measures only the producer's cost, because the worker is busy.
void enqueue_worker_busy(benchmark::State& state) {
  Enqueue(state, kOrdinary, [] {
    Check(orLaunchKernel(nullptr,
                         [] { std::this_thread::sleep_for(std::chrono::microseconds(300)); }));
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  });
}
BENCHMARK(enqueue_worker_busy)->UseManualTime();

// Measures the time until all kernels are done.
void queued_kernels(benchmark::State& state) {
  constexpr int64_t kKernels = 10'000;
  const Kernel kernel;
  while (state.KeepRunningBatch(kKernels)) {
    for (int64_t index = 0; index < kKernels; ++index) {
      kernel.Launch(nullptr, kOrdinary);
    }
    Check(orStreamSynchronize(nullptr));
  }
}
BENCHMARK(queued_kernels)->UseRealTime();

void launch_and_synchronize_worker_awake(benchmark::State& state) {
  const Kernel kernel;
  for (auto _ : state) {
    kernel.Launch(nullptr, kOrdinary);
    Check(orStreamSynchronize(nullptr));
  }
}
BENCHMARK(launch_and_synchronize_worker_awake)->UseRealTime();

void launch_and_synchronize_worker_asleep(benchmark::State& state) {
  const Kernel kernel;
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto start = Clock::now();
    kernel.Launch(nullptr, kOrdinary);
    Check(orStreamSynchronize(nullptr));
    state.SetIterationTime(Seconds(start));
  }
}
BENCHMARK(launch_and_synchronize_worker_asleep)->UseManualTime();

void synchronize_idle_stream(benchmark::State& state) {
  const IdleStream stream;
  for (auto _ : state) {
    orStreamSynchronize(stream.get());
  }
}
BENCHMARK(synchronize_idle_stream);

void event_record(benchmark::State& state) {
  const RecordedEvent event;
  for (auto _ : state) {
    orEventRecord(event.get(), event.stream());
  }
}
BENCHMARK(event_record);

void event_record_with_timing(benchmark::State& state) {
  const RecordedEvent event(orEventEnableTiming);
  for (auto _ : state) {
    orEventRecord(event.get(), event.stream());
  }
}
BENCHMARK(event_record_with_timing);

void event_query(benchmark::State& state) {
  const RecordedEvent event;
  for (auto _ : state) {
    orError_t error = orEventQuery(event.get());
    benchmark::DoNotOptimize(error);
  }
}
BENCHMARK(event_query);

void stream_wait_for_complete_event(benchmark::State& state) {
  const RecordedEvent event;
  for (auto _ : state) {
    orStreamWaitEvent(event.stream(), event.get(), 0);
  }
}
BENCHMARK(stream_wait_for_complete_event);

void translate_by_window(benchmark::State& state) {
  const Kernel kernel;
  orAddressWindow window;
  Check(orGetAddressWindow(&window));
  auto address = reinterpret_cast<uintptr_t>(kernel.values());
  for (auto _ : state) {
    benchmark::DoNotOptimize(address);
    uintptr_t translated = address - window.base < window.size
                               ? address + static_cast<uintptr_t>(window.kernel_offset)
                               : address;
    benchmark::DoNotOptimize(translated);
  }
}
BENCHMARK(translate_by_window);

void translate_by_orGetKernelPointer(benchmark::State& state) {
  const Kernel kernel;
  void* view = nullptr;
  for (auto _ : state) {
    orGetKernelPointer(&view, kernel.values());
  }
}
BENCHMARK(translate_by_orGetKernelPointer);

void orMalloc_and_orFree_of_1MiB(benchmark::State& state) {
  for (auto _ : state) {
    Check(orFree(AllocateDevice(size_t{1} << 20)));
  }
}
BENCHMARK(orMalloc_and_orFree_of_1MiB);

void stream_create_launch_destroy(benchmark::State& state) {
  const Kernel kernel;
  for (auto _ : state) {
    orStream_t stream;
    Check(orStreamCreate(&stream));
    kernel.Launch(stream, kOrdinary);
    Check(orStreamDestroy(stream));
  }
  Check(orDeviceSynchronize());
}
BENCHMARK(stream_create_launch_destroy)->UseRealTime();

// Two buffers of state.range(0) bytes. In a warm copy, all iterations use the same buffers.
class Buffers {
 public:
  explicit Buffers(const benchmark::State& state)
      : size(static_cast<size_t>(state.range(0))), source(size, 1), destination(size, 2) {}
  const size_t size;
  std::vector<char> source;
  std::vector<char> destination;
};

void CopySizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("bytes");
  for (const int64_t bytes : {4, 4096, 256 << 10, 4 << 20, 64 << 20}) {
    benchmark->Arg(bytes);
  }
}

void SetBytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void copy_memcpy_warm(benchmark::State& state) {
  Buffers host(state);
  for (auto _ : state) {
    std::memcpy(host.destination.data(), host.source.data(), host.size);
    benchmark::ClobberMemory();
  }
  SetBytes(state);
}
BENCHMARK(copy_memcpy_warm)->Apply(CopySizes)->UseRealTime();

void copy_to_device(benchmark::State& state) {
  const Buffers host(state);
  const DeviceMemory device(AllocateDevice(host.size));
  for (auto _ : state) {
    Check(orMemcpy(device.get(), host.source.data(), host.size, orMemcpyHostToDevice));
  }
  SetBytes(state);
}
BENCHMARK(copy_to_device)->Apply(CopySizes)->UseRealTime();

void copy_from_device(benchmark::State& state) {
  Buffers host(state);
  const DeviceMemory device(AllocateDevice(host.size));
  for (auto _ : state) {
    Check(orMemcpy(host.destination.data(), device.get(), host.size, orMemcpyDeviceToHost));
  }
  SetBytes(state);
}
BENCHMARK(copy_from_device)->Apply(CopySizes)->UseRealTime();

void copy_on_device(benchmark::State& state) {
  const auto size = static_cast<size_t>(state.range(0));
  const DeviceMemory source(AllocateDevice(size));
  const DeviceMemory destination(AllocateDevice(size));
  for (auto _ : state) {
    Check(orMemcpy(destination.get(), source.get(), size, orMemcpyDeviceToDevice));
  }
  SetBytes(state);
}
BENCHMARK(copy_on_device)->Apply(CopySizes)->UseRealTime();

// Measures a cold copy: the operating system must still provide the pages of the destination.
void copy_memcpy_cold(benchmark::State& state) {
  const Buffers host(state);
  for (auto _ : state) {
    void* fresh =
        mmap(nullptr, host.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const auto start = Clock::now();
    std::memcpy(fresh, host.source.data(), host.size);
    state.SetIterationTime(Seconds(start));
    munmap(fresh, host.size);
  }
  SetBytes(state);
}
BENCHMARK(copy_memcpy_cold)->Apply(CopySizes)->UseManualTime();

void copy_to_device_cold(benchmark::State& state) {
  const Buffers host(state);
  for (auto _ : state) {
    Check(orMemTrim(nullptr));
    const DeviceMemory device(AllocateDevice(host.size));
    const auto start = Clock::now();
    Check(orMemcpy(device.get(), host.source.data(), host.size, orMemcpyHostToDevice));
    state.SetIterationTime(Seconds(start));
  }
  SetBytes(state);
}
BENCHMARK(copy_to_device_cold)->Apply(CopySizes)->UseManualTime();

}  // namespace

BENCHMARK_MAIN();
