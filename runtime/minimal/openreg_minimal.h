// SPDX-License-Identifier: BSD-3-Clause
//
// openreg_minimal.h - the kernels of the minimal driver. A program obtains them by name.
//
// openreg.h does not define how a program obtains a kernel. Here, a program requests it by name,
// like a compiled kernel from a module on real hardware. All kernels have the same arguments:
//
//   orKernel_t add;
//   orGetKernel(&add, "add");
//   orKernelArguments arguments = {.rank = 1, .kept = 1, .element_size = 4, .sizes = {16},
//                                  .out = {out, {1}}, .a = {a, {1}}, .b = {b, {1}}, .scalar = 1};
//   orLaunchKernel(stream, add, &arguments, sizeof(arguments));
//
// A kernel visits all indices of `sizes`. The first `kept` dimensions are those of `out`. The
// remaining dimensions, if any, are reduced: the results for their indices are added up. A stride
// of zero repeats an operand (broadcasting). Strides in any order transpose it.
//
//   name                 out =                          elements
//   fill                 the bytes of `scalar`          1, 2, 4 or 8 bytes
//   copy                 a                              1, 2, 4 or 8 bytes
//   add                  a + scalar * b                 float
//   add_scalar           a + scalar                     float
//   mul                  a * b                          float
//   mul_scalar           a * scalar                     float
//   relu                 a < 0 ? 0 : a                  float
//   threshold_backward   b <= scalar ? 0 : a            float (a: gradient, b: input)
//   sum                  sum of a                       float
//   mm                   sum of a * b: sizes are rows, columns, inner; kept is 2
//   sleep                nothing, after `scalar` nanoseconds   no operands
//
// A launch returns orErrorInvalidValue if its `size` is not the size of the struct. Each operand
// must be in live memory of the kernel's device or in pinned memory. Otherwise, the kernel fails
// with orErrorLaunchFailure and writes nothing. Any thread may call these functions.
#ifndef RUNTIME_MINIMAL_OPENREG_MINIMAL_H_
#define RUNTIME_MINIMAL_OPENREG_MINIMAL_H_

#include "runtime/device/openreg.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OPENREG_MINIMAL_MAX_RANK 8

// A tensor in memory: the address of its first element, and its strides in elements.
typedef struct orOperand {
  void* data;
  int64_t strides[OPENREG_MINIMAL_MAX_RANK];
} orOperand;

typedef struct orKernelArguments {
  int rank;          // number of dimensions in `sizes`
  int kept;          // number of these dimensions that `out` has
  int element_size;  // in bytes
  int64_t sizes[OPENREG_MINIMAL_MAX_RANK];
  orOperand out, a, b;
  union {
    double scalar;
    unsigned char bytes[8];  // for "fill", which uses the first `element_size` bytes
  };
} orKernelArguments;

// Gets the kernel with this name. Returns orErrorNotSupported if there is none. Operators that need
// this kernel then use the host fallback. A kernel stays valid until the process ends.
OPENREG_API orError_t orGetKernel(orKernel_t* kernel, const char* name);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // RUNTIME_MINIMAL_OPENREG_MINIMAL_H_
