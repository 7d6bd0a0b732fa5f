// SPDX-License-Identifier: BSD-3-Clause
//
// The other process of ipc_test.cc. Reads commands, one a line, and answers each with a line.
//   open HEX          -> ok INDEX | error NAME DETAIL     a handle; INDEX names the block from then
//   on close INDEX       -> ok | error ... read INDEX OFFSET -> VALUE of one byte write INDEX
//   OFFSET VALUE -> ok export SIZE VALUE -> ok HEX         a new block, full of VALUE fork -> ok
//   PID         of a child that lives until it is killed quit
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "runtime/device/openreg.h"

namespace {

std::string Hex(const orIpcMemHandle& handle) {
  std::string text;
  for (unsigned char byte : handle.reserved) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", byte);
    text += digits;
  }
  return text;
}

orIpcMemHandle FromHex(const std::string& text) {
  orIpcMemHandle handle{};
  for (size_t index = 0; index < sizeof(handle.reserved) && 2 * index + 1 < text.size(); ++index) {
    handle.reserved[index] =
        static_cast<unsigned char>(std::stoi(text.substr(2 * index, 2), nullptr, 16));
  }
  return handle;
}

void Answer(orError_t error, const std::string& result = "") {
  if (error == orSuccess) {
    std::cout << "ok " << result << std::endl;
  } else {
    std::cout << "error " << orGetErrorName(error) << " " << orGetLastErrorDetail() << std::endl;
  }
}

// The byte as a kernel of this process sees it.
volatile unsigned char* Byte(void* block, size_t offset) {
  void* view = nullptr;
  if (orGetKernelPointer(&view, block) != orSuccess) {
    std::cout << "error " << orGetLastErrorDetail() << std::endl;
    _exit(1);
  }
  return static_cast<unsigned char*>(view) + offset;
}

}  // namespace

int main() {
  std::vector<void*> blocks;
  std::string command;
  while (std::cin >> command && command != "quit") {
    if (command == "open") {
      std::string hex;
      std::cin >> hex;
      const orIpcMemHandle handle = FromHex(hex);
      void* pointer = nullptr;
      const orError_t error = orIpcOpenMemHandle(&pointer, &handle);
      if (error == orSuccess) {
        blocks.push_back(pointer);
      }
      Answer(error, std::to_string(blocks.size() - 1));
    } else if (command == "close") {
      size_t index = 0;
      std::cin >> index;
      Answer(orIpcCloseMemHandle(blocks.at(index)));
    } else if (command == "read") {
      size_t index = 0, offset = 0;
      std::cin >> index >> offset;
      std::cout << static_cast<int>(*Byte(blocks.at(index), offset)) << std::endl;
    } else if (command == "write") {
      size_t index = 0, offset = 0;
      int value = 0;
      std::cin >> index >> offset >> value;
      *Byte(blocks.at(index), offset) = static_cast<unsigned char>(value);
      Answer(orSuccess);
    } else if (command == "export") {
      size_t size = 0;
      int value = 0;
      std::cin >> size >> value;
      void* pointer = nullptr;
      orIpcMemHandle handle{};
      orError_t error = orMalloc(&pointer, size);
      if (error == orSuccess) {
        error = orMemset(pointer, value, size);
      }
      if (error == orSuccess) {
        error = orIpcGetMemHandle(&handle, pointer);
      }
      Answer(error, Hex(handle));
    } else if (command == "fork") {
      const pid_t child = fork();
      if (child == 0) {
        close(STDIN_FILENO);
        close(STDOUT_FILENO);
        alarm(120);
        for (;;) {
          pause();
        }
      }
      Answer(orSuccess, std::to_string(child));
    }
  }
  return 0;
}
