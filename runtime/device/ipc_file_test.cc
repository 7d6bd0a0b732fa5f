// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include "runtime/device/device_fixture.h"
#include "runtime/device/remote_process.h"

namespace openreg::device {
namespace {

class IpcFileTest : public DeviceTest {
 protected:
  static int IsThere(const orIpcFileHandle& handle) {
    int there = -1;
    EXPECT_OK(orIpcFileIsThere(&there, &handle));
    return there;
  }
};

TEST_F(IpcFileTest, KernelsReadTheMemoryOfAnotherProcess) {
  RemoteProcess other;
  EXPECT_EQ(other.Ask("new 100000 7"), "ok 0");
  const auto handle = other.Give<orIpcFileHandle>("device-file");
  const size_t offset = std::stoul(other.Ask("file-offset 0").substr(3));
  void* memory = nullptr;
  size_t size = 0;
  ASSERT_OK(orIpcMapFile(&memory, &size, &handle));
  ASSERT_LE(offset + 100'000, size);
  const auto* byte = static_cast<const volatile unsigned char*>(memory) + offset;
  EXPECT_EQ(*byte, 7);
  EXPECT_EQ(other.Ask("write 0 0 9"), "ok ");
  EXPECT_EQ(*byte, 9);
  EXPECT_TRUE(IsThere(handle));
  other.Kill();
  EXPECT_FALSE(IsThere(handle));
  EXPECT_EQ(*byte, 9);  // the mapping remains valid after its owner has ended
  EXPECT_OK(orIpcUnmapFile(memory));
  EXPECT_FAILS(orIpcUnmapFile(memory), orErrorInvalidValue, "no file is mapped");
  EXPECT_FAILS(orIpcMapFile(&memory, &size, &handle), orErrorProcessEnded, "cannot open");
}

TEST_F(IpcFileTest, ProcessesShareHostMemory) {
  RemoteProcess other;
  const auto handle = other.Give<orIpcFileHandle>("file 5000 3");
  void* memory = nullptr;
  size_t size = 0;
  ASSERT_OK(orIpcMapFile(&memory, &size, &handle));
  EXPECT_EQ(size, 8192U);
  auto* byte = static_cast<volatile unsigned char*>(memory);
  EXPECT_EQ(*byte, 3);
  *byte = 4;
  EXPECT_EQ(other.Ask("file-byte"), "ok 4");
  EXPECT_OK(orIpcUnmapFile(memory));
}

TEST_F(IpcFileTest, MapsItsOwnFiles) {
  orIpcFileHandle handle{};
  void* memory = nullptr;
  ASSERT_OK(orIpcCreateFile(&handle, &memory, 10));
  *static_cast<char*>(memory) = 'x';
  void* second = nullptr;
  size_t size = 0;
  ASSERT_OK(orIpcMapFile(&second, &size, &handle));
  EXPECT_NE(second, memory);
  EXPECT_EQ(*static_cast<char*>(second), 'x');
  EXPECT_TRUE(IsThere(handle));
  EXPECT_OK(orIpcUnmapFile(memory));
  EXPECT_FALSE(IsThere(handle));
  EXPECT_OK(orIpcUnmapFile(second));

  ASSERT_OK(orIpcGetDeviceFile(&handle, other()));
  ASSERT_OK(orIpcMapFile(&memory, &size, &handle));
  ASSERT_OK(orSetDevice(other()));
  unsigned char* view = nullptr;
  auto* block = Allocate<unsigned char>(64, &view);
  *view = 42;
  size_t offset = 0;
  EXPECT_OK(orIpcGetFileOffset(&offset, block));
  EXPECT_EQ(static_cast<unsigned char*>(memory)[offset], 42);
  EXPECT_OK(orIpcUnmapFile(memory));
}

TEST_F(IpcFileTest, BadArgumentsAreRefused) {
  orIpcFileHandle handle{};
  void* memory = nullptr;
  size_t size = 0;
  int there = 0;
  EXPECT_FAILS(orIpcCreateFile(&handle, &memory, 0), orErrorInvalidValue, "between 1 byte and");
  EXPECT_FAILS(orIpcCreateFile(&handle, &memory, SIZE_MAX), orErrorInvalidValue,
               "between 1 byte and");
  EXPECT_FAILS(orIpcCreateFile(nullptr, &memory, 1), orErrorInvalidValue, "must not be null");
  EXPECT_FAILS(orIpcGetDeviceFile(&handle, 100), orErrorInvalidDevice, "100");
  EXPECT_FAILS(orIpcMapFile(&memory, &size, &handle), orErrorInvalidValue, "not a valid handle");
  EXPECT_FAILS(orIpcFileIsThere(&there, &handle), orErrorInvalidValue, "not a valid handle");
  int on_host = 0;
  EXPECT_FAILS(orIpcGetFileOffset(&size, &on_host), orErrorInvalidDevicePointer,
               "not device memory");
}

}  // namespace
}  // namespace openreg::device
