// SPDX-License-Identifier: BSD-3-Clause
//
// Each test runs a separate process, checks how it ends, and checks its output.
#include "runtime/device/fault_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "runtime/device/openreg_emulation.h"
#include "runtime/device/process_fixture.h"

namespace openreg::device {
namespace {

// Whether a sanitizer is in use. Its handler is installed before ours and ends the process with an
// exit code instead of a signal.
constexpr bool kSanitizer = kThreadSanitizer || kAddressSanitizer;

// Checks that a process was killed by this signal, or by a sanitizer that handled the signal.
class DiesOf {
 public:
  explicit DiesOf(int signal) : signal_(signal) {}
  bool operator()(int status) const {
    return (WIFSIGNALED(status) && WTERMSIG(status) == signal_) ||
           (kSanitizer && WIFEXITED(status) && WEXITSTATUS(status) != 0 &&
            WEXITSTATUS(status) != 99);
  }

 private:
  int signal_;
};

class FaultReportTest : public testing::Test {
 protected:
  FaultReportTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

char* Allocate(size_t size) {
  void* memory = nullptr;
  REQUIRE(orMalloc(&memory, size) == orSuccess);
  return static_cast<char*>(memory);
}

void Touch(const volatile char* address) { (void)*address; }

#define EXPECT_DIES(body, signal, text) EXPECT_EXIT({ body(); }, DiesOf(signal), text)

TEST_F(FaultReportTest, TheHostReadsDeviceMemory) {
  EXPECT_DIES([] { Touch(Allocate(100) + 3); }, SIGSEGV,
              "openreg: the host touched device memory: address 0x[0-9a-f]+, device 0, offset 0x3, "
              "allocation 0x[0-9a-f]+ of 100 bytes, byte 3 in it .use tensor.cpu");
}

TEST_F(FaultReportTest, TheHostWritesToAnotherDevice) {
  EXPECT_DIES(
      [] {
        REQUIRE(orSetDevice(1) == orSuccess);
        (void)Allocate(4096);
        Allocate(200)[7] = 1;
      },
      SIGSEGV, "device 1, offset 0x1007, allocation 0x[0-9a-f]+ of 200 bytes, byte 7 in it");
}

TEST_F(FaultReportTest, TheHostTouchesFreedMemory) {
  EXPECT_DIES(
      [] {
        char* memory = Allocate(100);
        REQUIRE(orFree(memory) == orSuccess);
        Touch(memory);
      },
      SIGSEGV, "device 0, offset 0x0, in no live allocation .freed, or never allocated");
}

TEST_F(FaultReportTest, TheAllocatorAboveDescribesItsBlock) {
  EXPECT_DIES(
      [] {
        static char* memory = Allocate(10000);
        REQUIRE(orSetMemoryResolver([](const void* pointer, orMemoryRange* range) {
                  const auto offset =
                      static_cast<size_t>(static_cast<const char*>(pointer) - memory);
                  range->base = memory + offset / 512 * 512;
                  range->size = 512;
                  range->in_use = 0;
                  return 1;
                }) == orSuccess);
        Touch(memory + 1000);
      },
      SIGSEGV,
      "of 10000 bytes, byte 1000 in it, block 0x[0-9a-f]+ of 512 bytes in it, which is free .use "
      "after free");
}

TEST_F(FaultReportTest, AnIgnorantOrUnregisteredResolverChangesNothing) {
  EXPECT_DIES(
      [] {
        REQUIRE(orSetMemoryResolver([](const void*, orMemoryRange*) { return 0; }) == orSuccess);
        Touch(Allocate(10));
      },
      SIGSEGV, "byte 0 in it .use tensor.cpu");
  EXPECT_DIES(
      [] {
        REQUIRE(orSetMemoryResolver([](const void*, orMemoryRange*) { return 1; }) == orSuccess);
        REQUIRE(orSetMemoryResolver(nullptr) == orSuccess);
        Touch(Allocate(10));
      },
      SIGSEGV, "byte 0 in it .use tensor.cpu");
}

TEST_F(FaultReportTest, AKernelIsGivenADeviceAddressByMistake) {
  EXPECT_DIES(
      [] {
        char* memory = Allocate(100);
        REQUIRE(orLaunchKernel(nullptr, [memory] { Touch(memory); }) == orSuccess);
        (void)orDeviceSynchronize();
      },
      SIGSEGV, "the host touched device memory: .*of 100 bytes, byte 0 in it");
}

TEST_F(FaultReportTest, AKernelRunsPastTheEndOfItsDevice) {
  EXPECT_DIES(
      [] {
        orAddressWindow window;
        size_t free_bytes = 0;
        size_t total = 0;
        REQUIRE(orGetAddressWindow(&window) == orSuccess);
        REQUIRE(orMemGetInfo(&free_bytes, &total) == orSuccess);
        const auto* end = reinterpret_cast<const char*>(
            window.base + total + static_cast<uintptr_t>(window.kernel_offset));
        REQUIRE(orLaunchKernel(nullptr, [end] { Touch(end); }) == orSuccess);
        (void)orDeviceSynchronize();
      },
      SIGSEGV, "a kernel touched device memory that is not there: .*between the devices");
}

TEST_F(FaultReportTest, TheSystemHasNoPageForAKernel) {
  EXPECT_DIES(
      [] {
        char* memory = Allocate(100);
        void* view = nullptr;
        REQUIRE(orGetKernelPointer(&view, memory) == orSuccess);
        // Simulate a machine that has run out of memory and sends SIGBUS. The device's own file
        // cannot shrink, so an empty file replaces its page.
        const auto page = reinterpret_cast<uintptr_t>(view) & -uintptr_t{4096};
        REQUIRE(mmap(reinterpret_cast<void*>(page), 4096, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_FIXED, memfd_create("empty", 0), 0) != MAP_FAILED);
        REQUIRE(orLaunchKernel(nullptr, [view] { Touch(static_cast<char*>(view)); }) == orSuccess);
        (void)orDeviceSynchronize();
      },
      SIGBUS, "a kernel touched device memory that is not there: .*SIGBUS: the system has no page");
}

TEST_F(FaultReportTest, TheChildOfAForkTouchesDeviceMemory) {
  EXPECT_DIES(
      [] {
        char* memory = Allocate(100);
        const pid_t child = fork();
        if (child == 0) {
          Touch(memory);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        REQUIRE(DiesOf(SIGSEGV)(status));
        raise(SIGKILL);
      },
      SIGKILL, "a forked child touched device memory, which it does not have: .*of 100 bytes");
}

// ------------------------------------------------------------------- faults outside device memory

// Writes to an unmapped address.
void TouchNothing() {
  static volatile uintptr_t nothing = 16;  // volatile prevents the compiler from knowing the value
  *reinterpret_cast<volatile char*>(nothing) = 1;
}

TEST_F(FaultReportTest, OtherFaultsAreNotReportedAndEndTheProcess) {
  EXPECT_EXIT(
      {
        (void)Allocate(1);
        TouchNothing();
      },
      DiesOf(SIGSEGV), testing::Not(testing::HasSubstr("openreg:")));
}

TEST_F(FaultReportTest, ThePreviousHandlerGetsOtherFaults) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, [](int) { _exit(21); });
        (void)Allocate(1);
        TouchNothing();
      },
      testing::ExitedWithCode(21), "");
  EXPECT_EXIT(
      {
        struct sigaction action {};
        action.sa_sigaction = [](int, siginfo_t* info, void*) {
          _exit(info->si_addr == reinterpret_cast<void*>(16) ? 22 : 98);
        };
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &action, nullptr);
        (void)Allocate(1);
        TouchNothing();
      },
      testing::ExitedWithCode(22), "");
}

