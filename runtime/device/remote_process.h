// SPDX-License-Identifier: BSD-3-Clause
//
// remote_process.h - the second process in tests of interprocess features. It runs the program
// remote_process.cc, which documents its commands, until the object is destroyed.
#ifndef RUNTIME_DEVICE_REMOTE_PROCESS_H_
#define RUNTIME_DEVICE_REMOTE_PROCESS_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime/device/hex.h"
#include "runtime/device/openreg.h"

namespace openreg::device {

class RemoteProcess {
 public:
  explicit RemoteProcess(const char* device_count = nullptr) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) {
      ADD_FAILURE() << "no pipes: " << std::strerror(errno);
      return;
    }
    pid_ = fork();
    if (pid_ == 0) {
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      if (device_count != nullptr) {
        setenv("OPENREG_DEVICE_COUNT", device_count, 1);
      }
      execl("runtime/device/remote_process", "remote_process", nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    input_ = fdopen(to[1], "w");
    output_ = fdopen(from[0], "r");
  }
  ~RemoteProcess() {
    std::fclose(input_);  // ends the loop in the other process
    std::fclose(output_);
    if (pid_ > 0) {
      int status = 0;
      waitpid(pid_, &status, 0);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }
  }
  RemoteProcess(const RemoteProcess&) = delete;
  RemoteProcess& operator=(const RemoteProcess&) = delete;

  std::string Ask(const std::string& command) {
    std::fprintf(input_, "%s\n", command.c_str());
    std::fflush(input_);
    std::string answer;
    for (int character = std::fgetc(output_); character != EOF && character != '\n';
         character = std::fgetc(output_)) {
      answer += static_cast<char>(character);
    }
    return answer;
  }
  std::string Import(const orIpcMemoryHandle& handle) { return Ask("import " + Hex(handle)); }

  // Sends a command and returns the handle from the answer "ok HEX".
  template <class Bytes>
  Bytes Give(const std::string& command) {
    const std::string answer = Ask(command);
    EXPECT_EQ(answer.substr(0, 3), "ok ") << command << ": " << answer;
    return FromHex<Bytes>(answer.substr(std::min<size_t>(3, answer.size())));
  }
  pid_t process() const { return pid_; }

  void Kill() {
    kill(pid_, SIGKILL);
    int status = 0;
    waitpid(pid_, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  FILE* input_ = nullptr;
  FILE* output_ = nullptr;
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_REMOTE_PROCESS_H_
