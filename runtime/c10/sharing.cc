// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/sharing.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/c10/device_allocator.h"
#include "runtime/c10/error.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

// The context of the DataPtrs of shared memory.
struct Shared {
  void* pointer;
  size_t size;
  c10::DeviceIndex device;
  int uses = 0;                   // DataPtrs; with none it waits for its loans
  c10::DataPtr own;               // as it was allocated; without memory if it was borrowed
  int borrows = 0;                // to be returned
  orStream_t home = nullptr;      // of what was borrowed: whose work the return waits for
  std::vector<orStream_t> users;  // others that have used what was borrowed
  c10::weak_intrusive_ptr<c10::StorageImpl> storage{c10::intrusive_ptr<c10::StorageImpl>()};
};

struct SharedMemory {
  std::mutex mutex;
  std::unordered_map<void*, std::unique_ptr<Shared>> all;
  std::list<Shared*> waiting;  // those without uses
  int borrowing = 0;           // calls that may find what waits to be theirs
};

SharedMemory& shared_memory() {
  static auto* const memory = std::make_unique<SharedMemory>().release();  // tensors may outlive it
  return *memory;
}

void let_go(void* context);

// Gives what was borrowed back, behind the work of its streams.
void return_borrowed(const Shared& shared) {
  int before = 0;
  if (orGetDevice(&before) != orSuccess || orSetDevice(shared.device) != orSuccess) {
    return;  // a deleter must not throw; the end of the process returns it
  }
  for (const orStream_t user : shared.users) {
    orEvent_t event = nullptr;
    if (orEventCreate(&event) == orSuccess) {
      // Fails for a stream that is gone; then its work was waited for, or the device ends.
      if (orEventRecord(event, user) == orSuccess) {
        (void)orStreamWaitEvent(shared.home, event, 0);
      }
      (void)orEventDestroy(event);
    }
  }
  for (int borrow = 0; borrow < shared.borrows; ++borrow) {
    if (orIpcReturn(shared.pointer, shared.home) == orErrorInvalidHandle) {
      (void)orDeviceSynchronize();  // someone has destroyed the stream
      (void)orIpcReturn(shared.pointer, nullptr);
    }
  }
  (void)orSetDevice(before);
}

// What is lent stays; what a kernel lets go of stays too, because it may not queue anything.
bool may_go(const Shared& shared) {
  int lent = 1;
  return orInKernel() == 0 && orIpcIsLent(&lent, shared.pointer, shared.size) == orSuccess &&
         lent == 0;
}

