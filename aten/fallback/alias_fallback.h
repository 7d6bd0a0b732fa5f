// SPDX-License-Identifier: BSD-3-Clause
//
// The fallback of the emulation: the CPU kernel works on device memory directly, through aliases
// (aten/launch/alias.h), in stream order. If the fallback can determine the metadata of the results
// before the kernel has run, it allocates the results on the device, queues the kernel and returns.
// There are two ways to determine the metadata:
//
//   by cache   For operators whose result metadata depends only on the metadata of their arguments
//              (output_metadata.h): an earlier call with the same key provides it.
//   by meta    For structured operators of torch: the Meta kernel computes it. (A Meta kernel in
//              Python takes a tenth of a millisecond, so the cache is tried first.)
//
// For all other operators, and for calls that are not in the cache, the host waits. In this case
// too, the kernel is queued with aliases; when it has finished, the fallback returns its results as
// device tensors (host_fallback.h).
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
