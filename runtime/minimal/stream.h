// SPDX-License-Identifier: BSD-3-Clause
//
// stream.h - a queue of commands with a thread that runs them in order, and the table of all
// streams.
//
// The commands of a stream have positions 1, 2, 3, and so on. A command is done when the number of
// finished commands has reached its position. An event consists of a stream and a position, and
// every wait is for a position. Streams are shared objects, which exist as long as an event or a
// wait refers to them.
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
  uint64_t order = 0;  // position of this failure among all failures in the process
};
// Sets the calling thread's last error to the failure and returns its error. Returns orSuccess if
// there is no failure.
orError_t Report(const Failure& failure);

class Stream {
 public:
  // A command. If `source` is set, this stream first waits until that stream reaches a position.
  struct Command {
    std::function<orError_t(std::string* text)> run = {};  // empty if there is nothing to run
    std::shared_ptr<Stream> source = {};
    uint64_t source_position = 0;
    Failure* failure = nullptr;  // receives the error instead of the stream
  };
  enum class State { kDone, kPending, kDropped };

  Stream(int device, int priority) : device_(device), priority_(priority) {}
  int device() const { return device_; }
  int priority() const { return priority_; }

  // Adds a command. Waits while the queue is full.
  orError_t Queue(const char* function, Command command, uint64_t* position = nullptr);
  // Makes the calling host thread wait for the position. Fails if the command was dropped because
  // the process is exiting.
  orError_t Wait(const char* function, uint64_t position);

  uint64_t last_position();  // the position of the last queued command
  State StateOf(uint64_t position);
  // Returns the first error since the last call, and clears it.
  Failure TakeFailure();
  uint64_t failure_order();  // `order` of the stream's error, or UINT64_MAX if it has no error

  // Ends the thread when the queue is empty.
  void Close();
  // Ends the thread after the running command. Queued commands are dropped.
  void Stop();
  bool ended();  // whether the thread has run its last command
  void Join();   // waits until the thread has ended

 private:
  static constexpr size_t kCapacity = 1024;  // largest number of queued commands

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
  // Finds the stream of a handle. Null denotes the default stream of the current device. Fails if
  // the handle is invalid.
  orError_t Find(const char* function, orStream_t handle, std::shared_ptr<Stream>* stream);
  orError_t Create(int device, int priority, orStream_t* handle);
  orError_t Destroy(orStream_t handle);
  // Waits for all streams of the device. Returns the earliest error of their commands in
  // `*failure`.
  orError_t Synchronize(const char* function, int device, Failure* failure);
  // Waits for the device, drops its errors, and destroys its streams except the default stream.
  orError_t Reset(const char* function, int device);
  void ShutDown();

 private:
  std::vector<std::shared_ptr<Stream>> OfDevice(int device);
  void JoinEnded();

  HandleTable<Stream, orStream_t, 0x5eed> table_;
  std::vector<orStream_t> defaults_;
  std::mutex mutex_;
  // Destroyed streams that still run or have an error.
  std::vector<std::shared_ptr<Stream>> destroyed_;
};

// Destroys the events of a device (event.cc).
void DestroyEvents(int device);

}  // namespace openreg::minimal

#endif  // RUNTIME_MINIMAL_STREAM_H_