sigjmp_buf recovery;

TEST_F(FaultReportTest, ThePreviousHandlerMayRecoverRepeatedly) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, [](int) { siglongjmp(recovery, 1); });
        char* memory = Allocate(100);
        static volatile int recovered = 0;
        if (sigsetjmp(recovery, 1) != 0) {
          recovered = recovered + 1;
        }
        if (recovered < 3) {
          TouchNothing();
        }
        if (recovered < 5) {
          Touch(memory + recovered);  // a fault in device memory, which is reported and passed on
        }
        _exit(recovered == 5 ? 23 : 98);
      },
      testing::ExitedWithCode(23), "byte 3 in it(.|\n)*byte 4 in it");
}

TEST_F(FaultReportTest, AnIgnoredFaultStillEndsTheProcess) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, SIG_IGN);
        (void)Allocate(1);
        raise(SIGSEGV);  // not a fault, so the signal is ignored
        TouchNothing();
      },
      testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(FaultReportTest, ARaisedFaultSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, SIG_DFL);
        (void)Allocate(1);
        raise(SIGSEGV);
        _exit(98);
      },
      testing::KilledBySignal(SIGSEGV), "");
}

// Imitates Python's faulthandler: prints a message, restores the previous handler, and raises the
// signal again.
struct sigaction before_faulthandler;
void LikeFaulthandler(int signal) {
  static constexpr char kText[] = "a Python stack\n";
  (void)!write(STDERR_FILENO, kText, sizeof(kText) - 1);
  sigaction(signal, &before_faulthandler, nullptr);
  raise(signal);
}

void InstallLikeFaulthandler() {
  struct sigaction action {};
  action.sa_handler = LikeFaulthandler;
  action.sa_flags = SA_NODEFER;
  sigaction(SIGSEGV, &action, &before_faulthandler);
}

TEST_F(FaultReportTest, WorksWithFaulthandlerInstalledBeforeOrAfter) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, SIG_DFL);
        InstallLikeFaulthandler();
        Touch(Allocate(50));
      },
      testing::KilledBySignal(SIGSEGV), "of 50 bytes, byte 0 in it(.|\n)*a Python stack");
#if defined(__x86_64__) || defined(__aarch64__)
  EXPECT_EXIT(
      {
        signal(SIGSEGV, SIG_DFL);
        char* memory = Allocate(50);
        InstallLikeFaulthandler();
        Touch(memory);
      },
      testing::KilledBySignal(SIGSEGV), "a Python stack(.|\n)*of 50 bytes, byte 0 in it");
#endif
}

}  // namespace
}  // namespace openreg::device
