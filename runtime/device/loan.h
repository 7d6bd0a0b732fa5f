// SPDX-License-Identifier: BSD-3-Clause
//
// loan.h - parts of blocks that another process uses for a while, in the order of streams.
//
// A loan names a range of a memfd, by a process that has it open, and a slot on the lender's board
// (board.h), which has what its stream had queued. Who borrows locks the range as with a block
// (ipc.h) and then takes the serial number out of the slot: until then the slot says that the bytes
// are lent, afterwards the lock does. So the lender may be the owner, or one who has borrowed
// itself, and a kill of the borrower ends its loans. The ranges of one file share a descriptor.
//
// All state is under the lock of Allocations, which is not held while a stream is waited for.
#ifndef RUNTIME_DEVICE_LOAN_H_
#define RUNTIME_DEVICE_LOAN_H_

#include <cstddef>

#include "runtime/device/allocation.h"
#include "runtime/device/ipc.h"

namespace openreg::device {

// Makes loans of this block's bytes unusable that nobody has taken.
void RetractLoans(const Allocation& allocation);

// An import of `size` bytes which was borrowed goes away.
void ForgetBorrowed(const Import& import, size_t size);

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_LOAN_H_
