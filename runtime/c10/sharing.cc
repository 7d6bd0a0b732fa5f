// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/sharing.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/device_timeline.h"
#include "runtime/c10/device_allocator.h"
#include "runtime/c10/error.h"
#include "runtime/c10/event.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

// The context of a DataPtr of shared memory.
struct Shared {
  void* pointer;
  size_t size;
  c10::DeviceIndex device;
  int uses = 0;                          // number of DataPtrs; an entry with 0 is in `waiting`
  std::list<Shared*>::iterator place{};  // its position in the `waiting` list
  c10::DataPtr own;                      // the original DataPtr; empty for imported memory
  int imports = 0;                       // number of imports that must be released
  orStream_t home = nullptr;             // for imported memory: the stream for the release
  std::vector<orStream_t> users;         // for imported memory: other streams that have used it
  c10::weak_intrusive_ptr<c10::StorageImpl> storage{c10::intrusive_ptr<c10::StorageImpl>()};
};

struct SharedMemory {
  std::mutex mutex;
  std::unordered_map<void*, std::unique_ptr<Shared>> all;
  std::list<Shared*> waiting;  // entries that no DataPtr uses
  int importing = 0;           // number of imports in progress, which may return a waiting entry
};

SharedMemory& shared_memory() {
  // Never destroyed, because tensors may outlive static objects.
  static auto* const memory = std::make_unique<SharedMemory>().release();
  return *memory;
}

void release(void* context);

// Orders later work on `later` after the work that is queued on `earlier`. The streams may belong
// to different devices: the event belongs to the device of `earlier`.
orError_t try_order(orStream_t earlier, orStream_t later) {
  int before = 0;
  int device = 0;
  orError_t error = orGetDevice(&before);
  error = error == orSuccess ? orStreamGetDevice(earlier, &device) : error;
  error = error == orSuccess ? orSetDevice(device) : error;
  if (error != orSuccess) {
    return error;
  }
  error = order_streams(earlier, later);
  (void)orSetDevice(before);
  return error;
}

// Queues the release of imported memory after the work on all streams that used it.
void release_imported(const Shared& shared) {
  int before = 0;
  if (orGetDevice(&before) != orSuccess || orSetDevice(shared.device) != orSuccess) {
    return;  // a deleter must not throw, and the memory is released when the process exits
  }
  for (const orStream_t user : shared.users) {
    // A failure can be ignored: either the stream was destroyed and its work is done, or the device
    // has been shut down.
    (void)try_order(user, shared.home);
  }
  for (int import = 0; import < shared.imports; ++import) {
    if (orIpcRelease(shared.pointer, shared.home) == orErrorInvalidHandle) {
      (void)orDeviceSynchronize();  // `home` was destroyed: wait for all streams
      (void)orIpcRelease(shared.pointer, nullptr);
    }
  }
  (void)orSetDevice(before);
}

// Returns whether a capture in progress uses the memory. Such memory cannot be released, because a
// release cannot be queued on a captured stream.
bool is_captured(const Shared& shared) {
  using allocator::DeviceTimeline;
  return shared.imports != 0 &&
         (DeviceTimeline::is_captured(shared.home) ||
          std::any_of(shared.users.begin(), shared.users.end(), &DeviceTimeline::is_captured));
}

// Returns whether the memory can be released. It cannot be released while it is exported or
// captured, or inside a kernel, which must not queue work.
bool is_releasable(const Shared& shared) {
  int exported = 1;
  return orInKernel() == 0 && !is_captured(shared) &&
         orIpcIsExported(&exported, shared.pointer, shared.size) == orSuccess && exported == 0;
}

// Scans the first `count` waiting entries. Removes and returns the releasable ones, and moves the
// others to the end of the list.
std::vector<std::unique_ptr<Shared>> take_releasable(SharedMemory& memory, size_t count) {
  std::vector<std::unique_ptr<Shared>> ended;
  if (memory.importing != 0) {
    return ended;
  }
  for (count = std::min(count, memory.waiting.size()); count > 0; --count) {
    const auto first = memory.waiting.begin();
    if (is_releasable(**first)) {
      const auto found = memory.all.find((*first)->pointer);
      ended.push_back(std::move(found->second));
      memory.all.erase(found);
      memory.waiting.erase(first);
    } else {
      memory.waiting.splice(memory.waiting.end(), memory.waiting, first);
    }
  }
  return ended;
}

