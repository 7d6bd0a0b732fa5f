// SPDX-License-Identifier: BSD-3-Clause
//
// The fallback of the emulation: the CPU's kernel works on device memory itself, through aliases
// (aten/launch/alias.h), in the order of the stream. It makes the results on the device and queues
// the kernel where it can know the metadata of the results before the kernel has run:
//
//   by cache   operators whose results follow from the metadata of their arguments
//              (output_metadata.h): as in an earlier call with the same key.
//   by meta    structured operators of torch: their Meta kernel says it. (Where that is written in
//              Python it takes a tenth of a millisecond: the cache goes first.)
//
// All others, and calls that are new to the cache, wait: their kernel is queued like any other,
// with aliases, and its results are taken over when it is done (host_fallback.h).
//
// OPENREG_FALLBACK_MODE=copy: everything goes through the host fallback, by copies.
// Threads: any.
#ifndef ATEN_FALLBACK_ALIAS_FALLBACK_H_
#define ATEN_FALLBACK_ALIAS_FALLBACK_H_

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace openreg {

// The boxed kernel. Registered for all operators without one; others may ask for it by name.
void alias_fallback(const c10::OperatorHandle& handle, torch::jit::Stack* stack);

}  // namespace openreg

#endif  // ATEN_FALLBACK_ALIAS_FALLBACK_H_
