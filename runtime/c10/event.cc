// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/event.h"

namespace openreg {

orError_t create_recorded_event(orEvent_t* event, orStream_t stream, unsigned flags) {
  orEvent_t created = nullptr;
  orError_t error = orEventCreateWithFlags(&created, flags);
  if (error == orSuccess) {
    error = orEventRecord(created, stream);
    if (error != orSuccess) {
      (void)orEventDestroy(created);
      created = nullptr;
    }
  }
  *event = created;
  return error;
}

orError_t order_streams(orStream_t earlier, orStream_t later) {
  orEvent_t event = nullptr;
  orError_t error = create_recorded_event(&event, earlier);
  if (error == orSuccess) {
    error = orStreamWaitEvent(later, event, 0);
    (void)orEventDestroy(event);  // a pending wait keeps the event alive
  }
  return error;
}

}  // namespace openreg
