// SPDX-License-Identifier: BSD-3-Clause
//
// window.cc - the C functions for windows. Each one checks its arguments and enqueues a kernel.
#include "distributed/occl/window.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "distributed/occl/error.h"
#include "distributed/occl/window_collective.h"
#include "distributed/occl/window_state.h"
#include "runtime/device/openreg_emulation.h"

struct occlWindow {
  std::shared_ptr<openreg::occl::window::Window> window;
};

namespace openreg::occl::window {
namespace {

// An enqueued operation. Either the launching call and the kernel own it jointly, or a graph owns
// it.
class Launch {
 public:
  Launch(std::shared_ptr<Window> window, std::function<Status(Window&)> operation)
      : window_(std::move(window)), operation_(std::move(operation)) {}

  static Status Enqueue(const char* name, const std::shared_ptr<Window>& window, orStream_t stream,
                        std::function<Status(Window&)> operation) {
    static constexpr orRepeatable kRepeatable{&Launch::Run, &Launch::Release};
    // The flags are those of a long kernel: it runs on the stream's own thread, because it waits
    // for other processes.
    const orLaunchAttributes attributes{name, orLaunchHasRepeatable, 0, &kRepeatable};
    Launch* const launch = std::make_unique<Launch>(window, std::move(operation)).release();
    const orError_t error =
        orLaunchKernel(stream, &Launch::RunOnce, &launch, sizeof(launch), &attributes);
    // Either the launch was rejected, or the kernel has run and failed (with launch blocking).
    // owners_ distinguishes these cases, because a kernel that has run no longer owns the launch.
    // When the process is exiting, the kernel may still be running.
    const bool refused = error != orSuccess && error != orErrorShutdown &&
                         launch->owners_.load(std::memory_order_acquire) == 2;
    launch->Drop(refused ? 2 : 1);
    return DeviceStatus(error);
  }

 private:
  void Drop(int owners) {
    if (owners_.fetch_sub(owners, std::memory_order_acq_rel) == owners) {
      const std::unique_ptr<Launch> last(this);
    }
  }
  static orError_t Run(void* argument) {
    const Launch& self = **static_cast<Launch**>(argument);
    const Status status = self.window_->Run(self.operation_);
    return status.ok() ? orSuccess
                       : orKernelFail(orErrorLaunchFailure, ("occl: " + status.text).c_str(),
                                      nullptr, nullptr);
  }
  static orError_t RunOnce(void* argument) {
    const orError_t error = Run(argument);
    Release(argument);
    return error;
  }
  static void Release(void* argument) { (*static_cast<Launch**>(argument))->Drop(1); }

