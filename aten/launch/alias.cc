// SPDX-License-Identifier: BSD-3-Clause
#include "aten/launch/alias.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>

#include <utility>

#include "runtime/c10/error.h"
#include "runtime/device/openreg_emulation.h"

namespace openreg {
namespace {

const orAddressWindow& address_window() {
  static const orAddressWindow window = [] {
    initialize();
    orAddressWindow found;
    OPENREG_CHECK(orGetAddressWindow(&found));
    return found;
  }();
  return window;
}

c10::DataPtr kernel_data(const c10::StorageImpl& source) {
  // There is no deleter, because an alias owns no memory.
  return {kernel_pointer(source.data()), c10::Device(c10::kCPU)};
}

// Creates an object outside of inference mode. An object created in inference mode remains an
// inference tensor in later launches and cannot require gradients.
template <class Impl, class... Arguments>
c10::intrusive_ptr<Impl> make_impl(Arguments&&... arguments) {
  const c10::InferenceMode normal(/*enabled=*/false);
  return c10::make_intrusive<Impl>(std::forward<Arguments>(arguments)...);
}

c10::intrusive_ptr<c10::StorageImpl> make_alias_storage(const c10::StorageImpl& source) {
  // The storage is resizable, because a CPU kernel may resize its output. The new memory is then
  // CPU memory, which the launching code copies to the device (host_arguments.cc).
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), source.nbytes(),
                                               kernel_data(source), c10::GetCPUAllocator(),
                                               /*resizable=*/true);
}

// Makes the storage `alias` refer to the memory of `source`.
void show(const c10::StorageImpl& source, c10::StorageImpl& alias) {
  if (C10_UNLIKELY(!alias._mutable_data_ptr_no_checks().unsafe_reset_data_and_ctx(
          kernel_pointer(source.data())))) {
    alias.set_data_ptr_noswap(kernel_data(source));  // a kernel has reallocated the alias
  }
  alias.set_nbytes(source.nbytes());
}

constexpr c10::DispatchKeySet kCpuKeys(c10::DispatchKey::CPU);

void copy_bits(const c10::TensorImpl& from, c10::TensorImpl& to) {
  if (C10_UNLIKELY(from.is_conj() || to.is_conj())) {
    to._set_conj(from.is_conj());
  }
  if (C10_UNLIKELY(from.is_neg() || to.is_neg())) {
    to._set_neg(from.is_neg());
  }
}

}  // namespace

void* kernel_pointer(const void* pointer) {
  const orAddressWindow& window = address_window();
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const bool ours = address - window.base < window.size;
  return reinterpret_cast<void*>(ours ? address + static_cast<uintptr_t>(window.kernel_offset)
                                      : address);
}

class AliasPool::Impl final : public c10::TensorImpl {
 public:
  explicit Impl(c10::Storage storage)
      : c10::TensorImpl(std::move(storage), kCpuKeys, caffe2::TypeMeta::Make<float>()) {}

  void view(const c10::TensorImpl& source) {
    data_type_ = source.dtype();
    // Loops launch the same shapes repeatedly. If the shape is unchanged, all derived properties
    // are still valid.
    if (same_numbers(sizes(), source.sizes()) && same_numbers(strides(), source.strides())) {
      storage_offset_ = source.storage_offset();
    } else {
      set_sizes_and_strides(source.sizes(), source.strides(), source.storage_offset());
    }
    copy_bits(source, *this);
  }
};

size_t AliasPool::find(const c10::StorageImpl& original) const {
  size_t place = 0;
  while (place < shown_used_ && shown_[place].original != &original) {
    ++place;
  }
  return place;
}

c10::MaybeOwned<at::Tensor> AliasPool::borrow(const at::Tensor& tensor) {
  using Borrowed = c10::MaybeOwned<at::Tensor>;
  const c10::TensorImpl& source = *tensor.unsafeGetTensorImpl();
  for (size_t i = 0; i < used_; ++i) {
    if (slots_[i].original == &source) {
      return Borrowed::borrowed(slots_[i].tensor);
    }
  }
  // The storage has lost its memory: Tensor.untyped_storage().resize_(0).
  TORCH_CHECK(source.storage_initialized(), "openreg: a tensor with sizes ", source.sizes(),
              " has a storage of 0 bytes: resize the storage before using the tensor");
  add_dtype(source);
  const c10::StorageImpl& storage = *source.unsafe_storage().unsafeGetStorageImpl();
  const size_t place = find(storage);
  if (C10_UNLIKELY(used_ == kSlots)) {
    // All slots are in use. Make a separate alias; if an earlier alias has the same device storage,
    // the new alias shares that alias's storage.
    auto fresh = make_impl<Impl>(
        c10::Storage(place < shown_used_ ? shown_[place].storage : make_alias_storage(storage)));
    fresh->view(source);
    return Borrowed::owned(at::Tensor(std::move(fresh)));
  }
  Shown& shown = shown_[place];
  if (place == shown_used_) {
    if (C10_UNLIKELY(!shown.storage)) {
      shown.storage = make_alias_storage(storage);
    } else {
      show(storage, *shown.storage);
    }
    shown.original = &storage;
    ++shown_used_;
  }
  Slot& slot = slots_[used_++];
  if (C10_UNLIKELY(!slot.tensor.defined())) {
    slot.tensor = at::Tensor(make_impl<Impl>(c10::Storage(shown.storage)));
    slot.shown = place;
    ++shown.holders;
  } else if (C10_UNLIKELY(slot.shown != place)) {
    slot.tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(c10::Storage(shown.storage));
    --shown_[slot.shown].holders;
    slot.shown = place;
    ++shown.holders;
  }
  slot.original = &source;
  static_cast<Impl&>(*slot.tensor.unsafeGetTensorImpl()).view(source);
  return Borrowed::borrowed(slot.tensor);
}

void AliasPool::refresh(const at::Tensor& alias, const at::Tensor& tensor) {
  const c10::TensorImpl& source = *tensor.unsafeGetTensorImpl();
  const c10::StorageImpl& storage = *source.unsafe_storage().unsafeGetStorageImpl();
  c10::TensorImpl& impl = *alias.unsafeGetTensorImpl();
  show(storage, *impl.unsafe_storage().unsafeGetStorageImpl());
  static_cast<Impl&>(impl).view(source);
}

bool AliasPool::is_kept() const {
  for (size_t i = 0; i < used_; ++i) {
    if (slots_[i].tensor.use_count() != 1) {
      return true;
    }
  }
  for (size_t i = 0; i < shown_used_; ++i) {
    if (shown_[i].storage.use_count() != shown_[i].holders + 1 ||
        shown_[i].storage->allocator() != c10::GetCPUAllocator()) {
      return true;
    }
  }
  return false;
}

void AliasPool::reset() {
  if (C10_UNLIKELY(is_kept())) {
    slots_ = {};
    shown_ = {};
  }
  used_ = 0;
  shown_used_ = 0;
  dtypes_ = 0;
  dtype_set_ = 0;
}

}  // namespace openreg
