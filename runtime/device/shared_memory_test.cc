// SPDX-License-Identifier: BSD-3-Clause
#include <signal.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "runtime/device/device_fixture.h"
#include "runtime/device/remote_process.h"
#include "runtime/device/shared_page.h"

namespace openreg::device {
namespace {

class SharedMemoryTest : public DeviceTest {
 protected:
  static constexpr size_t kSize = 3 << 20;

  void SetUp() override {
    DeviceTest::SetUp();
    QueueLaunches();
    memory_ = Allocate<unsigned char>(kSize, &view_);
    std::memset(view_, 5, kSize);
  }
  orIpcMemoryHandle Export(size_t offset, size_t size) {
    orIpcMemoryHandle handle{};
    EXPECT_OK(orIpcExport(&handle, memory_ + offset, size, nullptr));
    return handle;
  }
  bool IsExported(size_t offset, size_t size) {
    int exported = -1;
    EXPECT_OK(orIpcIsExported(&exported, memory_ + offset, size));
    return exported == 1;
  }
  unsigned char* Import(const orIpcMemoryHandle& handle) {
    void* pointer = nullptr;
    EXPECT_OK(orIpcImport(&pointer, &handle, nullptr));
    return static_cast<unsigned char*>(pointer);
  }
  unsigned char Read(const void* pointer) {
    unsigned char byte = 0;
    EXPECT_OK(orMemcpy(&byte, pointer, 1, orMemcpyDeviceToHost));
    return byte;
  }

