// SPDX-License-Identifier: BSD-3-Clause
//
// Storages that several processes use: loans of the driver (orIpcLend) as storages of torch.
//
// A storage that was lent keeps its memory for as long as a loan is out, also after the storage is
// gone: the memory then waits here, and goes back to the allocator when the last loan has ended. It
// is looked at when something else is shared or let go, by release_shared(), and before an
// allocation fails. A borrowed storage gives its memory back when the work of its streams is done.
// A process has one storage for the same bytes: what it borrows twice, or gets back, is what it
// has. Threads: any. In the child of a fork, letting go does nothing.
#ifndef RUNTIME_C10_SHARING_H_
#define RUNTIME_C10_SHARING_H_

#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <cstddef>

#include "runtime/c10/device.h"

namespace openreg {

// A loan of all bytes of `storage`, of which there is one at least, in the order of the current
// stream of its device, the stream of the memory, and those that were recorded for it. Good for one
// borrow_storage, in any process.
OPENREG_API orIpcLoan lend_storage(const c10::Storage& storage);

// The storage of `bytes` bytes that was lent; the current stream of `device` waits for the lender's
// work. It can not be resized, unless it is this process's own.
OPENREG_API c10::Storage borrow_storage(const orIpcLoan& loan, size_t bytes,
                                        c10::DeviceIndex device);

// Lets go of memory whose loans have ended; the number of bytes that went back to the allocator of
// this process or to another one.
OPENREG_API size_t release_shared();

// For c10::Allocator::recordStream: work on `stream` uses the memory too. Nothing for memory that
// is not shared.
void record_shared(const c10::DataPtr& data, const c10::Stream& stream);

}  // namespace openreg

#endif  // RUNTIME_C10_SHARING_H_
