# SPDX-License-Identifier: BSD-3-Clause
"""Merges gcov's JSON and LCOV files into one LCOV file.

Takes the place of Bazel's CoverageOutputGenerator, a Java program that `bazel coverage` would
download. Bazel runs it once per test (--coverage_dir) and once for the combined report
(--reports_file).
"""

import argparse
import gzip
import json
import os
import re
from collections import defaultdict
from pathlib import Path

# Execution counts, by file and line number.
Coverage = defaultdict[str, dict[int, int]]


def read_gcov(path: Path, coverage: Coverage) -> None:
    """Adds the counts of a .gcov.json.gz file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for source in json.load(file)["files"]:
            counts = coverage[source["file"]]
            for line in source["lines"]:
                number = line["line_number"]
                counts[number] = counts.get(number, 0) + line["count"]


def read_lcov(path: Path, coverage: Coverage) -> None:
    """Adds the counts of an LCOV file."""
    counts: dict[int, int] = {}
    for row in path.read_text(encoding="utf-8").splitlines():
        key, _, value = row.strip().partition(":")
        if key == "SF":
            counts = coverage[value]
        elif key == "DA":
            number, count = value.split(",")[:2]
            counts[int(number)] = counts.get(int(number), 0) + int(count)


def main() -> None:
    """Merges the files that the command line names."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--coverage_dir", type=Path)
    parser.add_argument("--reports_file", type=Path)
    parser.add_argument("--output_file", type=Path, required=True)
    parser.add_argument("--filter_sources", action="append", default=[])
    parser.add_argument("--source_file_manifest", type=Path)
    args, _ = parser.parse_known_args()

    coverage: Coverage = defaultdict(dict)
    if args.coverage_dir:
        for path in sorted(args.coverage_dir.rglob("*.gcov.json.gz")):
            read_gcov(path, coverage)
        for path in sorted(args.coverage_dir.rglob("*.dat")):
            if path.resolve() != args.output_file.resolve():
                read_lcov(path, coverage)
    if args.reports_file:
        for name in args.reports_file.read_text(encoding="utf-8").split():
            read_lcov(Path(name), coverage)
    wanted = None
    if args.source_file_manifest:
        wanted = set(args.source_file_manifest.read_text(encoding="utf-8").split())

    with args.output_file.open("w", encoding="utf-8") as out:
        for name, counts in sorted(coverage.items()):
            if os.path.isabs(name) or any(re.fullmatch(p, name) for p in args.filter_sources):
                continue
            if wanted is not None and name not in wanted:
                continue
            out.write(f"SF:{name}\n")
            for number in sorted(counts):
                out.write(f"DA:{number},{counts[number]}\n")
            hit = sum(1 for count in counts.values() if count)
            out.write(f"LH:{hit}\nLF:{len(counts)}\nend_of_record\n")


if __name__ == "__main__":
    main()
