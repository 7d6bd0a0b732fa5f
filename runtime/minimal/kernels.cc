// SPDX-License-Identifier: BSD-3-Clause
//
// Implements the kernels and their launch. A kernel runs on its stream's thread and translates the
// device addresses in its arguments.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "runtime/minimal/driver.h"
#include "runtime/minimal/memory.h"
#include "runtime/minimal/openreg_minimal.h"
#include "runtime/minimal/stream.h"

// The struct to which the opaque handle of openreg.h points.
struct orKernel {
  const char* name;
  int inputs;        // number of operands that the kernel reads (a, or a and b), or kNoOperands
  bool any_element;  // whether it only moves bytes and accepts elements of any size
  void (*run)(const orKernelArguments& arguments);
};

namespace openreg::minimal {
namespace {

constexpr int kMaxRank = OPENREG_MINIMAL_MAX_RANK;

// Calls `visit(out, a, b)` with element offsets, for every index of dimensions [first, last).
template <class Visit>
void ForEach(const orKernelArguments& arguments, int first, int last, int64_t a, int64_t b,
             const Visit& visit, int64_t out = 0) {
  if (first == last) {
    visit(out, a, b);
    return;
  }
  for (int64_t index = 0; index < arguments.sizes[first]; ++index) {
    ForEach(arguments, first + 1, last, a + index * arguments.a.strides[first],
            b + index * arguments.b.strides[first], visit,
            out + index * arguments.out.strides[first]);
  }
}

template <class Element>
Element* Data(const orOperand& operand) {
  return static_cast<Element*>(operand.data);
}

// Sums function(a, b, scalar) over the reduced dimensions into `out`, in double precision.
template <float (*kFunction)(float a, float b, float scalar)>
void Compute(const orKernelArguments& arguments) {
  const float* a = Data<float>(arguments.a);
  const float* b = Data<float>(arguments.b);
  const auto scalar = static_cast<float>(arguments.scalar);
  ForEach(arguments, 0, arguments.kept, 0, 0, [&](int64_t out, int64_t a_start, int64_t b_start) {
    // An elementwise kernel has one term, and -0.0 is the initial value that preserves a term's
    // sign.
    double sum = arguments.kept == arguments.rank ? -0.0 : 0.0;
    ForEach(arguments, arguments.kept, arguments.rank, a_start, b_start,
            [&](int64_t, int64_t a_at, int64_t b_at) {
              sum += kFunction(a[a_at], b != nullptr ? b[b_at] : 0, scalar);
            });
    Data<float>(arguments.out)[out] = static_cast<float>(sum);
  });
}

// Rounds only once, because the product of two floats is exact in double precision.
float Add(float a, float b, float scalar) {
  return static_cast<float>(a + double{scalar} * double{b});
}
float AddScalar(float a, float, float scalar) { return a + scalar; }
float Mul(float a, float b, float) { return a * b; }
float MulScalar(float a, float, float scalar) { return a * scalar; }
float Relu(float a, float, float) { return a < 0 ? 0 : a; }  // keeps NaN
float ThresholdBackward(float gradient, float input, float threshold) {
  return input <= threshold ? 0 : gradient;
}
float Same(float a, float, float) { return a; }

void Move(const orKernelArguments& arguments) {
  const auto size = static_cast<size_t>(arguments.element_size);
  const auto* a = Data<const char>(arguments.a);
  ForEach(arguments, 0, arguments.rank, 0, 0, [&](int64_t out, int64_t from, int64_t) {
    std::memcpy(Data<char>(arguments.out) + out * arguments.element_size,
                a != nullptr ? a + from * arguments.element_size
                             : reinterpret_cast<const char*>(arguments.bytes),
                size);
  });
}

void Sleep(const orKernelArguments& arguments) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::nano>(arguments.scalar));
}

constexpr int kNoOperands = -1;

constexpr orKernel kKernels[] = {
    {"fill", 0, true, Move},
    {"copy", 1, true, Move},
    {"add", 2, false, Compute<Add>},
    {"add_scalar", 1, false, Compute<AddScalar>},
    {"mul", 2, false, Compute<Mul>},
    {"mul_scalar", 1, false, Compute<MulScalar>},
    {"relu", 1, false, Compute<Relu>},
    {"threshold_backward", 2, false, Compute<ThresholdBackward>},
    {"sum", 1, false, Compute<Same>},
    {"mm", 2, false, Compute<Mul>},
    {"sleep", kNoOperands, true, Sleep},
};

