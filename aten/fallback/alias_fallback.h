// SPDX-License-Identifier: BSD-3-Clause
//
// The fallback of the emulation: the CPU kernel works on device memory directly, through aliases
// (aten/launch/alias.h), in stream order. If the metadata of the results can be known before the
// kernel has run, it allocates the results on the device and queues the kernel:
//
//   by cache   operators whose result metadata depends only on the metadata of their arguments
//              (output_metadata.h): it is that of an earlier call with the same key.
//   by meta    structured operators of torch: their Meta kernel computes the metadata. (A Meta
//              kernel in Python takes a tenth of a millisecond, so the cache is tried first.)
//
// All other operators, and calls that are not in the cache, wait: the kernel is queued like any
// other, with aliases, and its results are adopted when it has finished (host_fallback.h).
//
// With OPENREG_FALLBACK_MODE=copy every call uses the host fallback, which copies. Any thread may
// call the fallback.
#ifndef ATEN_FALLBACK_ALIAS_FALLBACK_H_
#define ATEN_FALLBACK_ALIAS_FALLBACK_H_

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace openreg {

// Runs an operator on its CPU kernel. This boxed kernel is registered for all operators without a
// device kernel; other kernels may call it directly.
void alias_fallback(const c10::OperatorHandle& handle, torch::jit::Stack* stack);

}  // namespace openreg

#endif  // ATEN_FALLBACK_ALIAS_FALLBACK_H_
