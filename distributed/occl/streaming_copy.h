// SPDX-License-Identifier: BSD-3-Clause
//
// streaming_copy.h - copies messages that are larger than the cache.
//
// memcpy reads each destination line into the cache before it overwrites the line. For messages
// that do not fit into the cache, these reads are a third of the memory traffic: memcpy moves 64
// MiB between two processes at 7 GB/s. Stores that bypass the cache reach 14 GB/s if they alternate
// between four pages (one page per open memory row). Messages below kStreamingBytes are copied with
// memcpy, so that they stay in the cache for their reader. Any thread may call the function.
#ifndef DISTRIBUTED_OCCL_STREAMING_COPY_H_
#define DISTRIBUTED_OCCL_STREAMING_COPY_H_

#include <cstddef>

namespace openreg::occl {

inline constexpr size_t kStreamingBytes = size_t{16} << 20;

// Copies between buffers that do not overlap. A thread that synchronizes with the calling thread
// afterwards sees all bytes. Without SSE2, this is memcpy.
void StreamingCopy(unsigned char* to, const unsigned char* from, size_t bytes);

}  // namespace openreg::occl

#endif  // DISTRIBUTED_OCCL_STREAMING_COPY_H_
