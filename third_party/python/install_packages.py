# SPDX-License-Identifier: BSD-3-Clause
"""install_packages.py LOCK: installs the packages of a lock file and prints their folder.

The folder is under ~/.cache/torch_openreg, and its name is a hash of the lock, so all clones of a
user share it, as they share .venv. On sys.path its packages follow those of .venv, so the lock
contains no package that requirements.lock contains.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path


def install(lock: Path) -> Path:
    """Installs the packages unless they are already installed.

    Args:
        lock: a requirements file with exact versions and hashes, complete by itself.

    Returns:
        The folder of the packages.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torch_openreg"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"packages-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    with folder.with_suffix(".lock").open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)  # a second process waits, and then finds it done
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
            # All dependencies are in the lock or in requirements.lock. Without --no-deps, pip would
            # install a torch of its own choice.
            exact = ["--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"]
            folders = [f"--target={partial}", f"--requirement={lock}"]
            subprocess.run([*pip, "install", *exact, *folders], check=True)
            partial.rename(folder)
    return folder


if __name__ == "__main__":
    print(install(Path(sys.argv[1])))
