// SPDX-License-Identifier: BSD-3-Clause
//
// Copies: every way of data into the device, out of it, within it and between devices, with change
// of dtype, layout and broadcasting. copy.cc decides on which stream a copy runs and whether the
// host waits for it:
//
//   within a device      queued on its current stream
//   between devices      queued on the source's current stream, after the destination's; which then
//                        waits
//   from pinned memory   with non_blocking: queued; the memory is kept from reuse until then
//                        without: done, in the order of the stream, when the call returns
//   from pageable memory done when the call returns if the stream is idle or the copy is large,
//                        otherwise copied aside and queued; the caller may change it after the call
//   to the host          waited for, except to pinned memory with non_blocking
//
// How the elements move is up to the copy kernel. Without one, what is contiguous on both sides and
// of one dtype is a copy of the driver's, and everything else takes the way through the host
// (host_copy.h). A vendor starts there and registers a kernel of the device later.
//
// Threads: any.
#ifndef ATEN_TENSORS_COPY_H_
#define ATEN_TENSORS_COPY_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace openreg {

// Copies `src` to `dst`, at least one of which is a device tensor and the other may be the CPU's,
// on the current stream of `device`. Their shapes are equal or `src` broadcasts, no memory
// overlaps, there are elements. Where `awaited`, the caller waits for the stream next; otherwise a
// CPU tensor is one that the kernel may own, and its memory stays until the stream has run.
using CopyKernel = void (*)(c10::DeviceIndex device, const at::Tensor& dst, const at::Tensor& src,
                            bool awaited);

// Reads the one element of a device tensor, when its stream has been waited for: every item() of a
// program does. Without one, the driver copies it.
using ScalarReader = at::Scalar (*)(const at::Tensor& self);

// One of each for the process. Called while a library is loaded, before any copy.
void set_copy_kernel(CopyKernel kernel);
void set_scalar_reader(ScalarReader reader);

// Whether an element means the same on both sides and has the same place among the others, so that
// bytes may be copied if the layouts agree too.
bool same_elements(const at::Tensor& dst, const at::Tensor& src);

}  // namespace openreg

#endif  // ATEN_TENSORS_COPY_H_
