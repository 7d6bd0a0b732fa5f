// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/ipc.h"

#include <signal.h>

#include <cstring>
#include <string>

#include "runtime/device/device_fixture.h"
#include "runtime/device/ipc_peer.h"

namespace openreg::device {
namespace {

class IpcTest : public DeviceTest {
 protected:
  static constexpr size_t kSize = 3 << 20;

  orIpcMemHandle Export(void* pointer) {
    orIpcMemHandle handle{};
    EXPECT_OK(orIpcGetMemHandle(&handle, pointer));
    return handle;
  }
  size_t FreeBytes() {
    size_t free_bytes = 0, total = 0;
    EXPECT_OK(orMemGetInfo(&free_bytes, &total));
    return free_bytes;
  }
};

TEST_F(IpcTest, TwoProcessesSeeTheSameMemory) {
  unsigned char* view = nullptr;
  unsigned char* memory = Allocate<unsigned char>(kSize, &view);
  view[kSize - 1] = 11;
  PeerProcess peer;
  // A handle of an interior pointer names the whole block.
  ASSERT_EQ(peer.Open(Export(memory + 1000)), "ok 0");
  EXPECT_EQ(peer.Ask("read 0 " + std::to_string(kSize - 1)), "11");
  EXPECT_EQ(peer.Ask("write 0 5 77"), "ok ");
  EXPECT_EQ(view[5], 77);
  EXPECT_EQ(peer.Ask("close 0"), "ok ");
}

TEST_F(IpcTest, AnImportedBlockIsMemoryOfItsDevice) {
  PeerProcess peer;
  const std::string exported = peer.Ask("export 10000 9");
  ASSERT_EQ(exported.substr(0, 3), "ok ");
  const orIpcMemHandle handle = FromHex<orIpcMemHandle>(exported.substr(3));
  void* pointer = nullptr;
  ASSERT_OK(orIpcOpenMemHandle(&pointer, &handle));
  orPointerAttributes attributes;
  ASSERT_OK(orPointerGetAttributes(&attributes, static_cast<char*>(pointer) + 9999));
  EXPECT_EQ(attributes.type, orMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 0);
  EXPECT_EQ(attributes.base, pointer);
  EXPECT_EQ(attributes.size, 10000u);
  EXPECT_EQ(attributes.imported, 1);
  unsigned char bytes[2] = {};
  ASSERT_OK(orMemcpy(bytes, static_cast<char*>(pointer) + 9998, 2, orMemcpyDeviceToHost));
  EXPECT_EQ(bytes[0], 9);
  EXPECT_FAILS(orMemcpy(bytes, static_cast<char*>(pointer) + 9999, 2, orMemcpyDeviceToHost),
               orErrorInvalidCopy, "leaves its allocation");
  EXPECT_FAILS(orFree(pointer), orErrorInvalidDevicePointer, "use orIpcCloseMemHandle");
  orIpcMemHandle again;
  EXPECT_FAILS(orIpcGetMemHandle(&again, pointer), orErrorInvalidDevicePointer,
               "belongs to another process");

  void* same = nullptr;
  ASSERT_OK(orIpcOpenMemHandle(&same, &handle));
  EXPECT_EQ(same, pointer);
  ASSERT_OK(orIpcCloseMemHandle(pointer));
  ASSERT_OK(orPointerGetAttributes(&attributes, pointer));  // one close for each open
  EXPECT_FAILS(orIpcCloseMemHandle(static_cast<char*>(pointer) + 1), orErrorInvalidDevicePointer,
               "not what orIpcOpenMemHandle returned");
  ASSERT_OK(orIpcCloseMemHandle(pointer));
  EXPECT_FAILS(orIpcCloseMemHandle(pointer), orErrorInvalidDevicePointer, "closed already");
  EXPECT_FAILS(orPointerGetAttributes(&attributes, pointer), orErrorInvalidDevicePointer,
               "no allocation lives now");
}

TEST_F(IpcTest, AResetClosesWhatWasImported) {
  PeerProcess peer;
  const orIpcMemHandle handle = FromHex<orIpcMemHandle>(peer.Ask("export 10000 9").substr(3));
  void* pointer = nullptr;
  ASSERT_OK(orIpcOpenMemHandle(&pointer, &handle));
  ASSERT_OK(orDeviceReset());
  EXPECT_FAILS(orIpcCloseMemHandle(pointer), orErrorInvalidDevicePointer, "closed already");
}

TEST_F(IpcTest, MemoryThatIsOpenElsewhereIsKeptUntilItIsClosed) {
  const size_t free_before = FreeBytes();
  unsigned char* view = nullptr;
  unsigned char* memory = Allocate<unsigned char>(kSize, &view);
  std::memset(view, 5, kSize);
  PeerProcess peer;
  ASSERT_EQ(peer.Open(Export(memory)), "ok 0");
  ASSERT_OK(orFree(memory));
  EXPECT_EQ(FreeBytes(), free_before - kSize);
  ASSERT_OK(orMemTrim(nullptr));
  EXPECT_EQ(peer.Ask("read 0 0"), "5");
  EXPECT_EQ(peer.Ask("read 0 " + std::to_string(kSize - 1)), "5");
  EXPECT_FAILS(orFree(memory), orErrorInvalidDevicePointer, "no allocation lives now");
  unsigned char* next = Allocate<unsigned char>(kSize);
  EXPECT_TRUE(next + kSize <= memory || memory + kSize <= next);
  EXPECT_EQ(peer.Ask("close 0"), "ok ");
  EXPECT_EQ(FreeBytes(), free_before - kSize);  // the block of `next`
  ASSERT_OK(orFree(next));
  EXPECT_EQ(FreeBytes(), free_before);
}

TEST_F(IpcTest, AKilledPeerHoldsNothing) {
  const size_t free_before = FreeBytes();
  unsigned char* memory = Allocate<unsigned char>(kSize);
  PeerProcess peer;
  ASSERT_EQ(peer.Open(Export(memory)), "ok 0");
  ASSERT_OK(orFree(memory));
  EXPECT_EQ(FreeBytes(), free_before - kSize);
  peer.Kill();
  EXPECT_EQ(FreeBytes(), free_before);
}

TEST_F(IpcTest, TheForkedChildOfAKilledPeerHoldsNothing) {
  const size_t free_before = FreeBytes();
  unsigned char* memory = Allocate<unsigned char>(kSize);
  PeerProcess peer;
  ASSERT_EQ(peer.Open(Export(memory)), "ok 0");
  const std::string forked = peer.Ask("fork");
  ASSERT_EQ(forked.substr(0, 3), "ok ");
  ASSERT_OK(orFree(memory));
  EXPECT_EQ(FreeBytes(), free_before - kSize);
  peer.Kill();
  EXPECT_TRUE(Eventually([&] { return FreeBytes() == free_before; }));
  kill(std::stoi(forked.substr(3)), SIGKILL);
}

TEST_F(IpcTest, ImportedMemoryOutlivesItsKilledOwner) {
  PeerProcess peer;
  const orIpcMemHandle handle = FromHex<orIpcMemHandle>(peer.Ask("export 100000 33").substr(3));
  const orIpcMemHandle unopened = FromHex<orIpcMemHandle>(peer.Ask("export 100000 34").substr(3));
  void* pointer = nullptr;
  ASSERT_OK(orIpcOpenMemHandle(&pointer, &handle));
  peer.Kill();
  unsigned char byte = 0;
  ASSERT_OK(orMemcpy(&byte, static_cast<char*>(pointer) + 99999, 1, orMemcpyDeviceToHost));
  EXPECT_EQ(byte, 33);
  void* other = nullptr;
  EXPECT_FAILS(orIpcOpenMemHandle(&other, &unopened), orErrorInvalidValue,
               "that process has to live");
  EXPECT_EQ(other, nullptr);
  EXPECT_OK(orIpcCloseMemHandle(pointer));
}

TEST_F(IpcTest, AHandleOfFreedMemoryIsRefused) {
  unsigned char* memory = Allocate<unsigned char>(kSize);
  const orIpcMemHandle handle = Export(memory);
  EXPECT_EQ(Hex(Export(memory)), Hex(handle));  // one handle a block
  ASSERT_OK(orFree(memory));
  unsigned char* next = Allocate<unsigned char>(kSize);
  EXPECT_EQ(next, memory);
  PeerProcess peer;
  EXPECT_NE(peer.Open(handle).find("has freed this memory before it was opened"),
            std::string::npos);
  ASSERT_EQ(peer.Open(Export(next)), "ok 0");
  EXPECT_NE(peer.Open(handle).find("error orErrorInvalidValue"), std::string::npos);
}

TEST_F(IpcTest, WhatIsNoHandleIsRefused) {
  const orIpcMemHandle good = Export(Allocate<unsigned char>(kSize));
  void* pointer = nullptr;
  EXPECT_FAILS(orIpcOpenMemHandle(&pointer, &good), orErrorInvalidValue, "use that pointer");
  EXPECT_FAILS(orIpcOpenMemHandle(nullptr, &good), orErrorInvalidValue, "must not be null");
  EXPECT_FAILS(orIpcOpenMemHandle(&pointer, nullptr), orErrorInvalidValue, "must not be null");
  const orIpcMemHandle zero{};
  EXPECT_FAILS(orIpcOpenMemHandle(&pointer, &zero), orErrorInvalidValue, "no handle");
  EXPECT_FAILS(orIpcGetMemHandle(nullptr, &pointer), orErrorInvalidValue, "handle is null");
  orIpcMemHandle handle;
  EXPECT_FAILS(orIpcGetMemHandle(&handle, &pointer), orErrorInvalidDevicePointer,
               "not inside a live allocation");
  EXPECT_FAILS(orIpcGetMemHandle(&handle, nullptr), orErrorInvalidDevicePointer,
               "not inside a live allocation");
  EXPECT_FAILS(orIpcCloseMemHandle(nullptr), orErrorInvalidDevicePointer,
               "not what orIpcOpenMemHandle returned");

  // Every damaged byte is found, or changes nothing that counts.
  PeerProcess peer;
  for (size_t index = 0; index < sizeof(good.reserved); ++index) {
    orIpcMemHandle damaged = good;
    damaged.reserved[index] ^= 0x55;
    const std::string answer = peer.Open(damaged);
    if (index >= 56 || (index >= 20 && index < 24)) {
      continue;  // bytes that mean nothing
    }
    if (index >= 48 && answer.substr(0, 3) == "ok ") {
      continue;  // a size that still lies inside of the file
    }
    if (index >= 40 && index < 48 && answer.substr(0, 3) == "ok ") {
      continue;  // an offset that does
    }
    EXPECT_EQ(answer.substr(0, 6), "error ") << index << ": " << answer;
  }
}

TEST_F(IpcTest, AProcessWithFewerDevicesRefusesTheBlockOfOneItLacks) {
  if (count_ == 1) {
    GTEST_SKIP() << "needs a block on a device that the other process does not have";
  }
  ASSERT_OK(orSetDevice(other()));
  PeerProcess peer("1");
  EXPECT_NE(peer.Open(Export(Allocate<unsigned char>(100)))
                .find("and this process has 1 (OPENREG_DEVICE_COUNT)"),
            std::string::npos);
}

}  // namespace
}  // namespace openreg::device