// Removes releasable entries under the lock and then releases them without the lock. Returns the
// number of bytes released.
size_t release_ended(SharedMemory& memory, size_t count) {
  std::vector<std::unique_ptr<Shared>> ended;
  {
    const std::lock_guard<std::mutex> lock(memory.mutex);
    ended = take_releasable(memory, count);
  }
  size_t bytes = 0;
  for (const std::unique_ptr<Shared>& shared : ended) {
    bytes += shared->size;
    if (shared->imports != 0) {
      release_imported(*shared);
    }
  }
  return bytes;  // memory that this process exported is freed with its DataPtr
}

// Number of entries to scan in each call. It is above 1 so that releasable memory does not
// accumulate.
constexpr size_t kScans = 4;

void release(void* context) {
  if (in_forked_child()) {
    return;  // the memory belongs to the parent
  }
  auto* const shared = static_cast<Shared*>(context);
  SharedMemory& memory = shared_memory();
  {
    const std::lock_guard<std::mutex> lock(memory.mutex);
    if (--shared->uses != 0) {
      return;
    }
    shared->place = memory.waiting.insert(memory.waiting.begin(), shared);
  }
  (void)release_ended(memory, kScans);
}

c10::DataPtr use(Shared& shared) {
  ++shared.uses;
  return {shared.pointer, &shared, &release, c10::Device(kOpenRegType, shared.device)};
}

// Returns the storage for shared memory: the existing one, or a new one. If the existing storage
// now has different memory, it is moved to `*other`. The caller must destroy `*other` after it has
// released the lock, because destroying the last reference acquires the lock.
c10::Storage storage_of(SharedMemory& memory, Shared& shared, size_t bytes, c10::Storage* other) {
  if (c10::Storage alive(shared.storage.lock()); alive) {
    if (alive.data() == shared.pointer && alive.nbytes() == bytes) {
      return alive;
    }
    *other = std::move(alive);
  }
  if (shared.uses == 0) {
    memory.waiting.erase(shared.place);
  }
  auto* const allocator = device_allocator();
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, use(shared), allocator,
                       /*resizable=*/shared.imports == 0);
  shared.storage = storage.getWeakStorageImpl();
  return storage;
}

// A scope in which no waiting memory is released, because that memory may be the memory that is
// being imported.
class Importing {
 public:
  explicit Importing(SharedMemory& memory) : memory_(memory) {
    const std::lock_guard<std::mutex> lock(memory_.mutex);
    ++memory_.importing;
  }
  ~Importing() {
    const std::lock_guard<std::mutex> lock(memory_.mutex);
    --memory_.importing;
  }
  Importing(const Importing&) = delete;
  Importing& operator=(const Importing&) = delete;

 private:
  SharedMemory& memory_;
};

void add_user(Shared& shared, orStream_t user) {
  if (user != shared.home &&
      std::find(shared.users.begin(), shared.users.end(), user) == shared.users.end()) {
    shared.users.push_back(user);
  }
}

// Returns the streams other than `current` that may have pending work on the memory of a DataPtr,
// according to the allocator.
std::vector<orStream_t> streams_of(const c10::DataPtr& data, orStream_t current) {
  std::vector<orStream_t> streams;
  if (const allocator::Block* const block = block_of(data)) {
    streams = caching_allocator(static_cast<c10::DeviceIndex>(block->device)).streams_of(block);
  } else if (data.get_deleter() == &release) {
    const auto& shared = *static_cast<const Shared*>(data.get_context());
    const std::lock_guard<std::mutex> lock(shared_memory().mutex);
    if (shared.imports != 0) {
      streams = shared.users;
      streams.push_back(shared.home);
    } else if (const allocator::Block* const block = block_of(shared.own)) {
      streams = caching_allocator(shared.device).streams_of(block);
    }
  }
  std::erase(streams, current);
  std::erase_if(streams, [](orStream_t stream) {
    return allocator::DeviceTimeline::is_captured(stream) || orStreamQuery(stream) == orSuccess;
  });
  return streams;
}

// Returns the stream for exports from `device`. Only waits are queued on it.
orStream_t export_stream(c10::DeviceIndex device) {
  static std::array<orStream_t, OPENREG_MAX_DEVICES> streams{};
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  orStream_t& stream = streams[static_cast<size_t>(device)];
  if (stream == nullptr) {
    const DeviceScope scope(device);
    OPENREG_CHECK(orStreamCreate(&stream));
  }
  return stream;
}

void order(orStream_t earlier, orStream_t later) {
  orError_t error = try_order(earlier, later);
  if (error == orErrorInvalidHandle) {
    error = orDeviceSynchronize();  // the stream was destroyed: wait for all streams
  }
  OPENREG_CHECK(error);
}