  const std::shared_ptr<Window> window_;
  const std::function<Status(Window&)> operation_;
  std::atomic<int> owners_{2};
};

// Finds the kernel address of `pointer`. Fails unless it points to at least `bytes` bytes of device
// memory.
Status KernelPointer(const char* which, const void* pointer, size_t bytes, void** found) {
  orPointerAttributes attributes{};
  if (const orError_t error = orPointerGetAttributes(&attributes, pointer); error != orSuccess) {
    return DeviceStatus(error);
  }
  const size_t before =
      static_cast<size_t>(static_cast<const char*>(pointer) - static_cast<char*>(attributes.base));
  if (attributes.type != orMemoryTypeDevice || bytes > attributes.size - before) {
    return Error(occlInvalidArgument, std::string(which) + " must be device memory of at least " +
                                          std::to_string(bytes) + " bytes");
  }
  return DeviceStatus(orGetKernelPointer(found, pointer));
}

// Calls `enqueue` with the window. If the call fails, adds the name of the function to the error.
template <class Function>
occlResult_t WithWindow(const char* function, occlWindow_t window, const Function& enqueue) {
  Status status = window == nullptr ? Error(occlInvalidArgument, "the window must not be null")
                                    : enqueue(window->window);
  if (!status.ok()) {
    status.text = std::string(function) + ": " + status.text;
  }
  return Return(status);
}

Status CheckMembers(int ranks, int rank, const occlWindowMember* members,
                    const occlWindowConfig_t* config) {
  if (members == nullptr || config == nullptr) {
    return Error(occlInvalidArgument, "members and config must not be null");
  }
  if (ranks < 1 || ranks > OCCL_MAX_RANKS || rank < 0 || rank >= ranks) {
    return Error(occlInvalidArgument,
                 "got rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                     " ranks: the number of ranks must be between 1 and " +
                     std::to_string(OCCL_MAX_RANKS) +
                     ", and the rank must be between 0 and the number of ranks - 1");
  }
  return {};
}

}  // namespace

extern "C" {

OPENREG_API occlResult_t occlGetProcess(occlProcess* process) {
  if (process == nullptr) {
    return Return(Error(occlInvalidArgument, "occlGetProcess: process must not be null"));
  }
  orIpcFileHandle file;
  if (const orError_t error = orIpcGetDeviceFile(&file, 0); error != orSuccess) {
    return Return(DeviceStatus(error));
  }
  *process = {};
  std::memcpy(process->internal, &file, sizeof(file));
  return occlSuccess;
}

OPENREG_API occlResult_t occlWindowCreate(occlWindow_t* window, int ranks, int rank,
                                          const occlWindowMember* members,
                                          const occlWindowConfig_t* config) {
  if (window == nullptr) {
    return Return(Error(occlInvalidArgument, "occlWindowCreate: window must not be null"));
  }
  *window = nullptr;
  if (Status status = CheckMembers(ranks, rank, members, config); !status.ok()) {
    status.text = "occlWindowCreate: " + status.text;
    return Return(status);
  }
  // The watcher must be destroyed before the device's exit handler runs, because this handler waits
  // for running kernels. Therefore create it after that handler.
  struct ExitWatcher {
    ~ExitWatcher() { EndWaits(); }
  };
  static const ExitWatcher watcher;
  auto made = std::make_shared<Window>(ranks, rank, members, *config);
  for (int peer = 0; peer < ranks; ++peer) {
    if (const Status status = made->SetMember(peer, members[peer]); !status.ok()) {
      return Return(status);
    }
  }
  *window = std::make_unique<occlWindow>(occlWindow{std::move(made)}).release();
  return occlSuccess;
}

OPENREG_API occlResult_t occlWindowDestroy(occlWindow_t window) {
  if (window == nullptr) {
    return occlSuccess;
  }
  if (!window->window->Close()) {
    return occlInProgress;
  }
  const std::unique_ptr<occlWindow> last(window);
  return occlSuccess;
}

OPENREG_API void occlWindowEndWaits(void) { EndWaits(); }

OPENREG_API occlResult_t occlWindowPutSignal(occlWindow_t window, int peer, int channel,
                                             int64_t timeout_ms, orStream_t stream) {
  return WithWindow("occlWindowPutSignal", window, [&](const std::shared_ptr<Window>& of) {
    Status status = of->CheckPeer(peer);
    status = status.ok() ? of->CheckChannel(channel) : status;
    return !status.ok() ? status : Launch::Enqueue("occl::PutSignal", of, stream, [=](Window& on) {
      return on.Put(peer, channel, on.Start(timeout_ms));
    });
  });
}

OPENREG_API occlResult_t occlWindowWaitSignal(occlWindow_t window, int peer, int channel,
                                              int64_t timeout_ms, orStream_t stream) {
  return WithWindow("occlWindowWaitSignal", window, [&](const std::shared_ptr<Window>& of) {
    Status status = of->CheckPeer(peer);
    status = status.ok() ? of->CheckChannel(channel) : status;
    return !status.ok() ? status : Launch::Enqueue("occl::WaitSignal", of, stream, [=](Window& on) {
      return on.Take(peer, channel, on.Start(timeout_ms));
    });
  });
}

OPENREG_API occlResult_t occlWindowBarrier(occlWindow_t window, int channel, int64_t timeout_ms,
                                           orStream_t stream) {
  return WithWindow("occlWindowBarrier", window, [&](const std::shared_ptr<Window>& of) {
    const Status status = of->CheckChannel(channel);
    return !status.ok() ? status
                        : Launch::Enqueue("occl::WindowBarrier", of, stream, [=](Window& on) {
                            return on.Barrier(channel, on.Start(timeout_ms));
                          });
  });
}

OPENREG_API occlResult_t occlWindowAllReduceOneShot(occlWindow_t window, size_t offset,
                                                    size_t count, occlDataType_t type,
                                                    occlRedOp_t op, const void* input, void* output,
                                                    orStream_t stream) {
  return WithWindow("occlWindowAllReduceOneShot", window, [&](const std::shared_ptr<Window>& of) {
    Collective collective;
    void* from = nullptr;
    void* to = nullptr;
    Status status = Check(*of, {Request::Kind::kOneShot, type, op, offset, count, 1}, &collective);
    if (status.ok() && input != nullptr) {
      status = KernelPointer("input", input, collective.bytes, &from);
    }
    if (status.ok() && count != 0) {
      status = KernelPointer("output", output, collective.bytes, &to);
    }
    return !status.ok() ? status
                        : Launch::Enqueue("occl::OneShotAllReduce", of, stream, [=](Window& on) {
                            return RunOneShot(on, collective, from, to);
                          });
  });
}

OPENREG_API occlResult_t occlWindowAllReduceTwoShot(occlWindow_t window, size_t offset,
                                                    size_t count, occlDataType_t type,
                                                    occlRedOp_t op, void* output,
                                                    orStream_t stream) {
  return WithWindow("occlWindowAllReduceTwoShot", window, [&](const std::shared_ptr<Window>& of) {
    Collective collective;
    void* to = nullptr;
    Status status = Check(*of, {Request::Kind::kTwoShot, type, op, offset, count, 1}, &collective);
    if (status.ok() && output != nullptr) {
      status = KernelPointer("output", output, collective.bytes, &to);
    }
    return !status.ok() ? status
                        : Launch::Enqueue("occl::TwoShotAllReduce", of, stream, [=](Window& on) {
                            return RunTwoShot(on, collective, to);
                          });
  });
}

OPENREG_API occlResult_t occlWindowReduceScatter(occlWindow_t window, size_t offset, size_t rows,
                                                 size_t count, occlDataType_t type, occlRedOp_t op,
                                                 void* output, orStream_t stream) {
  return WithWindow("occlWindowReduceScatter", window, [&](const std::shared_ptr<Window>& of) {
    Collective collective;
    void* to = nullptr;
    Status status =
        Check(*of, {Request::Kind::kReduceScatter, type, op, offset, count, rows}, &collective);
    if (status.ok() && collective.bytes != 0) {
      status =
          KernelPointer("output", output, collective.bytes / static_cast<size_t>(of->ranks()), &to);
    }
    return !status.ok() ? status
                        : Launch::Enqueue("occl::WindowReduceScatter", of, stream, [=](Window& on) {
                            return RunReduceScatter(on, collective, to);
                          });
  });
}

OPENREG_API occlResult_t occlWindowAllToAllV(occlWindow_t window, size_t offset,
                                             occlWindow_t splits, size_t splits_offset,
                                             const occlRows* rows, void* output,
                                             void* output_splits, orStream_t stream) {
  return WithWindow("occlWindowAllToAllV", window, [&](const std::shared_ptr<Window>& of) {
    if (splits == nullptr || rows == nullptr) {
      return Error(occlInvalidArgument, "splits and rows must not be null");
    }
    Status status = CheckRows(*of, *splits->window, offset, splits_offset, *rows);
    RowExchange exchange{{Request::Kind::kAllToAll, occlByte, occlSum, offset, rows->bytes, 1},
                         splits_offset,
                         *rows};
    const size_t words = 2 * static_cast<size_t>(of->ranks()) * sizeof(int64_t);
    void* address = nullptr;
    if (status.ok() && rows->output_rows * rows->bytes != 0) {
      status = KernelPointer("output", output, rows->output_rows * rows->bytes, &address);
      exchange.output = static_cast<unsigned char*>(address);
    }
    if (status.ok()) {
      status = KernelPointer("output_splits", output_splits, words, &address);
      exchange.output_splits = static_cast<int64_t*>(address);
    }
    return !status.ok() ? status
                        : Launch::Enqueue("occl::WindowAllToAll", of, stream,
                                          [=, numbers = splits->window](Window& on) {
                                            return numbers->Run([&](Window& counts) {
                                              return RunRowExchange(on, counts, exchange);
                                            });
                                          });
  });
}

}  // extern "C"
}  // namespace openreg::occl::window
