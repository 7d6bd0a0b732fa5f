// SPDX-License-Identifier: BSD-3-Clause
//
// event.h - records driver events, orders streams with them, and gives one to a c10::Event.
//
// A driver may have no events (tier 2 of openreg.h). The first two functions then return
// orErrorNotSupported, and the caller waits on the host instead. Neither throws, so destructors may
// call them. Any thread may call these functions.
#ifndef RUNTIME_C10_EVENT_H_
#define RUNTIME_C10_EVENT_H_

#include <c10/core/Event.h>

#include "runtime/c10/device.h"

namespace openreg {

// Creates an event with `flags` on the current device, which must be that of `stream`, and records
// it on `stream`. The caller owns `*event`, which is null unless orSuccess is returned.
orError_t create_recorded_event(orEvent_t* event, orStream_t stream,
                                unsigned flags = orEventDisableTiming);

// Makes work that is queued later on `later` wait for the work that is already queued on `earlier`.
// The current device must be that of `earlier`; `later` may belong to another one.
OPENREG_API orError_t order_streams(orStream_t earlier, orStream_t later);

// Makes `event` the owner of `native`, an event on `device`. `event` must never have been recorded.
// A c10::Event has no other way to obtain an event of another process. Does not record anything.
OPENREG_API void adopt_event(c10::Event& event, orEvent_t native, c10::DeviceIndex device);

}  // namespace openreg

#endif  // RUNTIME_C10_EVENT_H_