// Returns a stream whose later work is ordered after all work on the memory. The current stream is
// not sufficient, because a torch.multiprocessing queue pickles on its own thread.
orStream_t ordered_stream(const c10::DataPtr& data, c10::DeviceIndex device) {
  const orStream_t current = current_native_stream(device);
  const std::vector<orStream_t> others = streams_of(data, current);
  if (others.empty() || is_capturing(current)) {
    return current;
  }
  const DeviceScope scope(device);
  const orStream_t stream = export_stream(device);
  order(current, stream);
  for (const orStream_t other : others) {
    order(other, stream);
  }
  return stream;
}

c10::Storage import_from(SharedMemory& memory, const orIpcMemoryHandle& handle, size_t bytes,
                         c10::DeviceIndex device) {
  const orStream_t stream = current_native_stream(resolve_device(device));
  const Importing importing(memory);
  // Import without the lock: the import may wait for space in the stream's queue, and a kernel in
  // that queue may need the lock.
  void* pointer = nullptr;
  OPENREG_CHECK(orIpcImport(&pointer, &handle, stream));
  orPointerAttributes attributes{};
  OPENREG_CHECK(orPointerGetAttributes(&attributes, pointer));
  const bool imported = attributes.imported != 0;
  if (imported && attributes.size != bytes) {
    (void)orIpcRelease(pointer, stream);
    TORCH_CHECK_VALUE(false, "a handle to ", attributes.size,
                      " bytes cannot be imported as a storage of ", bytes, " bytes");
  }
  c10::Storage other;
  const std::lock_guard<std::mutex> lock(memory.mutex);
  auto found = memory.all.find(pointer);
  if (found == memory.all.end()) {
    TORCH_CHECK(imported, "the handle refers to memory of this process that is not exported");
    auto made = std::make_unique<Shared>();
    made->pointer = pointer;
    made->size = bytes;
    made->device = device;
    made->home = stream;
    found = memory.all.emplace(pointer, std::move(made)).first;
    found->second->place = memory.waiting.insert(memory.waiting.begin(), found->second.get());
  }
  Shared& shared = *found->second;
  TORCH_CHECK_VALUE(bytes <= shared.size, "a handle to ", shared.size,
                    " bytes cannot be imported as a storage of ", bytes, " bytes");
  if (imported) {
    ++shared.imports;
    add_user(shared, stream);
  }
  return storage_of(memory, shared, bytes, &other);
}

}  // namespace

orIpcMemoryHandle export_storage(const c10::Storage& storage) {
  const c10::DeviceIndex device = resolve_device(storage.device().index());
  TORCH_CHECK(storage.nbytes() != 0,
              "cannot export a storage of 0 bytes, because it has no memory");
  void* const pointer = storage.mutable_data();  // materializes a lazy clone
  orIpcMemoryHandle handle;
  OPENREG_CHECK(
      orIpcExport(&handle, pointer, storage.nbytes(), ordered_stream(storage.data_ptr(), device)));
  SharedMemory& memory = shared_memory();
  {
    const std::lock_guard<std::mutex> lock(memory.mutex);
    if (const auto known = memory.all.find(pointer); known != memory.all.end()) {
      // The memory was exported before, possibly with a different length through an alias.
      known->second->size = std::max(known->second->size, storage.nbytes());
    } else {
      auto made = std::make_unique<Shared>();
      Shared* const shared = made.get();
      shared->pointer = pointer;
      shared->size = storage.nbytes();
      shared->device = device;
      shared->storage = storage.getWeakStorageImpl();
      memory.all[pointer] = std::move(made);
      shared->own = storage.unsafeGetStorageImpl()->set_data_ptr(use(*shared));
    }
  }
  (void)release_ended(memory, kScans);
  return handle;
}

c10::Storage import_storage(const orIpcMemoryHandle& handle, size_t bytes,
                            c10::DeviceIndex device) {
  SharedMemory& memory = shared_memory();
  c10::Storage storage = import_from(memory, handle, bytes, device);
  (void)release_ended(memory, kScans);
  return storage;
}

size_t release_shared() {
  return in_forked_child() ? 0 : release_ended(shared_memory(), std::numeric_limits<size_t>::max());
}

void record_shared(const c10::DataPtr& data, const c10::Stream& stream) {
  if (data.get_deleter() != &release) {
    return;
  }
  auto* const shared = static_cast<Shared*>(data.get_context());
  const orStream_t user = native_stream(stream);
  {
    const std::lock_guard<std::mutex> lock(shared_memory().mutex);
    if (shared->imports != 0) {
      add_user(*shared, user);
      return;
    }
  }
  device_allocator()->recordStream(shared->own, stream);
}

}  // namespace openreg
