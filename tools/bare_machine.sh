#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Builds and tests a clone of this tree on a machine that has only Debian's base system:
#
#   sudo tools/bare_machine.sh [--suite SUITE] [--mirror URL] [--share PATH]... FOLDER [COMMAND...]
#   sudo tools/bare_machine.sh /tmp/bookworm
#   sudo tools/bare_machine.sh --suite sid /tmp/sid ./bazelw test //runtime/...
#
# FOLDER must not exist. Debian is installed into it (debootstrap), HEAD of this tree is cloned into
# FOLDER/root/torch_openreg, and COMMAND runs there as the first command. The default for COMMAND is
# the two commands in the README and the build of the wheel. Only the pip and proxy settings of the
# caller's environment are passed on. FOLDER is not deleted afterwards.
#
#   --suite SUITE  Debian release (bookworm). Other releases have no Python 3.11, so this machine's
#                  Python is mounted into FOLDER. It must be Debian's, with venv and headers.
#   --mirror URL   the mirror for debootstrap
#   --share PATH   a file or folder to mount at the same path, read-only. Share this machine's apt
#                  and pip settings (/etc/apt/..., a pip.conf, a folder of wheels) if the defaults
#                  do not find packages. A file that a Debian package writes (the list of
#                  certificates) cannot be shared.
set -eu
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
die() {
  echo "bare_machine: $*" >&2
  exit 1
}

suite=bookworm mirror=() share=()
while (($#)); do
  case $1 in
    --suite) suite=${2:?a release of Debian} && shift 2 ;;
    --mirror) mirror=("${2:?a URL}") && shift 2 ;;
    --share) share+=("$(realpath --no-symlinks -- "${2:?a path}")") && shift 2 ;;
    *) break ;;
  esac
done
(($#)) && [[ $1 != -* ]] ||
  die "usage: $0 [--suite SUITE] [--mirror URL] [--share PATH]... FOLDER [COMMAND...]"
folder=$(realpath --canonicalize-missing -- "$1")
shift
if ((!$#)); then
  set -- bash -c './bazelw build //python:wheel && ./bazelw run //examples/digits && ./bazelw test //...'
fi
((EUID == 0)) || die "only root may install a system into a folder"
command -v debootstrap >/dev/null || die "debootstrap is missing: apt-get install debootstrap"
[[ ! -e $folder ]] || die "$folder exists already: choose another folder, or delete this one"

# Share the contents of Debian's Python 3.11 packages. The libraries that its modules need are
# installed with the suite's own Python.
include=()
if [[ $suite != bookworm ]]; then
  include=(--include=python3)
  share+=(/usr/bin/python3.11 /usr/lib/python3.11 /usr/include/python3.11
    /usr/include/x86_64-linux-gnu/python3.11 /usr/share/python-wheels)
fi
for path in ${share[@]+"${share[@]}"}; do
  [[ -e $path ]] || die "--share $path: there is no such file"
done

mkdir -p "$folder"
debootstrap --variant=minbase ${include[@]+"${include[@]}"} "$suite" "$folder" \
  ${mirror[@]+"${mirror[@]}"} >"$folder.log" 2>&1 ||
  die "debootstrap failed: $folder.log says why"
cp -L /etc/resolv.conf /etc/hosts "$folder/etc/"
git clone -q --no-local "$root" "$folder/root/torch_openreg"
for path in ${share[@]+"${share[@]}"}; do
  if [[ -d $path ]]; then
    mkdir -p "$folder$path"
  else
    mkdir -p "$folder$(dirname "$path")"
    touch "$folder$path"
  fi
done

settings=()
for name in $(compgen -e); do
  case $name in
    PIP_* | http_proxy | https_proxy | no_proxy | HTTP_PROXY | HTTPS_PROXY | NO_PROXY)
      settings+=("$name=${!name}")
      ;;
  esac
done

# In separate namespaces, the mounts and a remaining Bazel server end with the command.
# shellcheck disable=SC2016 # the inner shell expands its own variables
exec unshare --mount --pid --fork --kill-child --propagation private bash -c '
set -eu
folder=$1 shares=$2
shift 2
mount -t proc proc "$folder/proc"
mount --rbind /dev "$folder/dev"
mount -t tmpfs tmpfs "$folder/dev/shm"
for ((; shares; shares--)); do
  mount --rbind -o ro "$1" "$folder$1"
  shift
done
exec chroot "$folder" "$@"
' bash "$folder" "${#share[@]}" ${share[@]+"${share[@]}"} \
  /usr/bin/env -i --chdir=/root/torch_openreg HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  ${settings[@]+"${settings[@]}"} "$@"
