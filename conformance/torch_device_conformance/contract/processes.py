# SPDX-License-Identifier: BSD-3-Clause
"""Contract rows for processes: loading, fork and exit."""

from torch_device_conformance.contract.child import run, succeed, survive
from torch_device_conformance.contract.row import Backend, Finding, missing, require_equal, row
from torch_device_conformance.verdict.verdict import CRASH, HANG


@row(
    "processes",
    "autoload",
    requires="`import torch` registers the device without another import",
    implement="an entry point in the group torch.backends",
    without="every program needs an additional import",
    shown_by="autoload/torch_openreg_autoload/__init__.py",
    required=False,
    seconds=180,
)
def autoload(backend: Backend) -> None:
    lines = f"""
        import torch
        print(torch.ones(2, device={backend.type!r}).sum().item())
    """
    done = run(backend, lines, load=False, environment={"TORCH_DEVICE_BACKEND_AUTOLOAD": "1"})
    if done.status > 0:
        missing(done.errors.splitlines()[-1] if done.errors else "the process wrote no error")
    require_equal("a sum", succeed(done, "a program that imports only torch"), "2.0")


@row(
    "processes",
    "autoload_off",
    requires="TORCH_DEVICE_BACKEND_AUTOLOAD=0 disables the backend",
    implement="registration only through the entry point, without a .pth file or an import hook",
    without="a broken backend cannot be disabled",
    shown_by="autoload/torch_openreg_autoload/__init__.py",
    seconds=180,
)
def autoload_off(backend: Backend) -> None:
    lines = """
        import torch
        print(torch._C._get_privateuse1_backend_name())
    """
    done = run(backend, lines, load=False, environment={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    require_equal("name of the registered backend", succeed(done, "import torch"), "privateuseone")


@row(
    "processes",
    "fork",
    requires="a forked child that uses the device gets an error, not a crash or a deadlock",
    implement="_is_in_bad_fork, a check at first use; pthread_atfork for locks and memory",
    without="data loader workers hang",
    shown_by="runtime/c10/initialization.h",
    seconds=180,
)
def fork(backend: Backend) -> None:
    lines = """
        import os, signal, sys, time
        x = torch.ones(4, device=device) * 2
        pid = os.fork()
        if pid == 0:
            faulthandler.disable()
            try:
                torch.ones(2, device=device).sum().item()
            except RuntimeError:
                os._exit(3)
            os._exit(4)
        deadline = time.monotonic() + 40
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        if not done:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            print("hang")
        elif os.WIFSIGNALED(status):
            print("signal", os.WTERMSIG(status))
        else:
            print("status", os.WEXITSTATUS(status))
        print((x + 1).sum().item())
    """
    words = succeed(run(backend, lines), "fork").splitlines()
    if words[0] == "hang":
        raise Finding(HANG, "a forked child that used the device did not exit within 40 s")
    if words[0].startswith("signal"):
        raise Finding(CRASH, f"a forked child that used the device died of {words[0]}")
    if words[0] == "status 4":
        # The device works in the child. torch does not require this, but it is correct.
        return
    require_equal("a sum in the parent after the fork", words[1], "12.0")


@row(
    "processes",
    "fork_of_cpu_work",
    requires="a forked child that only uses the CPU is not affected by the device",
    implement="atfork handlers that do not touch the child's memory",
    without="data loader workers crash",
    shown_by="runtime/device/process.cc",
    seconds=180,
)
def fork_of_cpu_work(backend: Backend) -> None:
    lines = """
        x = torch.ones(4, device=device)
        data = torch.utils.data.TensorDataset(torch.arange(8.0))
        loader = torch.utils.data.DataLoader(
            data, batch_size=4, num_workers=2, multiprocessing_context="fork"
        )
        print([batch.to(device).sum().item() for batch, in loader], x.sum().item())
    """
    words = succeed(run(backend, lines), "a data loader with forked workers")
    require_equal("sums", words, "[6.0, 22.0] 4.0")


@row(
    "processes",
    "exit_with_work",
    requires="a process with queued kernels exits with its own exit status, without crash or hang",
    implement="a shutdown that drops or finishes queued work before torch is unloaded",
    without="successful jobs are reported as failed",
    shown_by="runtime/c10/shutdown.cc",
    seconds=180,
)
def exit_with_work(backend: Backend) -> None:
    lines = """
        import contextlib, sys
        wait = getattr(getattr(torch, device.type), "_sleep", None)
        if wait:
            wait(100_000_000)
        try:
            side = torch.Stream(device)
        except NotImplementedError:  # the driver has no streams but the default one
            side = contextlib.nullcontext()
        x = torch.ones(1 << 16, device=device)
        for _ in range(200):
            x = x * 1.0001
        with side:
            y = x + 1
        sys.exit(5)
    """
    succeed(run(backend, lines), "a process that calls sys.exit(5)", status=5)


@row(
    "processes",
    "unhandled_exception",
    requires="an unhandled exception is printed, and the exit status is 1",
    implement="destructors that do not throw",
    without="the original error's message is lost",
    shown_by="runtime/c10/shutdown.cc",
    seconds=180,
)
def unhandled_exception(backend: Backend) -> None:
    lines = """
        x = torch.ones(1000, device=device, requires_grad=True)
        y = (x * 2).sum()
        raise LookupError("the program's own")
    """
    ended = survive(run(backend, lines), "the end of a process")
    require_equal("exit status", ended.status, 1)
    require_equal(
        "last line of stderr", ended.errors.splitlines()[-1], "LookupError: the program's own"
    )
