// SPDX-License-Identifier: BSD-3-Clause
//
// Copies to the device, from it, within it and between devices, with conversion of dtype and
// layout, and broadcasting. copy.cc decides on which stream a copy runs and whether the host waits
// for it:
//
//   within a device      queued on its current stream
//   between devices      queued on the source's current stream, after the destination's stream,
//                        which then waits for it
//   from pinned memory   with non_blocking: queued; the memory is not reused before the copy has
//                        run. Without: complete, in stream order, when the call returns
//   from pageable memory complete when the call returns if the stream is idle or the copy is large;
//                        otherwise copied to a staging buffer and queued. The caller may change the
//                        source after the call
//   to the host          complete when the call returns, except for a copy to pinned memory with
//                        non_blocking
//
// The copy kernel moves the elements. Without one, copies between contiguous tensors of the same
// dtype are driver copies, and all others go through the host (host_copy.h). A vendor starts with
// that and registers a device copy kernel later.
//
// Any thread may call it.
#ifndef ATEN_TENSORS_COPY_H_
#define ATEN_TENSORS_COPY_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace openreg {

// Copies `src` to `dst` on the current stream of `device`. At least one is a device tensor; the
// other may be a CPU tensor. Their shapes are equal or `src` broadcasts; they do not overlap and
// are not empty. If `awaited`, the caller waits for the stream next. Otherwise the kernel may own a
// CPU tensor, whose memory is kept until the stream has run.
using CopyKernel = void (*)(c10::DeviceIndex device, const at::Tensor& dst, const at::Tensor& src,
                            bool awaited);

// Reads the only element of a device tensor whose stream has been synchronized. Every item() calls
// this function. If no reader is set, the driver copies the element.
using ScalarReader = at::Scalar (*)(const at::Tensor& self);

// Set the process's copy kernel and scalar reader. Called while a library is loaded, before any
// copy.
void set_copy_kernel(CopyKernel kernel);
void set_scalar_reader(ScalarReader reader);

// Returns whether both tensors have the same sizes, dtype and lazy bits, so that bytes can be
// copied if the layouts agree too.
bool same_elements(const at::Tensor& dst, const at::Tensor& src);

}  // namespace openreg

#endif  // ATEN_TENSORS_COPY_H_