// Checks that all elements of an operand lie in memory that kernels of the device may access.
// Translates the operand's device address.
bool Resolve(orOperand* operand, int rank, const orKernelArguments& arguments, int device) {
  __extension__ typedef __int128 Wide;  // a product of two 64-bit numbers
  Wide first = 0, last = 0;             // offsets of the lowest and the highest element
  for (int dimension = 0; dimension < rank; ++dimension) {
    const Wide extent = Wide{arguments.sizes[dimension] - 1} * operand->strides[dimension];
    (extent < 0 ? first : last) += extent;
  }
  const std::optional<Block> block = FindBlock(operand->data);
  if (!block || (block->device != device && block->device != -1)) {
    return false;
  }
  const Wide offset = reinterpret_cast<uintptr_t>(operand->data) - block->base;
  operand->data = Translate(operand->data);
  return offset + first * arguments.element_size >= 0 &&
         offset + (last + 1) * arguments.element_size <= Wide{block->size};
}

orError_t Run(const orKernel& kernel, orKernelArguments arguments, std::string* text) {
  const int rank = arguments.rank;
  if (std::any_of(arguments.sizes, arguments.sizes + arguments.kept,
                  [](int64_t size) { return size == 0; })) {
    return orSuccess;  // `out` has no elements
  }
  const bool reads =
      std::none_of(arguments.sizes, arguments.sizes + rank, [](int64_t size) { return size == 0; });
  orOperand* const operands[] = {&arguments.out, &arguments.a, &arguments.b};
  const char* const names[] = {"out", "a", "b"};
  for (int index = 0; index < 3; ++index) {
    if (index > kernel.inputs || (index > 0 && !reads)) {
      operands[index]->data = nullptr;
      continue;
    }
    const void* const pointer = operands[index]->data;
    if (!Resolve(operands[index], index == 0 ? arguments.kept : rank, arguments,
                 thread_state.device)) {
      char message[160];
      std::snprintf(message, sizeof(message),
                    "kernel %s: operand %s at %p is not inside memory that device %d can access",
                    kernel.name, names[index], pointer, thread_state.device);
      *text = message;
      return orErrorLaunchFailure;
    }
  }
  kernel.run(arguments);
  return orSuccess;
}

// Checks the arguments, except the pointers, which are checked when the kernel runs.
orError_t Check(const orKernel& kernel, const orKernelArguments& arguments) {
  const int64_t* const sizes = arguments.sizes;
  const int element = arguments.element_size;
  const bool moves = kernel.any_element;
  if (arguments.rank < 0 || arguments.rank > kMaxRank || arguments.kept < 0 ||
      arguments.kept > arguments.rank || (moves && arguments.kept != arguments.rank) ||
      (moves ? element != 1 && element != 2 && element != 4 && element != 8 : element != 4) ||
      std::any_of(sizes, sizes + arguments.rank, [](int64_t size) { return size < 0; })) {
    return Fail(
        orErrorInvalidValue,
        "orLaunchKernel: kernel %s got rank %d, kept %d, element size %d: rank must be 0 to %d, "
        "kept %s, the element size %s, and sizes must not be negative",
        kernel.name, arguments.rank, arguments.kept, element, kMaxRank,
        moves ? "equal to rank" : "0 to rank", moves ? "1, 2, 4 or 8" : "4");
  }
  return orSuccess;
}

}  // namespace

extern "C" {

OPENREG_API orError_t orGetKernel(orKernel_t* kernel, const char* name) {
  RETURN_IF_NULL(kernel);
  RETURN_IF_NULL(name);
  for (const orKernel& candidate : kKernels) {
    if (std::strcmp(candidate.name, name) == 0) {
      *kernel = &candidate;
      return orSuccess;
    }
  }
  *kernel = nullptr;
  return Fail(orErrorNotSupported, "orGetKernel: there is no kernel \"%s\"", name);
}

OPENREG_API orError_t orLaunchKernel(orStream_t handle, orKernel_t kernel, const void* arguments,
                                     size_t size) {
  std::shared_ptr<Stream> stream;
  RETURN_IF_ERROR(EnterWork(__func__));
  RETURN_IF_ERROR(Streams::Get().Find(__func__, handle, &stream));
  orKernelArguments copy;
  if (kernel == nullptr || arguments == nullptr || size != sizeof(copy)) {
    return Fail(
        orErrorInvalidValue,
        "orLaunchKernel: kernel %p with %zu bytes of arguments at %p: expected a kernel from "
        "orGetKernel and %zu bytes",
        static_cast<const void*>(kernel), size, arguments, sizeof(copy));
  }
  std::memcpy(&copy, arguments, sizeof(copy));
  RETURN_IF_ERROR(Check(*kernel, copy));
  const auto run = [kernel, copy](std::string* text) { return Run(*kernel, copy, text); };
  if (!LaunchBlocking()) {
    return stream->Queue(__func__, {.run = run});
  }
  uint64_t position = 0;
  Failure failure;
  RETURN_IF_ERROR(stream->Queue(__func__, {.run = run, .failure = &failure}, &position));
  RETURN_IF_ERROR(stream->Wait(__func__, position));
  return Report(failure);
}

}  // extern "C"
}  // namespace openreg::minimal
