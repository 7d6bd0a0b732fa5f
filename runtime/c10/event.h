// SPDX-License-Identifier: BSD-3-Clause
//
// event.h - makes a c10::Event from an existing native event, for events shared between processes.
//
// A c10::Event creates its native event at the first record and has no other way to obtain one.
// The same threads as for a c10::Event may call it.
#ifndef RUNTIME_C10_EVENT_H_
#define RUNTIME_C10_EVENT_H_

#include <c10/core/Event.h>

#include "runtime/c10/device.h"

namespace openreg {

// Makes `event`, which has never been recorded, the owner of `native`, an event on `device`.
// Records nothing.
OPENREG_API void adopt_event(c10::Event& event, orEvent_t native, c10::DeviceIndex device);

}  // namespace openreg

#endif  // RUNTIME_C10_EVENT_H_
