// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/launch.h"

#include <algorithm>
#include <complex>

#include "runtime/device/device_fixture.h"

namespace openreg::device {
namespace {

using LaunchTest = DeviceTest;

constexpr orLaunchAttributes kCheap{"cheap", orLaunchInline, 0};
constexpr orLaunchAttributes kQueued{"queued", 0, 0};

void Axpy(float a, const float* x, float* y, int64_t size) {
  for (int64_t index = 0; index < size; ++index) {
    y[index] += a * x[index];
  }
}

TEST_F(LaunchTest, DevicePointersAreTranslatedAndSizesPassed) {
  for (const orLaunchAttributes& attributes : {kCheap, kQueued}) {
    float* x_view = nullptr;
    float* y_view = nullptr;
    const float* x = Allocate<float>(100, &x_view);
    float* y = Allocate<float>(100, &y_view);
    for (int index = 0; index < 100; ++index) {
      x_view[index] = static_cast<float>(index);
      y_view[index] = 1;
    }
    ASSERT_OK(
        Launch(nullptr, attributes, Axpy, 2, x + 10, y, 90));  // an int is converted to a float
    ASSERT_OK(orStreamSynchronize(nullptr));
    EXPECT_EQ(y_view[0], 21.0f);
    EXPECT_EQ(y_view[89], 199.0f);
    EXPECT_EQ(y_view[90], 1.0f);
  }
}

// docs/device.md quotes this kernel and the test below it.
void Scale(float* x, float factor, int size) {
  for (int index = 0; index < size; ++index) {
    x[index] *= factor;
  }
}

TEST_F(LaunchTest, AKernelRunsBetweenTwoCopies) {
  const orStream_t stream = CreateStream();
  float host[16];
  std::ranges::fill(host, 21.0f);
  void* memory = nullptr;
  ASSERT_OK(orMalloc(&memory, sizeof(host)));
  float* x = static_cast<float*>(memory);  // device memory, which the host cannot touch
  ASSERT_OK(orMemcpyAsync(x, host, sizeof(host), orMemcpyHostToDevice, stream));
  ASSERT_OK(Launch(stream, {"scale", orLaunchInline, 0}, Scale, x, 2, 16));
  ASSERT_OK(orMemcpyAsync(host, x, sizeof(host), orMemcpyDeviceToHost, stream));
  ASSERT_OK(orStreamSynchronize(stream));  // returns the error if a kernel failed
  EXPECT_EQ(host[15], 42.0f);
}

void AddScalar(const double* scalar, double* sum) { *sum += *scalar; }

TEST_F(LaunchTest, HostOperandsAreReadAtTheLaunch) {
  QueueLaunches();
  double* view = nullptr;
  double* sum = Allocate<double>(1, &view);
  *view = 1;
  Gate gate;
  ASSERT_OK(gate.Launch(nullptr));
  double scalar = 41;
  ASSERT_OK(Launch(nullptr, kCheap, AddScalar, &scalar, sum));
  scalar = 1000;
  gate.Open();
  ASSERT_OK(orStreamSynchronize(nullptr));
  EXPECT_EQ(*view, 42.0);
}

void Store(const std::complex<double>* value, std::complex<double>* to, void* nothing,
           const int* null) {
  *to = nothing == nullptr && null == nullptr ? *value : 0.0;
}

TEST_F(LaunchTest, NullStaysNullAndWideElementsFit) {
  std::complex<double>* view = nullptr;
  std::complex<double>* to = Allocate<std::complex<double>>(1, &view);
  const std::complex<double> value(3, 4);
  ASSERT_OK(Launch(nullptr, kQueued, Store, &value, to, nullptr, nullptr));
  ASSERT_OK(orStreamSynchronize(nullptr));
  EXPECT_EQ(*view, value);
}

TEST_F(LaunchTest, AKernelMustNotWriteToTheHost) {
  double scalar = 0, sum = 0;
  EXPECT_FAILS(Launch(nullptr, kCheap, AddScalar, &scalar, &sum), orErrorInvalidDevicePointer,
               "a kernel must not write to host memory");
}

TEST_F(LaunchTest, ErrorsOfTheLaunchAreReturned) {
  double* sum = Allocate<double>(1);
  EXPECT_FAILS(Launch(reinterpret_cast<orStream_t>(1), kCheap, AddScalar, sum, sum),
               orErrorInvalidHandle, "is not a valid stream");
}

void Many(const float* a, const float* b, const float* c, const float* d, const float* e,
          const float* f, const float* g, const float* h, const float* i, const float* j,
          const float* k, const float* l, const float* m, const float* n, const float* o,
          const float* p, const float* q, const float* r, const float* s, const float* t,
          float* out, int64_t size) {
  *out = 0;
  for (const float* each : {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t}) {
    *out += *each * static_cast<float>(size);
  }
}

TEST_F(LaunchTest, TwentyTwoParametersFit) {
  float* view = nullptr;
  float* p = Allocate<float>(2, &view);
  view[0] = 1;
  const float host = 2;
  ASSERT_OK(Launch(nullptr, kQueued, Many, p, p, p, p, p, p, p, p, p, p, &host, &host, &host, &host,
                   &host, &host, &host, &host, &host, &host, p + 1, 10));
  ASSERT_OK(orStreamSynchronize(nullptr));
  EXPECT_EQ(view[1], 300.0f);
}

}  // namespace
}  // namespace openreg::device
