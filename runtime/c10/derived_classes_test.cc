// SPDX-License-Identifier: BSD-3-Clause
//
// Tests the code in docs/storage.md for backends that derive classes from torch's BackendMeta and
// StorageImpl. This is a separate program, because torch uses the class of storages until the
// process ends.
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/SymInt.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "runtime/c10/device_allocator.h"

namespace {

// Metadata that a kernel may change.
struct Layout final : c10::BackendMeta {
  c10::intrusive_ptr<c10::BackendMeta> clone(
      const c10::intrusive_ptr<c10::BackendMeta>& /*ptr*/) const override {
    return c10::make_intrusive<Layout>(*this);
  }

  int tile = 16;
};

Layout* layout(const at::Tensor& tensor) {
  return dynamic_cast<Layout*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
}

TEST(DerivedClassesTest, DetachedTensorHasItsOwnMetadata) {
  const at::Tensor tensor = at::ones({2});
  tensor.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<Layout>());
  layout(tensor)->tile = 8;

  const at::Tensor detached = tensor.detach();
  layout(tensor)->tile = 4;
  ASSERT_NE(layout(detached), nullptr);
  EXPECT_EQ(layout(detached)->tile, 8);
}

struct Described final : c10::StorageImpl {
  using c10::StorageImpl::StorageImpl;
  std::string description;
};

// Creates a storage. torch passes no memory if the storage must allocate it.
c10::intrusive_ptr<c10::StorageImpl> make(c10::StorageImpl::use_byte_size_t bytes, c10::SymInt size,
                                          c10::DataPtr data, c10::Allocator* allocator,
                                          bool resizable) {
  if (data == nullptr) data = allocator->allocate(size.expect_int());
  return c10::make_intrusive<Described>(bytes, std::move(size), std::move(data), allocator,
                                        resizable);
}

TEST(DerivedClassesTest, StorageOfTheBackend) {
  c10::SetStorageImplCreate(c10::DeviceType::PrivateUse1, &make);

  const auto storage =
      c10::make_storage_impl({}, 64, c10::DataPtr(), openreg::device_allocator(),
                             /*resizable=*/true, c10::Device(c10::DeviceType::PrivateUse1, 0));
  EXPECT_NE(dynamic_cast<Described*>(storage.get()), nullptr);
  EXPECT_EQ(storage->nbytes(), 64);
  EXPECT_NE(storage->data(), nullptr);
}

}  // namespace
