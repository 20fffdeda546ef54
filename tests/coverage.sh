#!/usr/bin/env bash
# Which lines the tests run: builds with the counters of gcov and without CUDA, runs every test that is not slow, and prints
# the share of lines of each folder of server/, client/, kernels/ and proto/. Exits with 1 if a test failed, or if less than
# 90% ran in one of server/, client/ and kernels/.
#
#   tests/coverage.sh [DIR]    DIR: for pages that show every line, index.html first
set -euo pipefail
# shellcheck source=deploy/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../deploy/setup.sh"
cd "$root"
"$root/deploy/dependencies.sh" build test check
pages=${1:+$(mkdir -p "$1" && cd "$1" && pwd)/index.html}
build=$root/build/coverage
least=90

cmake --preset coverage > /dev/null
cmake --build --preset coverage
find "$build" -name '*.gcda' -delete
status=0
ctest --preset coverage || status=1

say "Lines that ran, in percent"
report=$(mktemp)
trap 'rm -f "$report"' EXIT
# A header of templates is compiled into many objects: what ran in one of them ran. From version 6 on gcovr wants to be
# told.
merge=()
if gcovr --help | grep -q merge-mode-functions; then merge=(--merge-mode-functions=merge-use-line-min); fi
gcovr --root "$root" --object-directory "$build" -j "$(nproc)" "${merge[@]}" \
  --filter '(server|client|kernels|proto/codec)/' --exclude-unreachable-branches --csv "$report" \
  ${pages:+--html-details "$pages"} "$build"
# Columns of the report: file, lines, lines that ran, ...
awk -F, -v least=$least '
  NR > 1 {
    folder = $1; sub("/[^/]*$", "", folder)
    top = $1; sub("/.*", "", top)
    lines[folder] += $2; ran[folder] += $3
    lines[top "/"] += $2; ran[top "/"] += $3
  }
  END {
    for (folder in lines) printf "%-32s %6d lines %6.1f\n", folder, lines[folder], 100 * ran[folder] / lines[folder] | "sort"
    close("sort")
    for (folder in lines)
      if (folder ~ "/$" && folder != "proto/" && 100 * ran[folder] < least * lines[folder]) {
        print "FAILED: less than " least "% of " folder
        failed = 1
      }
    exit failed
  }' "$report" || status=1
exit $status
