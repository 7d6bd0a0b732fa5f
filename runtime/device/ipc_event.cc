// SPDX-License-Identifier: BSD-3-Clause
//
// Handles of events: where a board is (memfd.h), and which of its slots (board.h).
#include <cstring>
#include <memory>
#include <utility>

#include "runtime/device/arena.h"
#include "runtime/device/board.h"
#include "runtime/device/error.h"
#include "runtime/device/event.h"
#include "runtime/device/process.h"

namespace openreg::device {
namespace {

// What orIpcEventHandle holds.
struct Token {
  uint32_t magic;
  uint32_t version;
  MemfdPlace board;
  uint64_t serial;
  int32_t device;
  int32_t reserved;
};
static_assert(sizeof(Token) <= sizeof(orIpcEventHandle));
constexpr uint32_t kMagic = 0x6f724548;  // "orEH"
constexpr uint32_t kVersion = 1;

orError_t Export(orIpcEventHandle* handle, const Event& event) {
  if (event.scope() != Event::Scope::kShared) {
    return Fail(orErrorInvalidValue, "orIpcGetEventHandle: the event %s",
                event.scope() == Event::Scope::kImported
                    ? "is another process's: pass its handle on"
                    : "was made without orEventInterprocess");
  }
  std::shared_ptr<Peer> own;
  if (const orError_t error = Peer::Own("orIpcGetEventHandle", &own); error != orSuccess) {
    return error;
  }
  const Token token{kMagic, kVersion, own->place(), event.serial(), event.device(), 0};
  *handle = {};
  std::memcpy(handle->reserved, &token, sizeof(token));
  return orSuccess;
}

orError_t Import(orEvent_t* event, const Token& token) {
  std::shared_ptr<Peer> peer;
  if (const orError_t error =
          Peer::Open("orIpcOpenEventHandle", token.board, orErrorInvalidValue, &peer);
      error != orSuccess) {
    return error;
  }
  std::shared_ptr<Peer> own;
  if (const orError_t error = Peer::Own("orIpcOpenEventHandle", &own); error != orSuccess) {
    return error;
  }
  if (peer == own) {
    return Fail(orErrorInvalidValue,
                "orIpcOpenEventHandle: the handle was made by this process: use that event");
  }
  if (token.device >= arena.device_count()) {
    return Fail(orErrorInvalidDevice,
                "orIpcOpenEventHandle: the event is of device %d, and this process has %d "
                "(OPENREG_DEVICE_COUNT)",
                token.device, arena.device_count());
  }
  MarkWord word;
  if (!peer->Read(token.serial, &word)) {
    return Fail(orErrorInvalidValue,
                "orIpcOpenEventHandle: process %d has destroyed the event before it was opened; "
                "keep it until the other side has it",
                token.board.process);
  }
  return Events::Get().CreateImported(token.device, std::move(peer), token.serial, event);
}

}  // namespace
}  // namespace openreg::device

using openreg::device::EnterDevice;
using openreg::device::Event;
using openreg::device::Fail;

orError_t orIpcGetEventHandle(orIpcEventHandle* handle, orEvent_t event_handle) {
  if (const orError_t error = EnterDevice("orIpcGetEventHandle"); error != orSuccess) {
    return error;
  }
  if (handle == nullptr) {
    return Fail(orErrorInvalidValue, "orIpcGetEventHandle: handle is null");
  }
  Event* event;
  if (const orError_t error =
          openreg::device::FindEvent("orIpcGetEventHandle", event_handle, &event);
      error != orSuccess) {
    return error;
  }
  return openreg::device::Export(handle, *event);
}

orError_t orIpcOpenEventHandle(orEvent_t* event, const orIpcEventHandle* handle) {
  if (const orError_t error = EnterDevice("orIpcOpenEventHandle"); error != orSuccess) {
    return error;
  }
  if (event == nullptr || handle == nullptr) {
    return Fail(orErrorInvalidValue, "orIpcOpenEventHandle: event and handle must not be null");
  }
  *event = nullptr;
  openreg::device::Token token;
  std::memcpy(&token, handle->reserved, sizeof(token));
  if (token.magic != openreg::device::kMagic || token.version != openreg::device::kVersion ||
      token.device < 0 || token.serial == 0) {
    return Fail(orErrorInvalidValue,
                "orIpcOpenEventHandle: these bytes are no handle of this version of OpenReg");
  }
  return openreg::device::Import(event, token);
}
