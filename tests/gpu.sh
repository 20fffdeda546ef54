#!/usr/bin/env bash
# Everything that needs a GPU, in one call: the `gpu` tests, the same kernels under compute-sanitizer, the server with
# reducectl, the benchmarks. Runs from an installed tree, so that the machine with the GPU needs no compiler:
#
#   cmake --install BUILD --prefix TREE && cmake --install BUILD --prefix TREE --component tests
#   tests/gpu.sh TREE [LOGS]        LOGS: a folder for the full output, default a new temporary one
#
# Closes with a table, one line a step; exits 1 if a step failed.
# shellcheck disable=SC2317  # functions are called by step
set -euo pipefail
# shellcheck source=deploy/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../deploy/setup.sh"
tree=$(cd "${1:?the installed tree}" && pwd)
logs=${2:-$(mktemp -d)}
programs=$tree/libexec/reduced
export REDUCED_REQUIRE_GPU=1 PATH=$PATH:/usr/local/cuda/bin
mkdir -p "$logs"
table=()
failed=0

# step NAME COMMAND...: runs it, its output in LOGS/NAME.
step() {
  local name=$1 begin=$SECONDS result=ok
  shift
  "$@" >"$logs/$name.txt" 2>&1 || { result="FAILED ($?)"; failed=1; }
  table+=("$(printf '%-22s %-12s %4d s  %s' "$name" "$result" $((SECONDS - begin)) "$(tail -n 1 "$logs/$name.txt" | cut -c1-90)")")
  if [ "$result" != ok ]; then tail -n 40 "$logs/$name.txt"; fi
}

# Small arrays of every op and dtype, aligned and not, in host and device memory.
sanitize() {
  compute-sanitizer --tool "$1" --error-exitcode 9 "$programs/engine_contract_test" --gtest_brief=1 \
    --gtest_filter="${2:-Cuda/EngineAnswers.SmallSizes/*}"
}

# The real server and the real command line: data to a value, on the GPU.
serve() {
  local work=$logs/serve status=0
  rm -rf "$work" && mkdir -p "$work"
  head -c 256M /dev/urandom >"$work/random.bin"
  start_server "$tree/bin/reduced" "$work" --max_message_bytes=257MiB || return 1
  export REDUCED_SERVER=unix:$work/socket
  local reduce=("$tree/bin/reducectl" reduce --timeout 30s)
  "$tree/bin/reducectl" info &&
    "${reduce[@]}" "$root/tests/data/co2.npy" --engine cuda --nan omit --op sum,mean,min,max,argmax,var &&
    "${reduce[@]}" "$work/random.bin" --dtype i32 --engine cuda --op sum,min,max,mean &&
    "${reduce[@]}" "$work/random.bin" --dtype i32 --engine cpu --op sum,min,max,mean &&
    "${reduce[@]}" "$work/random.bin" --dtype i32 --op sum,min,max,mean &&
    "${reduce[@]}" "$work/random.bin" --dtype u64 --engine cuda --op bit_xor,max --json || status=1
  stop_server || status=1
  rm -f "$work/random.bin"
  return "$status"
}

step tests ctest --test-dir "$programs" -L gpu --output-on-failure
step memcheck sanitize memcheck
step racecheck sanitize racecheck "Cuda/EngineAnswers.SmallSizes/*3[26]:Cuda/EngineAnswers.SmallSizes/bool"
step synccheck sanitize synccheck
step initcheck sanitize initcheck
step server serve
step bench_cuda "$programs/bench_cuda"
step bench_rpc "$programs/bench_rpc"
cat "$logs/server.txt" "$logs/bench_cuda.txt" "$logs/bench_rpc.txt"
printf '\n'
printf '%s\n' "${table[@]}"
exit "$failed"
