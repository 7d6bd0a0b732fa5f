// SPDX-License-Identifier: BSD-3-Clause
//
// Events that torch does not make itself: those between processes.
//
// A c10::Event makes its native event at the first record, and takes none in any other way.
// Threads: as for c10::Event.
#ifndef RUNTIME_C10_EVENT_H_
#define RUNTIME_C10_EVENT_H_

#include <c10/core/Event.h>

#include "runtime/c10/device.h"

namespace openreg {

// Makes `event`, which has never been recorded, the owner of the native event of `device`. Records
// nothing.
OPENREG_API void adopt_event(c10::Event& event, orEvent_t native, c10::DeviceIndex device);

}  // namespace openreg

#endif  // RUNTIME_C10_EVENT_H_
