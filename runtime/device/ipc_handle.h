// SPDX-License-Identifier: BSD-3-Clause
//
// ipc_handle.h - converts the opaque bytes of an interprocess handle to their content and back. A
// Content type begins with `magic` and `version` and defines the constants kMagic and kVersion. Any
// thread may call these functions.
#ifndef RUNTIME_DEVICE_IPC_HANDLE_H_
#define RUNTIME_DEVICE_IPC_HANDLE_H_

#include <cstring>
#include <type_traits>

#include "runtime/device/error.h"
#include "runtime/device/openreg.h"

namespace openreg::device {

template <class Handle, class Content>
void PackHandle(Content content, Handle* handle) {
  static_assert(std::is_trivially_copyable_v<Content> && sizeof(Content) <= sizeof(Handle));
  content.magic = Content::kMagic;
  content.version = Content::kVersion;
  *handle = {};
  std::memcpy(handle->reserved, &content, sizeof(content));
}

// Reads the content of a handle. Fails with `function` in the message if the bytes have a different
// kind or version, or if content->Plausible() returns false.
template <class Handle, class Content>
orError_t UnpackHandle(const char* function, const Handle& handle, Content* content) {
  std::memcpy(content, handle.reserved, sizeof(*content));
  return content->magic == Content::kMagic && content->version == Content::kVersion &&
                 content->Plausible()
             ? orSuccess
             : Fail(orErrorInvalidValue,
                    "%s: these bytes are not a valid handle from this version of OpenReg",
                    function);
}

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_IPC_HANDLE_H_
