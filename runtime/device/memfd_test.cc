// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "runtime/device/device_fixture.h"

namespace openreg::device {
namespace {

class MemfdTest : public DeviceTest {
 protected:
  static std::string Target(int file) {
    char name[128];
    const ssize_t length =
        readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), name, sizeof(name));
    return std::string(name, length > 0 ? static_cast<size_t>(length) : 0);
  }
  // Returns the file descriptors of all devices and of the shared page.
  std::vector<int> FilesForOthers() {
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

TEST_F(MemfdTest, AnotherFileIsNotOpened) {
  // If OpenMemfd tried to open the socket, it would fail with a different error. The test therefore
  // also shows that it does not try.
  const int file = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_GE(file, 0);
  int opened = 0;
  EXPECT_FAILS(OpenMemfd("test", {getpid(), file, 7}, &opened), orErrorProcessEnded,
               "not the memory that the handle refers to");
  EXPECT_EQ(opened, -1);
  close(file);
}

TEST_F(MemfdTest, AFileThatCanShrinkIsNotOpened) {
  const int file = memfd_create(MemfdName(7).text, MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  int opened = 0;
  EXPECT_FAILS(OpenMemfd("test", {getpid(), file, 7}, &opened), orErrorInvalidValue,
               "its size is not sealed");
  EXPECT_EQ(opened, -1);
  close(file);
}

TEST_F(MemfdTest, SharedFilesKeepTheirSize) {
  const std::vector<int> files = FilesForOthers();
  EXPECT_EQ(files.size(), static_cast<size_t>(count_) + 1);
  for (const int file : files) {
    constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    EXPECT_EQ(fcntl(file, F_GET_SEALS) & kSeals, kSeals) << Target(file);
    EXPECT_NE(ftruncate(file, 0), 0) << Target(file);
    EXPECT_NE(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE), 0) << Target(file);
  }
  size_t released = 0;
  EXPECT_OK(orMemTrim(&released));  // punches holes, which the seals must allow
}

TEST_F(MemfdTest, SharedFilesAreNeverExecutable) {
  constexpr unsigned kNoExecSeal = 0x8;  // MFD_NOEXEC_SEAL, which older headers do not define
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

}  // namespace
}  // namespace openreg::device
