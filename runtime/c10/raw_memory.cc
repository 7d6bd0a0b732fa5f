// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/raw_memory.h"

#include <c10/util/Exception.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "runtime/c10/device_allocator.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

struct RawMemory {
  std::mutex mutex;
  std::unordered_map<void*, c10::DataPtr> blocks;
};

// Returns the table of blocks. Like the allocator, it is never destroyed.
RawMemory& raw_memory() {
  static auto* const memory = std::make_unique<RawMemory>().release();
  return *memory;
}

}  // namespace

void* allocate_raw(int64_t bytes, c10::DeviceIndex device, orStream_t stream) {
  TORCH_CHECK_VALUE(bytes >= 0, "openreg: cannot allocate device memory of negative size: ", bytes,
                    " bytes");
  // external_stream() rejects a destroyed stream or a stream of another device.
  const c10::Stream checked = external_stream(stream, resolve_device(device));
  c10::DataPtr data =
      allocate_on_stream(device, static_cast<size_t>(bytes), native_stream(checked));
  void* const pointer = data.get();
  if (pointer != nullptr) {
    RawMemory& memory = raw_memory();
    const std::lock_guard lock(memory.mutex);
    memory.blocks.emplace(pointer, std::move(data));
  }
  return pointer;
}

void free_raw(void* pointer) {
  if (pointer == nullptr) {
    return;
  }
  c10::DataPtr data;
  {
    RawMemory& memory = raw_memory();
    const std::lock_guard lock(memory.mutex);
    const auto found = memory.blocks.find(pointer);
    TORCH_CHECK_VALUE(found != memory.blocks.end(), "openreg: ", pointer,
                      " was not returned by caching_allocator_alloc or was already freed");
    data = std::move(found->second);
    memory.blocks.erase(found);
  }
}

}  // namespace openreg
