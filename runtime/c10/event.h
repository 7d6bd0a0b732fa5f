// SPDX-License-Identifier: BSD-3-Clause
//
// event.h - creates a c10::Event from an existing driver event, for events that processes share.
//
// A c10::Event creates its driver event when it is first recorded and has no other way to obtain
// one. These functions may be called from the same threads as the c10::Event's own functions.
#ifndef RUNTIME_C10_EVENT_H_
#define RUNTIME_C10_EVENT_H_

#include <c10/core/Event.h>

#include "runtime/c10/device.h"

namespace openreg {

// Makes `event` the owner of `native`, an event on `device`. `event` must never have been recorded.
// Does not record anything.
OPENREG_API void adopt_event(c10::Event& event, orEvent_t native, c10::DeviceIndex device);

}  // namespace openreg

#endif  // RUNTIME_C10_EVENT_H_
