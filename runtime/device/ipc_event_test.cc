// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "runtime/device/device_fixture.h"
#include "runtime/device/event.h"
#include "runtime/device/remote_process.h"
#include "runtime/device/shared_page.h"

namespace openreg::device {
namespace {

class IpcEventTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    QueueLaunches();
  }

  // Creates an event in the other process and returns its handle.
  orIpcEventHandle RemoteEvent(RemoteProcess& remote) {
    EXPECT_EQ(remote.Ask("event"), "ok 0");
    return remote.Give<orIpcEventHandle>("event-handle 0");
  }
  orEvent_t Open(const orIpcEventHandle& handle) {
    orEvent_t event = nullptr;
    EXPECT_OK(orIpcOpenEventHandle(&event, &handle));
    return event;
  }
  orEvent_t Create() {
    orEvent_t event = nullptr;
    EXPECT_OK(orEventCreateWithFlags(&event, orEventInterprocess));
    return event;
  }
  orIpcEventHandle Export(orEvent_t event) {
    orIpcEventHandle handle{};
    EXPECT_OK(orIpcGetEventHandle(&handle, event));
    return handle;
  }
};

TEST_F(IpcEventTest, AnotherProcessSeesWhenTheWorkIsDone) {
  Gate gate;
  orEvent_t event = Create();
  RemoteProcess remote;
  ASSERT_EQ(remote.Ask("event-open " + Hex(Export(event))), "ok 0");
  EXPECT_EQ(remote.Ask("event-query 0"), "ok ");  // an event that was never recorded is complete
  ASSERT_OK(gate.Launch(nullptr));
  ASSERT_OK(orEventRecord(event, nullptr));
  EXPECT_EQ(remote.Ask("event-query 0").substr(0, 21), "error orErrorNotReady");
  EXPECT_EQ(orEventQuery(event), orErrorNotReady);
  gate.Open();
  EXPECT_EQ(remote.Ask("event-synchronize 0"), "ok ");
  EXPECT_EQ(remote.Ask("event-query 0"), "ok ");
  EXPECT_OK(orEventSynchronize(event));
  EXPECT_OK(orDeviceSynchronize());
}

// A mark is visible to other processes slightly before its work counts as done in this process. The
// test reads the shared page directly, like another process. It therefore sees the mark equally
// early.
TEST_F(IpcEventTest, WorkDoneForAnotherProcessIsDoneLocally) {
  orEvent_t handle = Create();
  Event* event;
  ASSERT_OK(FindEvent("test", handle, &event));
  std::shared_ptr<MappedPage> own;
  ASSERT_OK(MappedPage::Own("test", &own));
  for (int round = 0; round < 200; ++round) {
    Gate gate;
    ASSERT_OK(gate.Launch(nullptr));
    ASSERT_OK(orEventRecord(handle, nullptr));
    const MarkWord word = own->page().slot(event->serial()).capture;
    ASSERT_EQ(orEventQuery(handle), orErrorNotReady);
    gate.Open();
    while (!own->page().Reached(word)) {
    }
    ASSERT_OK(orEventQuery(handle)) << "round " << round;
    ASSERT_OK(orStreamSynchronize(nullptr));
  }
  EXPECT_OK(orEventDestroy(handle));
}

TEST_F(IpcEventTest, AStreamWaitsForAnotherProcess) {
  RemoteProcess remote;
  orEvent_t event = Open(RemoteEvent(remote));
  ASSERT_EQ(remote.Ask("gate"), "ok ");
  ASSERT_EQ(remote.Ask("event-record 0"), "ok ");
  ASSERT_OK(orStreamWaitEvent(nullptr, event, 0));
  EXPECT_EQ(orStreamQuery(nullptr), orErrorNotReady);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(orStreamQuery(nullptr), orErrorNotReady);
  ASSERT_EQ(remote.Ask("let-go"), "ok ");
  EXPECT_OK(orStreamSynchronize(nullptr));
}

TEST_F(IpcEventTest, RecordingAgainDoesNotChangeAWaitInProgress) {
  RemoteProcess remote;
  orEvent_t event = Open(RemoteEvent(remote));
  ASSERT_EQ(remote.Ask("gate"), "ok ");
  ASSERT_EQ(remote.Ask("event-record 0"), "ok ");
  ASSERT_OK(orStreamWaitEvent(nullptr, event, 0));
  ASSERT_EQ(remote.Ask("let-go"), "ok ");
  ASSERT_EQ(remote.Ask("synchronize"), "ok ");
  ASSERT_EQ(remote.Ask("gate"), "ok ");
  ASSERT_EQ(remote.Ask("event-record 0"), "ok ");
  EXPECT_OK(orStreamSynchronize(nullptr));
  EXPECT_EQ(orEventQuery(event), orErrorNotReady);
  ASSERT_EQ(remote.Ask("let-go"), "ok ");
  EXPECT_OK(orEventSynchronize(event));
}

