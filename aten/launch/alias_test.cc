// SPDX-License-Identifier: BSD-3-Clause
#include "aten/launch/alias.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <vector>

#include "aten/tensors/factories.h"
#include "runtime/c10/error.h"

namespace openreg {
namespace {

at::Tensor device_tensor(at::IntArrayRef sizes) { return empty_on(0, sizes, at::kFloat); }

TEST(AliasTest, ShowsTheSameMemoryToTheHost) {
  const at::Tensor tensor = device_tensor({4});
  const std::vector<float> values{1, 2, 3, 4};
  OPENREG_CHECK(orMemcpy(tensor.mutable_data_ptr(), values.data(), 16, orMemcpyHostToDevice));
  AliasPool pool;
  const at::Tensor alias = pool.alias(tensor);
  EXPECT_TRUE(alias.is_cpu());
  EXPECT_NE(alias.const_data_ptr(), tensor.const_data_ptr());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(alias.const_data_ptr<float>()[i], values[static_cast<size_t>(i)]);
  }
}

TEST(AliasTest, HasTheMetadataOfItsTensor) {
  const at::Tensor tensor =
      empty_on(1, {3, 4, 5}, at::kComplexFloat).permute({2, 0, 1}).slice(0, 1, 4)._conj();
  AliasPool pool;
  const at::Tensor alias = pool.alias(tensor);
  EXPECT_EQ(alias.sizes(), tensor.sizes());
  EXPECT_EQ(alias.strides(), tensor.strides());
  EXPECT_EQ(alias.storage_offset(), tensor.storage_offset());
  EXPECT_EQ(alias.scalar_type(), tensor.scalar_type());
  EXPECT_EQ(alias.storage().nbytes(), tensor.storage().nbytes());
  EXPECT_TRUE(alias.is_conj());
}

TEST(AliasTest, TensorsOfOneStorageOverlapAsOnTheCpu) {
  const at::Tensor tensor = device_tensor({8});
  const at::Tensor other = device_tensor({8});
  AliasPool pool;
  const at::Tensor slice = tensor.slice(0, 2, 6);
  const at::Tensor whole = pool.alias(tensor);
  const at::Tensor part = pool.alias(slice);
  const at::Tensor apart = pool.alias(other);
  EXPECT_TRUE(whole.is_alias_of(part));
  EXPECT_TRUE(pool.alias(slice).is_same(part));
  EXPECT_EQ(at::get_overlap_status(whole, part), at::MemOverlapStatus::Partial);
  EXPECT_FALSE(whole.is_alias_of(apart));
}

TEST(AliasTest, StorageIsSharedBeyondThePoolToo) {
  const at::Tensor tensor = device_tensor({8});
  AliasPool pool;
  std::vector<at::Tensor> slices;
  std::vector<at::Tensor> aliases;
  for (size_t i = 0; i < 3 * AliasPool::kSlots; ++i) {
    slices.push_back(tensor.slice(0, 1));
    aliases.push_back(pool.alias(slices.back()));
  }
  for (size_t i = 1; i < aliases.size(); ++i) {
    EXPECT_FALSE(aliases[i].is_same(aliases[i - 1]));
    EXPECT_TRUE(aliases[i].is_alias_of(aliases[0]));
  }
}

TEST(AliasTest, ObjectsAreReused) {
  const at::Tensor tensor = device_tensor({8});
  AliasPool pool;
  const c10::TensorImpl* const first = pool.alias(tensor).unsafeGetTensorImpl();
  pool.reset();
  EXPECT_EQ(pool.alias(device_tensor({3, 3})).unsafeGetTensorImpl(), first);
}

TEST(AliasTest, ObjectsKeptByAKernelAreNotReused) {
  const at::Tensor tensor = device_tensor({8});
  AliasPool pool;
  const at::Tensor kept = pool.alias(tensor);
  const void* const data = kept.const_data_ptr();
  pool.reset();
  const at::Tensor next = pool.alias(device_tensor({3, 3}));
  EXPECT_FALSE(next.is_same(kept));
  EXPECT_EQ(kept.const_data_ptr(), data);
  EXPECT_EQ(kept.sizes(), at::IntArrayRef({8}));
}

TEST(AliasTest, StorageKeptByAKernelIsNotReused) {
  const at::Tensor tensor = device_tensor({8});
  const at::Tensor slice = tensor.slice(0, 1);
  AliasPool pool;
  for (int launch = 0; launch < 3; ++launch) {
    (void)pool.borrow(tensor);
    const c10::Storage kept = pool.borrow(slice)->storage();
    pool.reset();
    EXPECT_NE(pool.borrow(device_tensor({3}))->storage().unsafeGetStorageImpl(),
              kept.unsafeGetStorageImpl());
    EXPECT_EQ(kept.data(), kernel_pointer(tensor.storage().data()));
    pool.reset();
  }
}

TEST(AliasTest, StorageIsSharedOnlyWithinALaunch) {
  const at::Tensor tensor = device_tensor({8});
  const at::Tensor slice = tensor.slice(0, 1);
  AliasPool pool;
  for (int launch = 0; launch < 3; ++launch) {
    {
      const at::Tensor first = pool.alias(tensor);
      const at::Tensor twin = pool.alias(slice);
      EXPECT_TRUE(first.is_alias_of(twin));
    }
    pool.reset();
    {
      const at::Tensor one = device_tensor({2});
      const at::Tensor two = device_tensor({2});
      const at::Tensor first = pool.alias(one);
      const at::Tensor second = pool.alias(two);
      EXPECT_FALSE(first.is_alias_of(second));
    }
    pool.reset();
  }
}

TEST(AliasTest, RefreshFollowsAResize) {
  const at::Tensor tensor = device_tensor({2});
  AliasPool pool;
  const at::Tensor alias = pool.alias(tensor);
  tensor.resize_({100, 100});
  pool.refresh(alias, tensor);
  EXPECT_EQ(alias.sizes(), tensor.sizes());
  EXPECT_EQ(alias.const_data_ptr(), kernel_pointer(tensor.const_data_ptr()));
}

TEST(AliasTest, IsFixedWhenItIsMade) {
  const at::Tensor tensor = device_tensor({2});
  AliasPool pool;
  const at::Tensor alias = pool.alias(tensor);
  const void* const data = alias.const_data_ptr();
  tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(device_tensor({64}).storage());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({64});
  EXPECT_EQ(alias.const_data_ptr(), data);
  EXPECT_EQ(alias.sizes(), at::IntArrayRef({2}));
}

TEST(KernelPointerTest, HostPointersAreUnchanged) {
  int host = 0;
  EXPECT_EQ(kernel_pointer(&host), &host);
  EXPECT_EQ(kernel_pointer(nullptr), nullptr);
}

}  // namespace
}  // namespace openreg
