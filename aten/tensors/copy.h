// SPDX-License-Identifier: BSD-3-Clause
//
// Copies to the device, from the device, within a device and between devices, including conversion
// of dtype and layout, and broadcasting. copy.cc decides on which stream a copy runs and whether
// the host waits for it:
//
//   within a device      The copy is queued on the device's current stream.
//   between devices      The copy is queued on the source's current stream, after the work of the
//                        destination's stream, which then waits for the copy.
//   from pinned memory   With non_blocking, the copy is queued, and the memory is not reused before
//                        the copy has run. Otherwise the copy runs in stream order and is complete
//                        when the call returns.
//   from pageable memory If the stream is idle or the copy is large, the copy is complete when the
//                        call returns. Otherwise the source is copied to a staging buffer, and the
//                        copy is queued. In both cases, the caller may then change the source.
//   to the host          The copy is complete when the call returns, except for a copy to pinned
//                        memory with non_blocking.
//
// The copy kernel moves the elements. Without one, the driver copies between contiguous tensors of
// the same dtype, and all other copies go through the host (copy_through_host.h). A vendor can
// start without a copy kernel and register one later.
//
// Any thread may copy.
#ifndef ATEN_TENSORS_COPY_H_
#define ATEN_TENSORS_COPY_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace openreg {

// Copies `src` to `dst` on the current stream of `device`. At least one of them is a device tensor;
// the other may be a CPU tensor. Their shapes are equal, or `src` can be broadcast. They do not
// overlap and are not empty. If `awaited` is true, the caller waits for the stream next. Otherwise
// the kernel may own a CPU tensor, whose memory is kept until the stream has run the copy.
using CopyKernel = void (*)(c10::DeviceIndex device, const at::Tensor& dst, const at::Tensor& src,
                            bool awaited);

// Reads the only element of a device tensor whose stream has been synchronized. Every item() calls
// this function. If no reader is set, the driver copies the element.
using ScalarReader = at::Scalar (*)(const at::Tensor& self);

// Set the copy kernel and the scalar reader of the process. Called while a library is loaded,
// before any copy.
void set_copy_kernel(CopyKernel kernel);
void set_scalar_reader(ScalarReader reader);

// Returns whether both tensors have the same sizes, dtype and lazy bits. If their layouts are
// equal, too, a copy can copy bytes.
bool same_elements(const at::Tensor& dst, const at::Tensor& src);

}  // namespace openreg

#endif  // ATEN_TENSORS_COPY_H_
