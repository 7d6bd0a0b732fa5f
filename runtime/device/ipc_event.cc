// SPDX-License-Identifier: BSD-3-Clause
//
// Implements the C functions for interprocess event handles. A handle contains the location of a
// shared page (memfd.h) and the serial number of one of its slots (shared_page.h).
#include <memory>
#include <utility>

#include "runtime/device/arena.h"
#include "runtime/device/error.h"
#include "runtime/device/event.h"
#include "runtime/device/ipc_handle.h"
#include "runtime/device/process.h"
#include "runtime/device/shared_page.h"

namespace openreg::device {
namespace {

// The content of an orIpcEventHandle.
struct EventHandle {
  static constexpr uint32_t kMagic = 0x6f724548;  // "orEH"
  static constexpr uint32_t kVersion = 1;

  uint32_t magic;
  uint32_t version;
  MemfdPlace page;
  uint64_t serial;
  int32_t device;
  int32_t reserved;

  bool Plausible() const { return device >= 0 && serial != 0; }
};

orError_t Export(orIpcEventHandle* handle, const Event& event) {
  if (event.scope() != Event::Scope::kShared) {
    return Fail(orErrorInvalidValue, "orIpcGetEventHandle: the event %s",
                event.scope() == Event::Scope::kImported
                    ? "was opened from a handle: pass that handle on instead"
                    : "was created without orEventInterprocess");
  }
  std::shared_ptr<MappedPage> own;
  if (const orError_t error = MappedPage::Own("orIpcGetEventHandle", &own); error != orSuccess) {
    return error;
  }
  PackHandle(EventHandle{0, 0, own->place(), event.serial(), event.device(), 0}, handle);
  return orSuccess;
}

orError_t Import(orEvent_t* event, const EventHandle& exported) {
  std::shared_ptr<MappedPage> page;
  if (const orError_t error =
          MappedPage::Open("orIpcOpenEventHandle", exported.page, orErrorInvalidValue, &page);
      error != orSuccess) {
    return error;
  }
  std::shared_ptr<MappedPage> own;
  if (const orError_t error = MappedPage::Own("orIpcOpenEventHandle", &own); error != orSuccess) {
    return error;
  }
  if (page == own) {
    return Fail(orErrorInvalidValue,
                "orIpcOpenEventHandle: this process made the handle: use the event itself");
  }
  if (exported.device >= arena.device_count()) {
    return Fail(orErrorInvalidDevice,
                "orIpcOpenEventHandle: the event belongs to device %d, but this process has only "
                "%d devices (OPENREG_DEVICE_COUNT)",
                exported.device, arena.device_count());
  }
  MarkWord word;
  if (!page->Read(exported.serial, &word)) {
    return Fail(orErrorInvalidValue,
                "orIpcOpenEventHandle: process %d destroyed the event before it was opened; "
                "keep the event until the other process has opened it",
                exported.page.process);
  }
  return Events::Get().CreateImported(exported.device, std::move(page), exported.serial, event);
}

}  // namespace

extern "C" {

OPENREG_API orError_t orIpcGetEventHandle(orIpcEventHandle* handle, orEvent_t event_handle) {
  if (const orError_t error = EnterDevice("orIpcGetEventHandle"); error != orSuccess) {
    return error;
  }
  if (handle == nullptr) {
    return Fail(orErrorInvalidValue,
                "orIpcGetEventHandle: handle is null: pass the address of an orIpcEventHandle");
  }
  Event* event;
  if (const orError_t error = FindEvent("orIpcGetEventHandle", event_handle, &event);
      error != orSuccess) {
    return error;
  }
  return Export(handle, *event);
}

OPENREG_API orError_t orIpcOpenEventHandle(orEvent_t* event, const orIpcEventHandle* handle) {
  if (const orError_t error = EnterDevice("orIpcOpenEventHandle"); error != orSuccess) {
    return error;
  }
  if (const orError_t error =
          CheckNotNull("orIpcOpenEventHandle", {{"event", event}, {"handle", handle}});
      error != orSuccess) {
    return error;
  }
  *event = nullptr;
  EventHandle exported;
  if (const orError_t error = UnpackHandle("orIpcOpenEventHandle", *handle, &exported);
      error != orSuccess) {
    return error;
  }
  return Import(event, exported);
}

}  // extern "C"
}  // namespace openreg::device
