// SPDX-License-Identifier: BSD-3-Clause
//
// What the device costs: launches, events, synchronization, translation, copies. Prints one table.
//
//   ./bazelw run //runtime/device:openreg_benchmark [-- --repeat=N]
//
// Each figure is the median of N rounds (fewer for the large copies); run it on a quiet machine.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/device/launch.h"
#include "runtime/device/openreg_emulation.h"

namespace {

using Clock = std::chrono::steady_clock;

void Check(orError_t error) {
  if (error != orSuccess) {
    std::fprintf(stderr, "%s: %s\n", orGetErrorName(error), orGetLastErrorDetail());
    std::exit(1);
  }
}

double Seconds(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Median over `rounds` of the seconds that `run` returns.
double Measure(int rounds, const std::function<double()>& run) {
  run();  // warm
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    seconds.push_back(run());
  }
  return Median(seconds);
}

void Row(const char* what, double seconds, const std::string& note = "") {
  if (seconds < 1e-5) {
    std::printf("%-46s %10.1f ns  %s\n", what, seconds * 1e9, note.c_str());
  } else {
    std::printf("%-46s %10.2f us  %s\n", what, seconds * 1e6, note.c_str());
  }
}

// Keeps the compiler from leaving out what computes a value.
template <class T>
void Use(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

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

void* AllocateDevice(size_t size) {
  void* pointer = nullptr;
  Check(orMalloc(&pointer, size));
  return pointer;
}

void MeasureLaunches(int rounds) {
  constexpr int kBatch = 1000;
  constexpr int kQueued = 200;  // fits into the queue, so that no launch waits for room
  constexpr orLaunchAttributes kCheap{"add", orLaunchInline, 0};
  constexpr orLaunchAttributes kOrdinary{"add", 0, 0};
  constexpr orLaunchAttributes kParallel{"add", orLaunchParallel, 0};
  auto* values = static_cast<float*>(AllocateDevice(4096));
  orAddressWindow window;
  Check(orGetAddressWindow(&window));
  void* view = nullptr;
  Check(orGetKernelPointer(&view, values));
  const Arguments arguments{static_cast<float*>(view), 16};
  // The default stream's worker, and another stream which never gets one.
  orStream_t stream;
  Check(orStreamCreate(&stream));

  auto batch = [&](int count, const std::function<void()>& run) {
    return [count, run] {
      const auto start = Clock::now();
      for (int index = 0; index < count; ++index) {
        run();
      }
      return Seconds(start) / count;
    };
  };

  const double direct = Measure(rounds, [&] {
    Arguments copy = arguments;
    const auto start = Clock::now();
    for (int index = 0; index < kBatch; ++index) {
      Use(AddOne(&copy));
    }
    return Seconds(start) / kBatch;
  });
  Row("kernel, called directly (add of 16 floats)", direct);
  const double inline_launch = Measure(rounds, [&] {
    const auto start = Clock::now();
    for (int index = 0; index < kBatch; ++index) {
      orLaunchKernel(stream, AddOne, &arguments, sizeof(arguments), &kCheap);
    }
    return Seconds(start) / kBatch;
  });
  char note[64];
  std::snprintf(note, sizeof(note), "%.1f ns over a direct call", (inline_launch - direct) * 1e9);
  Row("kernel, launched inline", inline_launch, note);
  const double typed = Measure(rounds, [&] {
    const auto start = Clock::now();
    for (int index = 0; index < kBatch; ++index) {
      openreg::Launch(stream, kCheap, AddOneTyped, values, 16);
    }
    return Seconds(start) / kBatch;
  });
  Row("kernel, inline through launch.h", typed);
  for (const auto& [what, attributes] :
       {std::pair{"enqueue, worker running beside", &kOrdinary},
        std::pair{"enqueue of a parallel kernel, executor beside", &kParallel}}) {
    Row(what, Measure(rounds, [&, attributes = attributes] {
          const auto start = Clock::now();
          for (int index = 0; index < kQueued; ++index) {
            orLaunchKernel(nullptr, AddOne, &arguments, sizeof(arguments), attributes);
          }
          const double seconds = Seconds(start) / kQueued;
          Check(orStreamSynchronize(nullptr));
          return seconds;
        }));
  }
  Row("enqueue, worker busy (cost of the producer)", Measure(rounds, [&] {
        Check(orLaunchKernel(nullptr,
                             [] { std::this_thread::sleep_for(std::chrono::microseconds(300)); }));
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        const auto start = Clock::now();
        for (int index = 0; index < kQueued; ++index) {
          orLaunchKernel(nullptr, AddOne, &arguments, sizeof(arguments), &kOrdinary);
        }
        const double seconds = Seconds(start) / kQueued;
        Check(orStreamSynchronize(nullptr));
        return seconds;
      }));
  Row("queued kernels, each, until all are done", Measure(rounds, [&] {
        const auto start = Clock::now();
        for (int index = 0; index < 10 * kBatch; ++index) {
          orLaunchKernel(nullptr, AddOne, &arguments, sizeof(arguments), &kOrdinary);
        }
        Check(orStreamSynchronize(nullptr));
        return Seconds(start) / (10 * kBatch);
      }));
  Row("launch + synchronize, worker awake", Measure(rounds, batch(20, [&] {
                                                      orLaunchKernel(nullptr, AddOne, &arguments,
                                                                     sizeof(arguments), &kOrdinary);
                                                      Check(orStreamSynchronize(nullptr));
                                                    })));
  Row("launch + synchronize, worker asleep", Measure(rounds, [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const auto start = Clock::now();
        orLaunchKernel(nullptr, AddOne, &arguments, sizeof(arguments), &kOrdinary);
        Check(orStreamSynchronize(nullptr));
        return Seconds(start);
      }));
  Row("synchronize an idle stream", Measure(rounds, [&] {
        const auto start = Clock::now();
        for (int index = 0; index < kBatch; ++index) {
          orStreamSynchronize(stream);
        }
        return Seconds(start) / kBatch;
      }));

  orEvent_t event, timed;
  Check(orEventCreate(&event));
  Check(orEventCreateWithFlags(&timed, orEventEnableTiming));
  for (const auto& [what, which] : {std::pair{"event record", event},
                                    std::pair{"event record with timing, idle stream", timed}}) {
    Row(what, Measure(rounds, [&, which = which] {
          const auto start = Clock::now();
          for (int index = 0; index < kBatch; ++index) {
            orEventRecord(which, stream);
          }
          return Seconds(start) / kBatch;
        }));
  }
  Row("event query", Measure(rounds, [&] {
        const auto start = Clock::now();
        for (int index = 0; index < kBatch; ++index) {
          Use(orEventQuery(event));
        }
        return Seconds(start) / kBatch;
      }));
  Row("wait of a stream for a complete event", Measure(rounds, [&] {
        const auto start = Clock::now();
        for (int index = 0; index < kBatch; ++index) {
          orStreamWaitEvent(stream, event, 0);
        }
        return Seconds(start) / kBatch;
      }));
  Row("translate a pointer (window)", Measure(rounds, [&] {
        const auto start = Clock::now();
        auto address = reinterpret_cast<uintptr_t>(values);
        for (int index = 0; index < kBatch; ++index) {
          Use(address);
          Use(address - window.base < window.size
                  ? address + static_cast<uintptr_t>(window.kernel_offset)
                  : address);
        }
        return Seconds(start) / kBatch;
      }));
  Row("translate a pointer (orGetKernelPointer)", Measure(rounds, [&] {
        const auto start = Clock::now();
        for (int index = 0; index < kBatch; ++index) {
          orGetKernelPointer(&view, values);
        }
        return Seconds(start) / kBatch;
      }));
  Row("orMalloc + orFree of 1 MiB",
      Measure(rounds, batch(100, [] { Check(orFree(AllocateDevice(size_t{1} << 20))); })));
  Row("stream create + launch + destroy", Measure(rounds, batch(5, [&] {
                                                    orStream_t passing;
                                                    Check(orStreamCreate(&passing));
                                                    orLaunchKernel(passing, AddOne, &arguments,
                                                                   sizeof(arguments), &kOrdinary);
                                                    Check(orStreamDestroy(passing));
                                                  })));
  Check(orDeviceSynchronize());
  Check(orStreamDestroy(stream));
  Check(orEventDestroy(event));
  Check(orEventDestroy(timed));
  Check(orFree(values));
}

void MeasureCopies(int rounds) {
  std::printf("\n%-10s %13s %13s %13s %13s %13s %13s\n", "copy", "memcpy warm", "to device",
              "from device", "on device", "memcpy cold", "device cold");
  for (size_t size :
       {size_t{4}, size_t{4096}, size_t{256} << 10, size_t{4} << 20, size_t{64} << 20}) {
    const int repeat = static_cast<int>(std::clamp<size_t>((size_t{64} << 20) / size, 1, 1000));
    const int few = std::max(3, size >= (size_t{4} << 20) ? rounds / 10 : rounds);
    std::vector<char> source(size, 1), destination(size, 2);
    void* device = AllocateDevice(size);
    void* second = AllocateDevice(size);
    auto timed = [&](const std::function<void()>& copy) {
      return Measure(few, [&] {
        const auto start = Clock::now();
        for (int index = 0; index < repeat; ++index) {
          copy();
        }
        return Seconds(start) / repeat;
      });
    };
    const double plain = timed([&] {
      std::memcpy(destination.data(), source.data(), size);
      Use(destination.data());
    });
    const double in =
        timed([&] { Check(orMemcpy(device, source.data(), size, orMemcpyHostToDevice)); });
    const double out =
        timed([&] { Check(orMemcpy(destination.data(), device, size, orMemcpyDeviceToHost)); });
    const double on = timed([&] { Check(orMemcpy(second, device, size, orMemcpyDeviceToDevice)); });
    const double plain_cold = Measure(few, [&] {
      void* fresh = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      const auto start = Clock::now();
      std::memcpy(fresh, source.data(), size);
      const double seconds = Seconds(start);
      munmap(fresh, size);
      return seconds;
    });
    Check(orFree(second));
    const double device_cold = Measure(few, [&] {
      Check(orFree(device));
      Check(orMemTrim(nullptr));
      device = AllocateDevice(size);
      const auto start = Clock::now();
      Check(orMemcpy(device, source.data(), size, orMemcpyHostToDevice));
      return Seconds(start);
    });
    Check(orFree(device));
    char label[32];
    if (size < 1024) {
      std::snprintf(label, sizeof(label), "%zu B", size);
    } else if (size < (size_t{1} << 20)) {
      std::snprintf(label, sizeof(label), "%zu KiB", size >> 10);
    } else {
      std::snprintf(label, sizeof(label), "%zu MiB", size >> 20);
    }
    std::printf("%-10s", label);
    for (double seconds : {plain, in, out, on, plain_cold, device_cold}) {
      std::printf(" %10.2f us", seconds * 1e6);
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 101;
  for (int index = 1; index < argc; ++index) {
    const std::string argument = argv[index];
    char* end = nullptr;
    if (argument == "--help") {
      std::printf(
          "usage: openreg_benchmark [--repeat=N]\n"
          "Prints what launches, events, synchronization and copies of the device cost.\n"
          "  --repeat=N  rounds of each measurement, of which the median is shown (101)\n");
      return 0;
    }
    if (argument.rfind("--repeat=", 0) == 0) {
      rounds = static_cast<int>(std::strtol(argument.c_str() + 9, &end, 10));
    }
    if (end == nullptr || *end != '\0' || rounds < 1 || rounds > 1000000) {
      std::fprintf(stderr, "openreg_benchmark: %s is not understood; try --help\n", argv[index]);
      return 2;
    }
  }
  std::printf("medians of %d rounds, %u cores\n\n", rounds, std::thread::hardware_concurrency());
  MeasureLaunches(rounds);
  MeasureCopies(rounds);
  return 0;
}
