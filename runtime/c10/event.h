// SPDX-License-Identifier: BSD-3-Clause
//
// Events that torch does not make by itself: those between processes.
//
// A c10::Event makes its native event when it is recorded first and offers no other way in.
// Threads: as c10::Event.
#ifndef RUNTIME_C10_EVENT_H_
#define RUNTIME_C10_EVENT_H_

#include <c10/core/Event.h>

#include "runtime/c10/device.h"

namespace openreg {

// Gives `event`, which has never been recorded, the native event of `device`, which it destroys in
// the end. Nothing is recorded.
OPENREG_API void adopt_event(c10::Event& event, orEvent_t native, c10::DeviceIndex device);

}  // namespace openreg

#endif  // RUNTIME_C10_EVENT_H_