// Looks at those that have waited longest, at most `count` of them, and takes away what may go. The
// caller lets it go without the lock.
std::vector<std::unique_ptr<Shared>> take_ended(SharedMemory& memory, size_t count) {
  std::vector<std::unique_ptr<Shared>> ended;
  if (memory.borrowing != 0) {
    return ended;
  }
  for (count = std::min(count, memory.waiting.size()); count > 0; --count) {
    const auto first = memory.waiting.begin();
    if (may_go(**first)) {
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

size_t drop(std::vector<std::unique_ptr<Shared>> ended) {
  size_t bytes = 0;
  for (const std::unique_ptr<Shared>& shared : ended) {
    bytes += shared->size;
    if (shared->borrows != 0) {
      return_borrowed(*shared);
    }
  }
  return bytes;  // and the own memory goes with its DataPtr
}

// So many are looked at with each call, so that what has ended does not pile up.
constexpr size_t kGlances = 4;

void let_go(void* context) {
  if (is_in_bad_fork()) {
    return;  // the parent's
  }
  auto* const shared = static_cast<Shared*>(context);
  SharedMemory& memory = shared_memory();
  std::vector<std::unique_ptr<Shared>> ended;
  {
    const std::lock_guard<std::mutex> lock(memory.mutex);
    if (--shared->uses != 0) {
      return;
    }
    memory.waiting.push_front(shared);
    ended = take_ended(memory, kGlances);
  }
  (void)drop(std::move(ended));
}

c10::DataPtr use(Shared& shared) {
  ++shared.uses;
  return {shared.pointer, &shared, &let_go, c10::Device(kOpenRegType, shared.device)};
}

// The storage of shared memory: the one that there is, else a new one. `other`: a storage that has
// other memory by now; the last owner of one lets go, which needs the lock.
c10::Storage storage_of(SharedMemory& memory, Shared& shared, size_t bytes, c10::Storage* other) {
  if (c10::Storage alive(shared.storage.lock()); alive) {
    if (alive.data() == shared.pointer && alive.nbytes() == bytes) {
      return alive;
    }
    *other = std::move(alive);
  }
  if (shared.uses == 0) {
    memory.waiting.remove(&shared);
  }
  auto* const allocator = device_allocator();
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, use(shared), allocator,
                       /*resizable=*/shared.borrows == 0);
  shared.storage = storage.getWeakStorageImpl();
  return storage;
}

}  // namespace

orIpcLoan lend_storage(const c10::Storage& storage) {
  const c10::DeviceIndex device = resolve_device(storage.device().index());
  TORCH_CHECK(storage.nbytes() != 0, "a storage without bytes can not be lent");
  void* const pointer = storage.mutable_data();  // a copy of its own, if it was to be made
  orIpcLoan loan;
  OPENREG_CHECK(orIpcLend(&loan, pointer, storage.nbytes(), current_native_stream(device)));
  SharedMemory& memory = shared_memory();
  std::vector<std::unique_ptr<Shared>> ended;
  {
    const std::lock_guard<std::mutex> lock(memory.mutex);
    // Not for one that is shared, nor for an alias of one.
    if (!memory.all.contains(pointer)) {
      auto made = std::make_unique<Shared>();
      Shared* const shared = made.get();
      shared->pointer = pointer;
      shared->size = storage.nbytes();
      shared->device = device;
      shared->storage = storage.getWeakStorageImpl();
      memory.all[pointer] = std::move(made);
      shared->own = storage.unsafeGetStorageImpl()->set_data_ptr(use(*shared));
    }
    ended = take_ended(memory, kGlances);
  }
  (void)drop(std::move(ended));
  return loan;
}

c10::Storage borrow_storage(const orIpcLoan& loan, size_t bytes, c10::DeviceIndex device) {
  const orStream_t stream = current_native_stream(resolve_device(device));
  SharedMemory& memory = shared_memory();
  {
    const std::lock_guard<std::mutex> lock(memory.mutex);
    ++memory.borrowing;
  }
  // Not under the lock: it may wait for room in the stream, and a kernel there may let go.
  void* pointer = nullptr;
  const orError_t error = orIpcBorrow(&pointer, &loan, stream);
  orPointerAttributes attributes{};
  const bool known =
      error == orSuccess && orPointerGetAttributes(&attributes, pointer) == orSuccess;
  const bool borrowed = attributes.imported != 0;
  c10::Storage storage;
  c10::Storage other;
  std::vector<std::unique_ptr<Shared>> ended;
  {
    const std::lock_guard<std::mutex> lock(memory.mutex);
    --memory.borrowing;
    if (known) {
      std::unique_ptr<Shared>& shared = memory.all[pointer];
      if (shared == nullptr && borrowed) {
        shared = std::make_unique<Shared>();
        shared->pointer = pointer;
        shared->size = bytes;
        shared->device = device;
        shared->home = stream;
        shared->uses = 1;  // until there is a DataPtr: not in the list of those that wait
        shared->borrows = 1;
        storage = storage_of(memory, *shared, bytes, &other);
        --shared->uses;
      } else if (shared != nullptr) {
        shared->borrows += borrowed ? 1 : 0;
        if (borrowed && shared->home != stream &&
            std::find(shared->users.begin(), shared->users.end(), stream) == shared->users.end()) {
          shared->users.push_back(stream);
        }
        storage = storage_of(memory, *shared, bytes, &other);
      } else {
        memory.all.erase(pointer);
      }
    }
    ended = take_ended(memory, kGlances);
  }
  (void)drop(std::move(ended));
  OPENREG_CHECK(error);
  TORCH_CHECK(storage, "a loan of this process's own memory that is not lent");
  return storage;
}

size_t release_shared() {
  if (is_in_bad_fork()) {
    return 0;
  }
  SharedMemory& memory = shared_memory();
  std::vector<std::unique_ptr<Shared>> ended;
  {
    const std::lock_guard<std::mutex> lock(memory.mutex);
    ended = take_ended(memory, memory.waiting.size());
  }
  return drop(std::move(ended));
}

void record_shared(const c10::DataPtr& data, const c10::Stream& stream) {
  if (data.get_deleter() != &let_go) {
    return;
  }
  auto* const shared = static_cast<Shared*>(data.get_context());
  if (shared->borrows == 0) {
    device_allocator()->recordStream(shared->own, stream);
    return;
  }
  const orStream_t user = native_stream(stream);
  const std::lock_guard<std::mutex> lock(shared_memory().mutex);
  if (user != shared->home &&
      std::find(shared->users.begin(), shared->users.end(), user) == shared->users.end()) {
    shared->users.push_back(user);
  }
}

}  // namespace openreg
