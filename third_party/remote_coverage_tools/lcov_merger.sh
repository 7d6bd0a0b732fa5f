#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# $0 is <runfiles>/../lcov_merger or a link to this file. The Python program is next to this file.
exec python3 -I "$(dirname "$(readlink -f "$0")")/lcov_merger.py" "$@"
