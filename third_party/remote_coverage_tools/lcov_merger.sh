#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# $0 is <runfiles>/../lcov_merger or a link to this file: the program is beside the file itself.
exec python3 -I "$(dirname "$(readlink -f "$0")")/lcov_merger.py" "$@"