TEST_F(IpcEventTest, ARecordOnAnIdleStreamIsComplete) {
  orEvent_t event = Create();
  ASSERT_OK(orEventRecord(event, nullptr));
  RemoteProcess remote;
  ASSERT_EQ(remote.Ask("event-open " + Hex(Export(event))), "ok 0");
  EXPECT_EQ(remote.Ask("event-query 0"), "ok ");
}

TEST_F(IpcEventTest, AKilledProcessWakesItsWaiters) {
  RemoteProcess remote;
  orEvent_t event = Open(RemoteEvent(remote));
  ASSERT_EQ(remote.Ask("gate"), "ok ");
  ASSERT_EQ(remote.Ask("event-record 0"), "ok ");
  ASSERT_OK(orStreamWaitEvent(nullptr, event, 0));
  std::thread waiter([&] {
    EXPECT_FAILS(orEventSynchronize(event), orErrorProcessEnded, "ended before it had done");
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  remote.Kill();
  waiter.join();
  EXPECT_FAILS(orEventQuery(event), orErrorProcessEnded, "ended before it had done");
  EXPECT_FAILS(orStreamSynchronize(nullptr), orErrorProcessEnded, "wait for another process");
  EXPECT_OK(orStreamSynchronize(nullptr));
}

TEST_F(IpcEventTest, WorkDoneBeforeAKillStaysDone) {
  RemoteProcess remote;
  orEvent_t event = Open(RemoteEvent(remote));
  ASSERT_EQ(remote.Ask("gate"), "ok ");
  ASSERT_EQ(remote.Ask("event-record 0"), "ok ");
  ASSERT_EQ(remote.Ask("let-go"), "ok ");
  ASSERT_OK(orEventSynchronize(event));
  remote.Kill();
  EXPECT_OK(orEventQuery(event));
  EXPECT_OK(orEventSynchronize(event));
}

TEST_F(IpcEventTest, AnExitDoesNotWaitForAnotherProcess) {
  Gate gate;
  orEvent_t event = Create();
  ASSERT_OK(gate.Launch(nullptr));
  ASSERT_OK(orEventRecord(event, nullptr));
  {
    RemoteProcess remote;
    ASSERT_EQ(remote.Ask("event-open " + Hex(Export(event))), "ok 0");
    ASSERT_EQ(remote.Ask("event-wait 0"), "ok ");
  }  // the process ends while its stream waits
  gate.Open();
  EXPECT_OK(orDeviceSynchronize());
}

TEST_F(IpcEventTest, ADestroyedEventIsReported) {
  RemoteProcess remote;
  const orIpcEventHandle handle = RemoteEvent(remote);
  orEvent_t event = Open(handle);
  ASSERT_EQ(remote.Ask("event-destroy 0"), "ok ");
  EXPECT_FAILS(orEventQuery(event), orErrorInvalidHandle, "has destroyed it");
  EXPECT_FAILS(orEventSynchronize(event), orErrorInvalidHandle, "has destroyed it");
  EXPECT_FAILS(orStreamWaitEvent(nullptr, event, 0), orErrorInvalidHandle, "has destroyed it");
  EXPECT_OK(orEventDestroy(event));
  EXPECT_FAILS(orIpcOpenEventHandle(&event, &handle), orErrorInvalidValue,
               "destroyed the event before it was opened");
  ASSERT_EQ(remote.Ask("event"), "ok 1");  // reuses the slot of the destroyed event
  EXPECT_FAILS(orIpcOpenEventHandle(&event, &handle), orErrorInvalidValue,
               "destroyed the event before it was opened");
  remote.Kill();
  EXPECT_FAILS(orIpcOpenEventHandle(&event, &handle), orErrorInvalidValue,
               "that process must be alive");
}

TEST_F(IpcEventTest, AnImportedEventIsReadOnly) {
  RemoteProcess remote;
  orEvent_t event = Open(RemoteEvent(remote));
  EXPECT_FAILS(orEventRecord(event, nullptr), orErrorNotSupported,
               "only the process that created it");
  orIpcEventHandle handle;
  EXPECT_FAILS(orIpcGetEventHandle(&handle, event), orErrorInvalidValue, "pass that handle on");
  int device = -1;
  EXPECT_OK(orEventGetDevice(event, &device));
  EXPECT_EQ(device, 0);
  EXPECT_OK(orEventDestroy(event));
  EXPECT_FAILS(orEventQuery(event), orErrorInvalidHandle,
               "not a valid event; it may have been destroyed");
}

TEST_F(IpcEventTest, InvalidHandlesAreRefused) {
  orEvent_t event = nullptr;
  EXPECT_FAILS(orEventCreateWithFlags(&event, orEventInterprocess | orEventEnableTiming),
               orErrorInvalidValue, "records no time");
  orIpcEventHandle handle{};
  EXPECT_FAILS(orIpcOpenEventHandle(&event, &handle), orErrorInvalidValue, "not a valid handle");
  EXPECT_FAILS(orIpcOpenEventHandle(nullptr, &handle), orErrorInvalidValue, "must not be null");
  EXPECT_FAILS(orIpcOpenEventHandle(&event, nullptr), orErrorInvalidValue, "must not be null");
  ASSERT_OK(orEventCreate(&event));
  EXPECT_FAILS(orIpcGetEventHandle(&handle, event), orErrorInvalidValue,
               "without orEventInterprocess");
  orEvent_t shared = Create();
  EXPECT_FAILS(orIpcGetEventHandle(nullptr, shared), orErrorInvalidValue, "handle is null");
  handle = Export(shared);
  EXPECT_FAILS(orIpcOpenEventHandle(&event, &handle), orErrorInvalidValue, "use the event itself");
}

TEST_F(IpcEventTest, AFileThatIsNotASharedPageIsRefused) {
  RemoteProcess remote;
  orIpcEventHandle handle = RemoteEvent(remote);
  orEvent_t event = nullptr;
  // The location in the handle (bytes 8 to 23) is replaced with that of a file of this process.
  // This file has the name of a shared page.
  constexpr uint64_t kNumber = 0x123456789abcdef;
  const struct {
    off_t size;
    bool sealed;
    const char* text;
  } kFiles[] = {{4096, false, "its size is not sealed"},  // an access would crash the process
                {sizeof(SharedPage), false, "its size is not sealed"},
                {4096, true, "is not a shared page"},
                {sizeof(SharedPage), true, "is not a shared page"}};  // lacks the magic number
  for (const auto& each : kFiles) {
    const int file = memfd_create("openreg-0123456789abcdef", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_GE(file, 0);
    ASSERT_EQ(ftruncate(file, each.size), 0);
    if (each.sealed) {
      ASSERT_EQ(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    }
    const int32_t place[] = {getpid(), file};
    std::memcpy(handle.reserved + 8, place, sizeof(place));
    std::memcpy(handle.reserved + 16, &kNumber, sizeof(kNumber));
    EXPECT_FAILS(orIpcOpenEventHandle(&event, &handle), orErrorInvalidValue, each.text);
    close(file);
  }
}

TEST_F(IpcEventTest, ACaptureCannotRecordAnInterprocessEvent) {
  orEvent_t event = Create();
  orStream_t stream = nullptr;
  ASSERT_OK(orStreamCreate(&stream));
  ASSERT_OK(orStreamBeginCapture(stream, orStreamCaptureModeGlobal));
  EXPECT_FAILS(orEventRecord(event, stream), orErrorCaptureUnsupported, "an interprocess event");
  orGraph_t graph = nullptr;
  EXPECT_FAILS(orStreamEndCapture(stream, &graph), orErrorCaptureInvalidated,
               "an interprocess event");
  EXPECT_OK(orEventRecord(event, stream));
  EXPECT_OK(orEventSynchronize(event));
}

TEST_F(IpcEventTest, ACapturedStreamCannotWaitForAnotherProcess) {
  RemoteProcess remote;
  orEvent_t event = Open(RemoteEvent(remote));
  orStream_t stream = nullptr;
  ASSERT_OK(orStreamCreate(&stream));
  ASSERT_OK(orStreamBeginCapture(stream, orStreamCaptureModeGlobal));
  EXPECT_FAILS(orStreamWaitEvent(stream, event, 0), orErrorCaptureIsolation, "another process");
  orGraph_t graph = nullptr;
  EXPECT_FAILS(orStreamEndCapture(stream, &graph), orErrorCaptureInvalidated, "another process");
  EXPECT_OK(orStreamWaitEvent(stream, event, 0));
  EXPECT_OK(orStreamSynchronize(stream));
}

TEST_F(IpcEventTest, SlotsOfDestroyedEventsAreReused) {
  for (int round = 0; round < 40000; ++round) {  // more events than there are slots
    orEvent_t event = nullptr;
    ASSERT_OK(orEventCreateWithFlags(&event, orEventInterprocess));
    ASSERT_OK(orEventDestroy(event));
  }
}

}  // namespace
}  // namespace openreg::device
