// SPDX-License-Identifier: BSD-3-Clause
//
// The second process of ipc_event_test.cc, ipc_file_test.cc, shared_memory_test.cc and
// //runtime/c10:sharing_test. It reads one command per line and answers each command with one line.
// The answer is "ok" and the result of the command, or "error", the name of the error and its
// detail. All commands use device 0 and its default stream.
//
//   read INDEX OFFSET   VALUE     one byte, read like a kernel; the answer has no "ok"
//   write INDEX OFFSET VALUE
//   fill INDEX VALUE              queued; 16 bytes
//   new SIZE VALUE      INDEX     a block filled with VALUE; later commands use its INDEX
//   export INDEX OFFSET SIZE   HEX
//   import HEX          INDEX
//   release INDEX                 queued
//   exported INDEX SIZE     0 or 1
//   free INDEX
//   device-file         HEX
//   file-offset INDEX   OFFSET
//   file SIZE VALUE     HEX       a file for other processes; its first byte is VALUE
//   file-byte           VALUE     the first byte of that file
//   event               INDEX     an interprocess event
//   event-handle INDEX  HEX
//   event-open HEX      INDEX
//   event-record INDEX, event-destroy INDEX, event-query INDEX, event-synchronize INDEX
//   event-wait INDEX              makes the stream wait for the event
//   gate                          queues a kernel that runs until "let-go"
//   let-go                        ends that kernel
//   synchronize                   waits for the device
//   fork                PID       forks a child that runs until it is killed
//   quit
#include <unistd.h>

#include <atomic>
#include <iostream>
#include <string>
#include <vector>

#include "runtime/device/hex.h"
#include "runtime/device/openreg_emulation.h"

namespace {

using openreg::device::FromHex;
using openreg::device::Hex;

void Answer(orError_t error, const std::string& result = "") {
  if (error == orSuccess) {
    std::cout << "ok " << result << std::endl;
  } else {
    std::cout << "error " << orGetErrorName(error) << " " << orGetLastErrorDetail() << std::endl;
  }
}

std::atomic<bool> gate_open{false};

orError_t WaitAtGate(void*) {
  while (!gate_open.load()) {
    usleep(50);
  }
  return orSuccess;
}

// Allocates a block filled with `value`.
orError_t NewBlock(size_t size, int value, void** pointer) {
  const orError_t error = orMalloc(pointer, size);
  return error == orSuccess ? orMemset(*pointer, value, size) : error;
}

// Returns the address that a kernel of this process must use for the byte.
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
  std::vector<orEvent_t> events;
  void* file = nullptr;
  std::string command;
  while (std::cin >> command && command != "quit") {
    if (command == "read") {
      size_t index = 0, offset = 0;
      std::cin >> index >> offset;
      std::cout << static_cast<int>(*Byte(blocks.at(index), offset)) << std::endl;
    } else if (command == "write") {
      size_t index = 0, offset = 0;
      int value = 0;
      std::cin >> index >> offset >> value;
      *Byte(blocks.at(index), offset) = static_cast<unsigned char>(value);
      Answer(orSuccess);
    } else if (command == "new") {
      size_t size = 0;
      int value = 0;
      std::cin >> size >> value;
      blocks.push_back(nullptr);
      const orError_t error = NewBlock(size, value, &blocks.back());
      Answer(error, std::to_string(blocks.size() - 1));
    } else if (command == "free") {
      size_t index = 0;
      std::cin >> index;
      Answer(orFree(blocks.at(index)));
    } else if (command == "fill") {
      size_t index = 0;
      int value = 0;
      std::cin >> index >> value;
      Answer(orMemsetAsync(blocks.at(index), value, 16, nullptr));
    } else if (command == "export") {
      size_t index = 0, offset = 0, size = 0;
      std::cin >> index >> offset >> size;
      orIpcMemoryHandle handle{};
      const orError_t error =
          orIpcExport(&handle, static_cast<char*>(blocks.at(index)) + offset, size, nullptr);
      Answer(error, Hex(handle));
    } else if (command == "import") {
      std::string hex;
      std::cin >> hex;
      const auto handle = FromHex<orIpcMemoryHandle>(hex);
      blocks.push_back(nullptr);
      const orError_t error = orIpcImport(&blocks.back(), &handle, nullptr);
      Answer(error, std::to_string(blocks.size() - 1));
    } else if (command == "release") {
      size_t index = 0;
      std::cin >> index;
      Answer(orIpcRelease(blocks.at(index), nullptr));
    } else if (command == "exported") {
      size_t index = 0, size = 0;
      std::cin >> index >> size;
      int exported = 0;
      const orError_t error = orIpcIsExported(&exported, blocks.at(index), size);
      Answer(error, std::to_string(exported));
    } else if (command == "device-file") {
      orIpcFileHandle handle{};
      const orError_t error = orIpcGetDeviceFile(&handle, 0);
      Answer(error, Hex(handle));
    } else if (command == "file-offset") {
      size_t index = 0, offset = 0;
      std::cin >> index;
      const orError_t error = orIpcGetFileOffset(&offset, blocks.at(index));
      Answer(error, std::to_string(offset));
    } else if (command == "file") {
      size_t size = 0;
      int value = 0;
      std::cin >> size >> value;
      orIpcFileHandle handle{};
      const orError_t error = orIpcCreateFile(&handle, &file, size);
      if (error == orSuccess) {
        *static_cast<unsigned char*>(file) = static_cast<unsigned char>(value);
      }
      Answer(error, Hex(handle));
    } else if (command == "file-byte") {
      Answer(orSuccess, std::to_string(*static_cast<volatile unsigned char*>(file)));
    } else if (command == "event") {
      events.push_back(nullptr);
      const orError_t error = orEventCreateWithFlags(&events.back(), orEventInterprocess);
      Answer(error, std::to_string(events.size() - 1));
    } else if (command == "event-open") {
      std::string hex;
      std::cin >> hex;
      const auto handle = FromHex<orIpcEventHandle>(hex);
      events.push_back(nullptr);
      const orError_t error = orIpcOpenEventHandle(&events.back(), &handle);
      Answer(error, std::to_string(events.size() - 1));
    } else if (command.starts_with("event-")) {
      size_t index = 0;
      std::cin >> index;
      const orEvent_t event = events.at(index);
      orIpcEventHandle handle{};
      if (command == "event-handle") {
        const orError_t error = orIpcGetEventHandle(&handle, event);
        Answer(error, Hex(handle));
      } else {
        Answer(command == "event-record"        ? orEventRecord(event, nullptr)
               : command == "event-destroy"     ? orEventDestroy(event)
               : command == "event-query"       ? orEventQuery(event)
               : command == "event-synchronize" ? orEventSynchronize(event)
               : command == "event-wait"        ? orStreamWaitEvent(nullptr, event, 0)
                                                : orErrorUnknown);
      }
    } else if (command == "gate") {
      gate_open.store(false);
      Answer(orLaunchKernel(nullptr, WaitAtGate, nullptr, 0, nullptr));
    } else if (command == "let-go") {
      gate_open.store(true);
      Answer(orSuccess);
    } else if (command == "synchronize") {
      Answer(orDeviceSynchronize());
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
  gate_open.store(true);  // the exit of the process waits for running kernels
  return 0;
}
