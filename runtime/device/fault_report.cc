// SPDX-License-Identifier: BSD-3-Clause
//
// All code in the handler is async-signal-safe: it does not allocate, lock, or use stdio.
#include "runtime/device/fault_report.h"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/device/allocation.h"
#include "runtime/device/arena.h"
#include "runtime/device/error.h"
#include "runtime/device/openreg_emulation.h"
#include "runtime/device/process.h"

namespace openreg::device {
namespace {

std::atomic<orMemoryResolver_t> memory_resolver{nullptr};

constexpr int kSignals[] = {SIGSEGV, SIGBUS};
struct sigaction previous[2];

struct sigaction& Previous(int signal) { return previous[signal == SIGSEGV ? 0 : 1]; }

// A line of text. It is written with one system call, so that lines of different threads are not
// mixed.
class Line {
 public:
  Line& operator<<(const char* text) {
    while (*text != '\0' && size_ < sizeof(text_)) {
      text_[size_++] = *text++;
    }
    return *this;
  }
  Line& Decimal(uint64_t number) { return Digits(number, 10); }
  Line& Hex(uint64_t number) {
    *this << "0x";
    return Digits(number, 16);
  }
  void Write() {
    const char* rest = text_;
    while (size_ != 0) {
      const ssize_t written = write(STDERR_FILENO, rest, size_);
      if (written <= 0) {
        return;
      }
      rest += written;
      size_ -= static_cast<size_t>(written);
    }
  }

 private:
  Line& Digits(uint64_t number, unsigned base) {
    char digits[24];
    size_t count = sizeof(digits);
    digits[--count] = '\0';
    do {
      digits[--count] = "0123456789abcdef"[number % base];
      number /= base;
    } while (number != 0);
    return *this << &digits[count];
  }

  char text_[768];
  size_t size_ = 0;
};

// Returns the address of the fault that raised a signal, or 0 if there was no fault. A handler that
// was installed later may pass the signal on with raise(). In this case, the signal has no address,
// but the thread's context contains it.
uintptr_t FaultAddress(const siginfo_t* info, const void* context) {
  if (info->si_code > 0) {
    return reinterpret_cast<uintptr_t>(info->si_addr);
  }
  if (info->si_code == SI_TKILL && info->si_pid == getpid()) {
    const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
    constexpr greg_t kPageFault = 14;
    return machine.gregs[REG_TRAPNO] == kPageFault ? static_cast<uintptr_t>(machine.gregs[REG_CR2])
                                                   : 0;
#elif defined(__aarch64__)
    return machine.fault_address;
#endif
  }
  return 0;
}

void Describe(Line& line, uintptr_t address) {
  const int device = arena.DeviceOf(address);
  line << "address ";
  line.Hex(address);
  if (device >= 0) {
    line << ", device ";
    line.Decimal(static_cast<uint64_t>(device)) << ", offset ";
    line.Hex(address - arena.device(device).base);
  } else if (arena.imports().Contains(address)) {
    line << ", imported from another process";
  } else {
    line << ", between the devices";
  }
  LiveTable::Entry entry;
  if (!Allocations::Get().live_table().Find(address, &entry)) {
    line << ", in no live allocation (freed, or never allocated)";
    return;
  }
  line << ", allocation ";
  line.Hex(entry.base) << " of ";
  line.Decimal(entry.size) << " bytes, byte ";
  line.Decimal(address - entry.base) << " in it";
  orMemoryRange range{};
  const orMemoryResolver_t resolve = memory_resolver.load(std::memory_order_acquire);
  if (resolve != nullptr && resolve(reinterpret_cast<const void*>(address), &range) != 0) {
    line << ", block ";
    line.Hex(reinterpret_cast<uintptr_t>(range.base)) << " of ";
    line.Decimal(range.size) << " bytes in it, which is "
                             << (range.in_use != 0 ? "in use" : "free (use after free?)");
  }
}

// Writes the report if the address lies in the arena. Returns whether it lies there.
bool Report(int signal, uintptr_t address) {
  const Window& half = arena.half();
  const bool device_half = half.Contains(address);
  if (!device_half && !half.Contains(address - half.size)) {
    return false;
  }
  // Report each fault only once: if another handler raises the signal again, this code runs a
  // second time.
  static std::atomic<uintptr_t> reported{0};
  if (reported.exchange(address) == address) {
    return true;
  }
  Line line;
  line << "openreg: ";
  if ((mode.load(std::memory_order_relaxed) & kForked) != 0) {
    line << "a forked child touched device memory, which it does not have: ";
    Describe(line, device_half ? address : address - half.size);
  } else if (device_half) {
    line << "the host touched device memory: ";
    Describe(line, address);
    line << " (use tensor.cpu(), or orMemcpy, to read it)";
  } else {
    line << "a kernel touched device memory that is not there: ";
    Describe(line, address - half.size);
    if (signal == SIGBUS) {
      line << " (SIGBUS: the system has no page left for it; see OPENREG_DEVICE_MEMORY)";
    }
  }
  line << "\n";
  line.Write();
  return true;
}

void Default(int signal) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
}

// Passes the signal to the previous handler.
void Chain(int signal, siginfo_t* info, void* context) {
  const struct sigaction before = Previous(signal);
  if ((before.sa_flags & SA_SIGINFO) == 0 &&
      (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)) {
    const bool fault = info->si_code > 0;
    if (!fault && before.sa_handler == SIG_IGN) {
      return;  // another process sent the signal, and the process ignores it
    }
    // A fault cannot be ignored. When this handler returns, the faulting instruction runs again,
    // now with the default action. A core dump therefore shows its location. A signal that a
    // process sent must be raised again.
    Default(signal);
    if (!fault) {
      raise(signal);
    }
    return;
  }
  if ((before.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) {
    Previous(signal).sa_flags &= ~SA_SIGINFO;
    Previous(signal).sa_handler = SIG_DFL;
  }
  if ((before.sa_flags & SA_NODEFER) != 0) {
    sigset_t unblocked;
    sigemptyset(&unblocked);
    sigaddset(&unblocked, signal);
    pthread_sigmask(SIG_UNBLOCK, &unblocked, nullptr);
  }
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else {
    before.sa_handler(signal);
  }
}

void Handle(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  if (const uintptr_t address = FaultAddress(info, context); address != 0) {
    Report(signal, address);
  }
  Chain(signal, info, context);
  errno = saved;
}

}  // namespace

void InstallFaultReport() {
  for (const int signal : kSignals) {
    struct sigaction action {};
    action.sa_sigaction = Handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    // Read the previous handler first, because another thread may fault as soon as the new one is
    // installed.
    sigaction(signal, nullptr, &Previous(signal));
    sigaction(signal, &action, nullptr);
  }
}

extern "C" {

OPENREG_API orError_t orSetMemoryResolver(orMemoryResolver_t resolver) {
  memory_resolver.store(resolver, std::memory_order_release);
  return orSuccess;
}

}  // extern "C"
}  // namespace openreg::device
