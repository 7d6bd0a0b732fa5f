// SPDX-License-Identifier: BSD-3-Clause
//
// stream.h - a queue of commands with a thread that runs them in order, and the streams of all
// devices.
//
// Commands have positions 1, 2, 3... in their stream; a command is done when the number of commands
// that are done has reached its position. An event consists of a stream and a position, and every
// wait is for a position. Streams are shared objects, which live as long as an event or a wait
// refers to them.
//
// Any thread may call these functions, except that a stream's own thread must not wait for the
// stream.
#ifndef RUNTIME_MINIMAL_STREAM_H_
#define RUNTIME_MINIMAL_STREAM_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/device/openreg.h"
#include "runtime/minimal/handle_table.h"

namespace openreg::minimal {

// The error that a command returned.
struct Failure {
  orError_t error = orSuccess;
  std::string text;
  uint64_t order = 0;  // position among all failures in the process
};
// Sets the calling thread's last error and returns it. Returns orSuccess if there is no failure.
orError_t Report(const Failure& failure);

class Stream {
 public:
  // A command. If `source` is set, this stream first waits for a position in that stream.
  struct Command {
    std::function<orError_t(std::string* text)> run = {};  // empty if there is nothing to run
    std::shared_ptr<Stream> source = {};
    uint64_t source_position = 0;
    Failure* failure = nullptr;  // receives the error in place of the stream
  };
  enum class State { kDone, kPending, kDropped };

  Stream(int device, int priority) : device_(device), priority_(priority) {}
  int device() const { return device_; }
  int priority() const { return priority_; }

  // Adds a command. Waits while the queue is full.
  orError_t Queue(const char* function, Command command, uint64_t* position = nullptr);
  // Makes the calling host thread wait. Fails if the command was dropped because the process is
  // exiting.
  orError_t Wait(const char* function, uint64_t position);

  uint64_t last_position();  // the position of the last queued command
  State StateOf(uint64_t position);
  // Returns the first error since the last call.
  Failure TakeFailure();
  uint64_t failure_order();  // the order of that error; UINT64_MAX if there is none

  // Ends the thread as soon as the queue is empty.
  void Close();
  // Ends the thread after the command that is running. The queued commands are dropped.
  void Stop();
  bool ended();  // whether the thread has run its last command
  void Join();   // waits until the thread has ended

 private:
  static constexpr size_t kCapacity = 1024;  // the largest number of queued commands

  bool TryQueue(Command* command, uint64_t* position, orError_t* error);
  bool Await(uint64_t position);
  void Run();

  const int device_;
  const int priority_;  // has no effect: the operating system schedules the threads
  std::mutex mutex_;
  std::condition_variable changed_;  // signaled when a member below changes
  std::deque<Command> queue_;
  uint64_t queued_ = 0;
  uint64_t done_ = 0;
  Failure failure_;
  bool closed_ = false;
  bool stopped_ = false;
  bool ended_ = false;  // the thread runs no more commands
  std::thread thread_;  // started with the first command
};

class Streams {
 public:
  static Streams& Get();

  void CreateDefaults(int device_count);
  orStream_t Default(int device) const { return defaults_[static_cast<size_t>(device)]; }
  // Null means the default stream of the current device. Fails if the handle is not valid.
  orError_t Find(const char* function, orStream_t handle, std::shared_ptr<Stream>* stream);
  orError_t Create(int device, int priority, orStream_t* handle);
  orError_t Destroy(orStream_t handle);
  // Waits for all of the device's streams and returns their commands' earliest error.
  orError_t Synchronize(const char* function, int device, Failure* failure);
  // Waits for the device, drops its errors, and destroys its streams except the default one.
  orError_t Reset(const char* function, int device);
  void ShutDown();

 private:
  std::vector<std::shared_ptr<Stream>> OfDevice(int device);
  void JoinEnded();

  HandleTable<Stream, orStream_t, 0x5eed> table_;
  std::vector<orStream_t> defaults_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Stream>> destroyed_;  // still running, or with an error
};

// Destroys a device's events (event.cc).
void DestroyEvents(int device);

}  // namespace openreg::minimal

#endif  // RUNTIME_MINIMAL_STREAM_H_
