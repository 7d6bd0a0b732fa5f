// SPDX-License-Identifier: BSD-3-Clause
//
// private_stream.h - a temporary stream, for work that must not wait for the program's work.
//
// The object owns the stream. Its destructor does not wait: the driver destroys the stream when the
// work that is queued on it has run. Only the thread that created the object uses it.
#ifndef DISTRIBUTED_PRIVATE_STREAM_H_
#define DISTRIBUTED_PRIVATE_STREAM_H_

#include "runtime/c10/device.h"
#include "runtime/c10/error.h"

namespace openreg {

class PrivateStream {
 public:
  explicit PrivateStream(c10::DeviceIndex device) {
    const DeviceScope scope(device);
    OPENREG_CHECK(orStreamCreate(&stream_));
  }
  ~PrivateStream() { (void)orStreamDestroy(stream_); }
  PrivateStream(const PrivateStream&) = delete;
  PrivateStream& operator=(const PrivateStream&) = delete;

  orStream_t get() const { return stream_; }

 private:
  orStream_t stream_ = nullptr;
};

}  // namespace openreg

#endif  // DISTRIBUTED_PRIVATE_STREAM_H_
