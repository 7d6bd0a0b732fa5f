// SPDX-License-Identifier: BSD-3-Clause
//
// ipc.h - blocks of device memory that several processes use.
//
// A handle names a process, the memfd of one of its devices by number and by the random number in
// its name, and the block's range in it. Who opens it takes the file from /proc/<pid>/fd, checks
// the name, and maps that range into its own import window.
//
// Two facts need to survive a kill of either side, so the system keeps them:
//  - that a block is open: who opens it holds a read lock (F_OFD_SETLK) on the block's bytes of the
//  file,
//    which goes away with the process. The owner asks for conflicting locks before it uses a freed
//    block again.
//  - that a handle is still good: a table behind the device's memory in the same file has the
//  serial
//    number of each exported block; freeing takes it out.
// Opening locks first and looks at the serial afterwards; freeing takes the serial out first and
// looks at the locks afterwards: one of both always sees the other.
//
// All state is under the lock of Allocations.
#ifndef RUNTIME_DEVICE_IPC_H_
#define RUNTIME_DEVICE_IPC_H_

#include "runtime/device/allocation.h"

namespace openreg::device {

// Makes handles of this block unusable for processes that have not opened it yet.
void RetractExport(const Allocation& allocation);

// Whether another process has this block open.
bool IsOpenElsewhere(const Allocation& allocation);

// Closes all blocks which were imported for a device.
void CloseImports(int device);

// After a fork, in the child: its copies of our files would keep the locks when the parent dies.
// Async-signal-safe.
void CloseImportFilesInChild();

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_IPC_H_
