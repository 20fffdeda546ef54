#!/usr/bin/env bash
# Builds the fuzz targets and runs each for a while, as many at a time as there are cores.
#
# Usage: tests/fuzz/run.sh [--merge] [SECONDS [TARGET...]]
#   SECONDS  that each target runs (3600)
#   TARGET   names of sources in tests/fuzz; none: all
#   --merge  adds what a run has found, and the repository's corpus lacks, to tests/fuzz/corpus
#
# Prints a table: executions, executions a second, edges of the code that were reached, inputs that reach them, and failures.
# An input that breaks a target lies in build/fuzz/found/TARGET, with the log. Exits with 1 if there is one: move it to
# tests/fuzz/crashes/TARGET, where it is a test from then on.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"

merge=
if [[ ${1:-} == --merge ]]; then
  merge=1
  shift
fi
seconds=${1:-3600}
if ! [[ $seconds =~ ^[0-9]+$ ]]; then
  echo "run.sh: SECONDS: got '$1'; allowed: a whole number" >&2
  exit 2
fi
targets=("${@:2}")
if ((${#targets[@]} == 0)); then
  for source in tests/fuzz/*.cc; do
    targets+=("$(basename "$source" .cc)")
  done
fi
programs=build/fuzz/tests/fuzz
found=build/fuzz/found
mkdir -p "$found"

cmake --preset fuzz > "$found/configure.log" || {
  cat "$found/configure.log"
  exit 1
}
cmake --build --preset fuzz --target "${targets[@]/#/fuzz_}"

# The same as of preset asan.
export ASAN_OPTIONS=detect_stack_use_after_return=1:allow_user_poisoning=0
export LSAN_OPTIONS=suppressions=$root/tests/sanitizers/lsan.txt:print_suppressions=0
export UBSAN_OPTIONS=print_stacktrace=1

# fuzz TARGET: starts it.
fuzz() {
  rm -rf "${found:?}/$1"
  mkdir -p "$found/$1/corpus"
  local folders=("$found/$1/corpus") folder
  for folder in corpus crashes; do
    if [[ -d tests/fuzz/$folder/$1 ]]; then
      folders+=("tests/fuzz/$folder/$1")
    fi
  done
  # Windows of compressed files may be as large as memory allows. What they touch is limited, to 2 GiB.
  "$programs/fuzz_$1" -max_total_time="$seconds" -timeout=10 -max_len=4096 -malloc_limit_mb=8192 -print_final_stats=1 \
    -artifact_prefix="$found/$1/" "${folders[@]}" > "$found/$1/log" 2>&1 &
}
cores=$(nproc)
running=0
trap 'kill $(jobs -p); exit 130' INT TERM
for target in "${targets[@]}"; do
  if ((running == cores)); then
    wait -n || true  # the table has the failures
    running=$((running - 1))
  fi
  fuzz "$target"
  running=$((running + 1))
done
wait

# last TARGET PATTERN: the last number that follows PATTERN in the log.
last() { grep -oE "$2 *[0-9]+" "$found/$1/log" | tail -n 1 | grep -oE '[0-9]+$' || echo -; }

failed=0
printf '%-14s %12s %10s %8s %8s %9s\n' TARGET EXECUTIONS 'A SECOND' EDGES INPUTS FAILURES
for target in "${targets[@]}"; do
  mapfile -t failures < <(find "$found/$target" -maxdepth 1 -type f ! -name log)
  executions=$(last "$target" 'number_of_executed_units:')
  if [[ $executions == - && ${#failures[@]} == 0 ]]; then
    failures=("$found/$target/log")  # it ended by itself
  fi
  printf '%-14s %12s %10s %8s %8s %9d\n' "$target" "$executions" "$(last "$target" 'average_exec_per_sec:')" \
    "$(last "$target" 'cov:')" "$(last "$target" 'corp:')" "${#failures[@]}"
  for failure in "${failures[@]}"; do
    failed=1
    echo "  $failure"
  done
  if [[ $merge ]]; then
    mkdir -p "tests/fuzz/corpus/$target"
    "$programs/fuzz_$target" -merge=1 -use_counters=0 -max_len=4096 "tests/fuzz/corpus/$target" "$found/$target/corpus" \
      > "$found/$target/merge.log" 2>&1
  fi
done
exit "$failed"
