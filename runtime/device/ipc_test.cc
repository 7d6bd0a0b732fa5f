// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/ipc.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/device/arena.h"
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
  static std::string Target(int file) {
    char name[128];
    const ssize_t length =
        readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), name, sizeof(name));
    return std::string(name, length > 0 ? static_cast<size_t>(length) : 0);
  }
  // One of each device, and the board.
  std::vector<int> FilesForOthers() {
    EXPECT_NE(Export(Allocate<unsigned char>(kSize)).reserved[0], 0);
    orEvent_t event = nullptr;
    EXPECT_OK(orEventCreateWithFlags(&event, orEventInterprocess));
    std::vector<int> files;
    for (int file = 0; file < 1024; ++file) {
      if (Target(file).find("memfd:openreg") != std::string::npos) {
        files.push_back(file);
      }
    }
    return files;
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

  // Every damaged byte is found: no process gets other memory than that which was exported.
  PeerProcess peer;
  for (size_t index = 0; index < sizeof(good.reserved); ++index) {
    if (index >= 56 || (index >= 20 && index < 24)) {
      continue;  // bytes that mean nothing
    }
    for (const unsigned char damage : {0x55, 0x10}) {
      orIpcMemHandle damaged = good;
      damaged.reserved[index] ^= damage;
      const std::string answer = peer.Open(damaged);
      EXPECT_EQ(answer.substr(0, 6), "error ") << index << ": " << answer;
    }
  }
  EXPECT_EQ(peer.Open(good), "ok 0");
}

// A handle whose process and descriptor (bytes 8 to 15) name this file of this process.
orIpcMemHandle NamingFile(orIpcMemHandle handle, int file) {
  const int32_t place[] = {getpid(), file};
  std::memcpy(handle.reserved + 8, place, sizeof(place));
  return handle;
}

TEST_F(IpcTest, AFileThatIsNotMeantIsNotOpened) {
  PeerProcess peer;
  const auto handle = peer.Give<orIpcMemHandle>("export 10000 9");
  // Opening a socket fails, and so tells from a look at its name.
  const int file = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_GE(file, 0);
  const orIpcMemHandle forged = NamingFile(handle, file);
  void* pointer = nullptr;
  EXPECT_FAILS(orIpcOpenMemHandle(&pointer, &forged), orErrorInvalidValue,
               "not the memory that the handle names");
  close(file);
}

TEST_F(IpcTest, AFileThatCanShrinkIsNotMapped) {
  PeerProcess peer;
  const auto handle = peer.Give<orIpcMemHandle>("export 10000 9");
  // Of the name that the handle has, and the size and the table that it needs.
  char source[64];
  char name[128];
  int32_t place[2];
  std::memcpy(place, handle.reserved + 8, sizeof(place));
  std::snprintf(source, sizeof(source), "/proc/%d/fd/%d", place[0], place[1]);
  const ssize_t length = readlink(source, name, sizeof(name));
  ASSERT_GT(length, 0);
  std::string of(name, static_cast<size_t>(length));
  of = of.substr(of.find(':') + 1);
  of = of.substr(0, of.find(' '));
  const int file = memfd_create(of.c_str(), MFD_CLOEXEC);
  const int original = open(source, O_RDONLY);
  struct stat status {};
  ASSERT_EQ(fstat(original, &status), 0);
  ASSERT_EQ(ftruncate(file, status.st_size), 0);
  std::vector<char> table(Arena::kExportTable);
  const off_t behind = status.st_size - static_cast<off_t>(table.size());
  ASSERT_EQ(pread(original, table.data(), table.size(), behind),
            static_cast<ssize_t>(table.size()));
  ASSERT_EQ(pwrite(file, table.data(), table.size(), behind), static_cast<ssize_t>(table.size()));
  const orIpcMemHandle forged = NamingFile(handle, file);
  void* pointer = nullptr;
  EXPECT_FAILS(orIpcOpenMemHandle(&pointer, &forged), orErrorInvalidValue, "its size can change");
  close(original);
  close(file);
}

TEST_F(IpcTest, FilesThatOthersMayOpenKeepTheirSize) {
  const std::vector<int> files = FilesForOthers();
  EXPECT_EQ(files.size(), static_cast<size_t>(count_) + 1);
  for (const int file : files) {
    constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    EXPECT_EQ(fcntl(file, F_GET_SEALS) & kSeals, kSeals) << Target(file);
    EXPECT_NE(ftruncate(file, 0), 0) << Target(file);
    EXPECT_NE(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE), 0) << Target(file);
  }
  size_t released = 0;
  EXPECT_OK(orMemTrim(&released));  // punches holes, which no seal forbids
}

TEST_F(IpcTest, FilesThatOthersMayOpenAreNeverExecutable) {
  constexpr unsigned kNoExecSeal = 0x8;  // MFD_NOEXEC_SEAL, which older headers lack
  constexpr int kSealExec = 0x20;        // F_SEAL_EXEC
  const int probe = memfd_create("probe", MFD_CLOEXEC | kNoExecSeal);
  if (probe < 0) {
    ASSERT_EQ(errno, EINVAL);
    GTEST_SKIP() << "Linux before 6.3 does not know MFD_NOEXEC_SEAL";
  }
  close(probe);
  const std::vector<int> files = FilesForOthers();
  EXPECT_EQ(files.size(), static_cast<size_t>(count_) + 1);
  for (const int file : files) {
    EXPECT_NE(fcntl(file, F_GET_SEALS) & kSealExec, 0) << Target(file);
    struct stat status {};
    ASSERT_EQ(fstat(file, &status), 0);
    EXPECT_EQ(status.st_mode & 0111, 0u) << Target(file);
    EXPECT_NE(fchmod(file, 0700), 0) << Target(file);
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