  unsigned char* memory_ = nullptr;
  unsigned char* view_ = nullptr;
};

TEST_F(SharedMemoryTest, BothProcessesSeeTheBytesAndTheExporterKnows) {
  view_[5000] = 11;
  EXPECT_FALSE(IsExported(0, kSize));
  const orIpcMemoryHandle handle = Export(5000, 100);
  EXPECT_TRUE(IsExported(5000, 100));  // exported but not imported yet
  EXPECT_FALSE(IsExported(0, 5000));
  EXPECT_FALSE(IsExported(5100, 100));
  RemoteProcess remote;
  ASSERT_EQ(remote.Ask("import " + Hex(handle)), "ok 0");
  EXPECT_TRUE(IsExported(5000, 100));
  EXPECT_FALSE(IsExported(0, 5000));
  EXPECT_FALSE(IsExported(5100, 100));
  EXPECT_EQ(remote.Ask("read 0 0"), "11");
  EXPECT_EQ(remote.Ask("write 0 99 77"), "ok ");
  EXPECT_EQ(view_[5099], 77);
  EXPECT_EQ(remote.Ask("release 0"), "ok ");
  EXPECT_FALSE(IsExported(5000, 100));
  EXPECT_NE(remote.Ask("release 0").find("already released"), std::string::npos);
}

TEST_F(SharedMemoryTest, AHandleIsValidForOneImport) {
  const orIpcMemoryHandle handle = Export(0, 64);
  RemoteProcess remote;
  ASSERT_EQ(remote.Ask("import " + Hex(handle)), "ok 0");
  EXPECT_NE(remote.Ask("import " + Hex(handle)).find("was already imported"), std::string::npos);
  RemoteProcess other;
  EXPECT_NE(other.Ask("import " + Hex(handle)).find("was already imported"), std::string::npos);
}

TEST_F(SharedMemoryTest, ImportingAgainReturnsTheSamePointer) {
  RemoteProcess remote;
  ASSERT_EQ(remote.Ask("new 10000 7"), "ok 0");
  unsigned char* first = Import(remote.Give<orIpcMemoryHandle>("export 0 64 128"));
  unsigned char* again = Import(remote.Give<orIpcMemoryHandle>("export 0 64 128"));
  unsigned char* beside = Import(remote.Give<orIpcMemoryHandle>("export 0 192 128"));
  unsigned char* overlapping = Import(remote.Give<orIpcMemoryHandle>("export 0 128 128"));
  EXPECT_EQ(first, again);
  EXPECT_NE(first, beside);
  orPointerAttributes attributes;
  ASSERT_OK(orPointerGetAttributes(&attributes, first + 127));
  EXPECT_EQ(attributes.base, first);
  EXPECT_EQ(attributes.size, 128u);
  EXPECT_EQ(attributes.imported, 1);
  EXPECT_EQ(attributes.device, 0);
  EXPECT_EQ(attributes.type, orMemoryTypeDevice);
  EXPECT_FAILS(orFree(first), orErrorInvalidDevicePointer, "use orIpcRelease");
  unsigned char bytes[2] = {};
  EXPECT_FAILS(orMemcpy(bytes, first + 127, 2, orMemcpyDeviceToHost), orErrorInvalidCopy,
               "exceeds its allocation");
  ASSERT_OK(orIpcRelease(first, nullptr));
  EXPECT_EQ(remote.Ask("exported 0 10000"), "ok 1");
  EXPECT_EQ(Read(again), 7);
  ASSERT_OK(orIpcRelease(again, nullptr));
  ASSERT_OK(orIpcRelease(beside, nullptr));
  // The bytes of the overlapping import remain locked.
  EXPECT_EQ(remote.Ask("exported 0 10000"), "ok 1");
  EXPECT_EQ(Read(overlapping), 7);
  ASSERT_OK(orIpcRelease(overlapping, nullptr));
  EXPECT_EQ(remote.Ask("exported 0 10000"), "ok 0");
  EXPECT_FAILS(orIpcRelease(first, nullptr), orErrorInvalidDevicePointer, "already released");
}

TEST_F(SharedMemoryTest, ImportedMemoryIsOrderedByStreams) {
  Gate gate;
  ASSERT_OK(gate.Launch(nullptr));
  ASSERT_OK(orMemsetAsync(memory_, 42, 16, nullptr));
  const orIpcMemoryHandle handle = Export(0, 16);
  RemoteProcess remote;
  ASSERT_EQ(remote.Ask("import " + Hex(handle)), "ok 0");
  ASSERT_EQ(remote.Ask("fill 0 43"), "ok ");  // queued after this process's work
  ASSERT_EQ(remote.Ask("release 0"), "ok ");  // queued after the fill
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(view_[0], 5);
  EXPECT_TRUE(IsExported(0, 16));
  gate.Open();
  EXPECT_TRUE(Eventually([&] { return !IsExported(0, 16); }));
  EXPECT_EQ(Read(memory_), 43);
}

TEST_F(SharedMemoryTest, AnImporterCanExport) {
  RemoteProcess first, second;
  ASSERT_EQ(first.Ask("import " + Hex(Export(4096, 256))), "ok 0");
  const std::string handle = Hex(first.Give<orIpcMemoryHandle>("export 0 128 64"));
  ASSERT_EQ(first.Ask("exported 0 256"), "ok 1");
  ASSERT_EQ(second.Ask("import " + handle), "ok 0");
  ASSERT_EQ(first.Ask("exported 0 256"), "ok 0");
  ASSERT_EQ(first.Ask("release 0"), "ok ");
  EXPECT_FALSE(IsExported(4096, 128));
  EXPECT_TRUE(IsExported(4096 + 128, 64));
  EXPECT_EQ(second.Ask("write 0 0 99"), "ok ");
  EXPECT_EQ(view_[4096 + 128], 99);
  second.Kill();
  EXPECT_FALSE(IsExported(0, kSize));
}

TEST_F(SharedMemoryTest, AnOwnerCanImportItsOwnMemory) {
  RemoteProcess remote;
  ASSERT_EQ(remote.Ask("import " + Hex(Export(4096, 256))), "ok 0");
  const auto handle = remote.Give<orIpcMemoryHandle>("export 0 0 256");
  EXPECT_EQ(Import(handle), memory_ + 4096);
  EXPECT_EQ(remote.Ask("exported 0 256"), "ok 0");
  EXPECT_FAILS(orIpcRelease(memory_ + 4096, nullptr), orErrorInvalidDevicePointer,
               "was not returned by");
  EXPECT_EQ(Import(Export(64, 64)), memory_ + 64);
  EXPECT_FALSE(IsExported(0, 4096));
}

TEST_F(SharedMemoryTest, AKillEndsAnImport) {
  RemoteProcess remote;
  ASSERT_EQ(remote.Ask("import " + Hex(Export(0, 64))), "ok 0");
  ASSERT_TRUE(IsExported(0, 64));
  const std::string forked = remote.Ask("fork");  // the child's copies of the files must not count
  remote.Kill();
  EXPECT_TRUE(Eventually([&] { return !IsExported(0, 64); }));
  kill(std::stoi(forked.substr(3)), SIGKILL);
}

TEST_F(SharedMemoryTest, ImportedMemoryOutlivesItsKilledExporter) {
  RemoteProcess remote;
  ASSERT_EQ(remote.Ask("new 100000 33"), "ok 0");
  unsigned char* pointer = Import(remote.Give<orIpcMemoryHandle>("export 0 0 100000"));
  const auto untaken = remote.Give<orIpcMemoryHandle>("export 0 0 100000");
  // Let the exporter end before its queued work is done.
  ASSERT_EQ(remote.Ask("gate"), "ok ");
  const auto late = remote.Give<orIpcMemoryHandle>("export 0 64 64");
  void* other = Import(late);
  remote.Kill();
  EXPECT_FAILS(orStreamSynchronize(nullptr), orErrorProcessEnded, "ended before it had done");
  EXPECT_EQ(Read(pointer + 99999), 33);
  EXPECT_FAILS(orIpcImport(&other, &untaken, nullptr), orErrorProcessEnded,
               "that process must be alive");
  EXPECT_EQ(other, nullptr);
  // The importer can itself export the memory.
  RemoteProcess next;
  orIpcMemoryHandle handle{};
  ASSERT_OK(orIpcExport(&handle, pointer, 100000, nullptr));
  ASSERT_EQ(next.Ask("import " + Hex(handle)), "ok 0");
  EXPECT_EQ(next.Ask("read 0 99999"), "33");
  EXPECT_OK(orIpcRelease(pointer, nullptr));
}

TEST_F(SharedMemoryTest, FreedMemoryIsKeptWhileItIsImported) {
  size_t before = 0, now = 0, total = 0;
  RemoteProcess remote;
  ASSERT_EQ(remote.Ask("import " + Hex(Export(kSize - 8, 8))), "ok 0");
  const orIpcMemoryHandle untaken = Export(0, 8);
  ASSERT_OK(orMemGetInfo(&before, &total));
  ASSERT_OK(orFree(memory_));
  ASSERT_OK(orMemGetInfo(&now, &total));
  EXPECT_EQ(now, before);
  EXPECT_EQ(remote.Ask("read 0 7"), "5");
  EXPECT_NE(remote.Ask("import " + Hex(untaken)).find("its memory was freed"), std::string::npos);
  ASSERT_EQ(remote.Ask("release 0"), "ok ");
  ASSERT_OK(orMemGetInfo(&now, &total));
  EXPECT_EQ(now, before + kSize);
}

TEST_F(SharedMemoryTest, FreedMemoryIsNotReusedWhileItIsImported) {
  RemoteProcess remote;
  ASSERT_EQ(remote.Import(Export(kSize - 8, 8)), "ok 0");
  ASSERT_OK(orFree(memory_));
  ASSERT_OK(orMemTrim(nullptr));
  EXPECT_EQ(remote.Ask("read 0 7"), "5");
  unsigned char* next = Allocate<unsigned char>(kSize);
  EXPECT_TRUE(next + kSize <= memory_ || memory_ + kSize <= next);
}

TEST_F(SharedMemoryTest, FreedMemoryIsReclaimedWhenItsImporterIsKilled) {
  size_t before = 0, now = 0, total = 0;
  ASSERT_OK(orMemGetInfo(&before, &total));
  RemoteProcess remote;
  ASSERT_EQ(remote.Import(Export(0, kSize)), "ok 0");
  const std::string forked = remote.Ask("fork");  // the child must not keep the files open
  ASSERT_OK(orFree(memory_));
  ASSERT_OK(orMemGetInfo(&now, &total));
  EXPECT_EQ(now, before);
  remote.Kill();
  EXPECT_TRUE(Eventually([&] {
    EXPECT_OK(orMemGetInfo(&now, &total));
    return now == before + kSize;
  }));
  kill(std::stoi(forked.substr(3)), SIGKILL);
}

TEST_F(SharedMemoryTest, AHandleOfFreedMemoryDoesNotImportItsSuccessor) {
  const orIpcMemoryHandle old = Export(0, kSize);
  ASSERT_OK(orFree(memory_));
  unsigned char* next = Allocate<unsigned char>(kSize);
  ASSERT_EQ(next, memory_);
  const orIpcMemoryHandle handle = Export(0, kSize);
  RemoteProcess remote;
  EXPECT_NE(remote.Import(old).find("its memory was freed"), std::string::npos);
  EXPECT_EQ(remote.Import(handle).substr(0, 3), "ok ");
}

TEST_F(SharedMemoryTest, RepeatedExportsOfTheSameBytesDoNotAccumulate) {
  RemoteProcess remote;
  ASSERT_EQ(remote.Ask("new 10000 7"), "ok 0");
  for (int round = 0; round < 2000; ++round) {
    unsigned char* pointer = Import(remote.Give<orIpcMemoryHandle>("export 0 0 64"));
    ASSERT_OK(orIpcRelease(pointer, nullptr));
  }
  EXPECT_EQ(remote.Ask("exported 0 64"), "ok 0");
}

TEST_F(SharedMemoryTest, InvalidHandlesAreRefused) {
  orIpcMemoryHandle handle{};
  void* pointer = nullptr;
  EXPECT_FAILS(orIpcImport(&pointer, &handle, nullptr), orErrorInvalidValue, "not a valid handle");
  EXPECT_FAILS(orIpcImport(nullptr, &handle, nullptr), orErrorInvalidValue, "must not be null");
  EXPECT_FAILS(orIpcImport(&pointer, nullptr, nullptr), orErrorInvalidValue, "must not be null");
  EXPECT_FAILS(orIpcExport(nullptr, memory_, 1, nullptr), orErrorInvalidValue, "handle is null");
  EXPECT_FAILS(orIpcExport(&handle, memory_, kSize + 1, nullptr), orErrorInvalidDevicePointer,
               "not part of one live allocation");
  EXPECT_FAILS(orIpcExport(&handle, memory_, 0, nullptr), orErrorInvalidDevicePointer,
               "not part of one live allocation");
  EXPECT_FAILS(orIpcExport(&handle, &handle, 1, nullptr), orErrorInvalidDevicePointer,
               "not part of one live allocation");
  int exported = 0;
  EXPECT_FAILS(orIpcIsExported(nullptr, memory_, 1), orErrorInvalidValue, "exported is null");
  EXPECT_FAILS(orIpcIsExported(&exported, &exported, 1), orErrorInvalidDevicePointer,
               "not part of");

  // Every changed byte must be detected, so that no process receives bytes other than the exported
  // ones.
  RemoteProcess remote;
  for (size_t index = 0; index < sizeof(handle.reserved); ++index) {
    if (index >= 56) {
      continue;  // no check covers the unused bytes
    }
    for (const unsigned char damage : {0x55, 0x01}) {
      orIpcMemoryHandle damaged = Export(0, 64);
      damaged.reserved[index] ^= damage;
      const std::string answer = remote.Ask("import " + Hex(damaged));
      EXPECT_EQ(answer.substr(0, 6), "error ") << index << ": " << answer;
    }
  }
  ASSERT_EQ(remote.Ask("import " + Hex(Export(0, 64))).substr(0, 3), "ok ");
}

TEST_F(SharedMemoryTest, ACapturedStreamCanNeitherExportNorImport) {
  RemoteProcess remote;
  ASSERT_EQ(remote.Ask("new 64 7"), "ok 0");
  orIpcMemoryHandle handle{};
  void* pointer = nullptr;
  for (const bool exports : {true, false}) {
    const orIpcMemoryHandle theirs = remote.Give<orIpcMemoryHandle>("export 0 0 64");
    orStream_t stream = nullptr;
    ASSERT_OK(orStreamCreate(&stream));
    ASSERT_OK(orStreamBeginCapture(stream, orStreamCaptureModeGlobal));
    if (exports) {
      EXPECT_FAILS(orIpcExport(&handle, memory_, 64, stream), orErrorCaptureUnsupported,
                   "do it before or after the capture");
    } else {
      EXPECT_FAILS(orIpcImport(&pointer, &theirs, stream), orErrorCaptureUnsupported,
                   "do it before or after the capture");
    }
    orGraph_t graph = nullptr;
    EXPECT_FAILS(orStreamEndCapture(stream, &graph), orErrorCaptureInvalidated,
                 "is being captured");
    ASSERT_OK(orIpcImport(&pointer, &theirs, stream));  // the handle is still valid
    ASSERT_OK(orIpcRelease(pointer, stream));
    ASSERT_OK(orStreamDestroy(stream));
  }
  EXPECT_FALSE(IsExported(0, kSize));
}

TEST_F(SharedMemoryTest, NothingIsReleasedOnACapturedStream) {
  RemoteProcess remote;
  ASSERT_EQ(remote.Ask("new 64 7"), "ok 0");
  void* pointer = Import(remote.Give<orIpcMemoryHandle>("export 0 0 64"));
  orStream_t stream = nullptr;
  ASSERT_OK(orStreamCreate(&stream));
  ASSERT_OK(orStreamBeginCapture(stream, orStreamCaptureModeGlobal));
  EXPECT_FAILS(orIpcRelease(pointer, stream), orErrorCaptureUnsupported,
               "do it before or after the capture");
  EXPECT_EQ(remote.Ask("exported 0 64"), "ok 1");
  orGraph_t graph = nullptr;
  EXPECT_FAILS(orStreamEndCapture(stream, &graph), orErrorCaptureInvalidated, "orIpcRelease");
  EXPECT_OK(orIpcRelease(pointer, stream));
  EXPECT_EQ(remote.Ask("exported 0 64"), "ok 0");
}

TEST_F(SharedMemoryTest, ReleasedImportsFreeTheirSlots) {
  // Use all slots except four, so that the exports below must reuse slots.
  std::vector<orEvent_t> events(SharedPage::kSlots - 4);
  for (orEvent_t& event : events) {
    ASSERT_OK(orEventCreateWithFlags(&event, orEventInterprocess));
  }
  RemoteProcess remote;
  for (int round = 0; round < 20; ++round) {
    const size_t offset = static_cast<size_t>(round) * 64;  // each round exports different bytes
    const std::string imported = remote.Ask("import " + Hex(Export(offset, 64)));
    ASSERT_EQ(imported.substr(0, 3), "ok ") << imported;
    ASSERT_EQ(remote.Ask("release " + imported.substr(3)), "ok ");
  }
  // If a slot is reused for another export, freeing the previous export must not free the slot.
  EXPECT_FALSE(IsExported(0, kSize));
  ASSERT_OK(orFree(memory_));
  memory_ = Allocate<unsigned char>(kSize, &view_);
  std::vector<orIpcMemoryHandle> handles;
  for (size_t index = 0; index < 4; ++index) {
    handles.push_back(Export(index * 64, 64));
  }
  orIpcMemoryHandle one_more{};
  EXPECT_FAILS(orIpcExport(&one_more, memory_ + 1000, 64, nullptr), orErrorSystem, "already exist");
  for (const orIpcMemoryHandle& handle : handles) {
    EXPECT_EQ(remote.Ask("import " + Hex(handle)).substr(0, 3), "ok ");
  }
}

TEST_F(SharedMemoryTest, StreamsOfOtherDevicesAreRefused) {
  if (count_ == 1) {
    GTEST_SKIP() << "needs a stream of another device";
  }
  orStream_t stream = nullptr;
  ASSERT_OK(orGetDefaultStream(&stream, other()));
  orIpcMemoryHandle handle{};
  EXPECT_FAILS(orIpcExport(&handle, memory_, 1, stream), orErrorInvalidDevice,
               "the stream is on device");
}

TEST_F(SharedMemoryTest, AResetReleasesImports) {
  RemoteProcess remote;
  ASSERT_EQ(remote.Ask("new 10000 9"), "ok 0");
  unsigned char* pointer = Import(remote.Give<orIpcMemoryHandle>("export 0 0 10000"));
  ASSERT_OK(orDeviceReset());
  EXPECT_EQ(remote.Ask("exported 0 10000"), "ok 0");
  EXPECT_FAILS(orIpcRelease(pointer, nullptr), orErrorInvalidDevicePointer, "already released");
}

TEST_F(SharedMemoryTest, AProcessRefusesMemoryOfADeviceThatItLacks) {
  if (count_ == 1) {
    GTEST_SKIP() << "needs a block on a device that the other process does not have";
  }
  ASSERT_OK(orSetDevice(other()));
  orIpcMemoryHandle handle{};
  ASSERT_OK(orIpcExport(&handle, Allocate<unsigned char>(100), 100, nullptr));
  RemoteProcess remote("1");
  EXPECT_NE(remote.Import(handle).find("this process has 1 devices (OPENREG_DEVICE_COUNT)"),
            std::string::npos);
}

}  // namespace
}  // namespace openreg::device
