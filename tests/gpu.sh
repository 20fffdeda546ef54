#!/usr/bin/env bash
# Everything that needs a GPU, in one call: the `gpu` tests, the same kernels under compute-sanitizer, the server with
# reducectl, the benchmarks. Runs from an installed tree, so that the machine with the GPU needs no compiler:
#
#   cmake --build BUILD --target all benchmarks
#   cmake --install BUILD --prefix TREE
#   cmake --install BUILD --prefix TREE --component tests && cmake --install BUILD --prefix TREE --component benchmarks
#   tests/gpu.sh TREE [LOGS [STEP...]]   LOGS: a folder for the full output, default a new temporary one
#                                        STEP: of those below, default all of them but soak
#
# Closes with a table, one line a step; exits 1 if a step failed.
# shellcheck disable=SC2317  # functions are called by step
set -euo pipefail
# shellcheck source=deploy/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../deploy/setup.sh"
tree=$(cd "${1:?the installed tree}" && pwd)
logs=${2:-$(mktemp -d)}
mkdir -p "$logs"
logs=$(cd "$logs" && pwd)
programs=$tree/libexec/reduced
export REDUCED_REQUIRE_GPU=1 PATH=$PATH:/usr/local/cuda/bin
wanted=("${@:3}")
rm -f "$logs"/*.row

# step NAME COMMAND...: runs it, its output in LOGS/NAME.txt and its line of the table in LOGS/NAME.row, unless others were
# asked for.
step() {
  local name=$1 begin=$SECONDS result=ok
  shift
  if ((${#wanted[@]} > 0)) && [[ " ${wanted[*]} " != *" $name "* ]]; then return; fi
  "$@" >"$logs/$name.txt" 2>&1 || result="FAILED ($?)"
  printf '%-22s %-12s %4d s  %s\n' "$name" "$result" $((SECONDS - begin)) \
    "$(tail -n 1 "$logs/$name.txt" | cut -c1-90)" >"$logs/$name.row"
  if [ "$result" != ok ]; then tail -n 40 "$logs/$name.txt"; fi
}

# sanitize TOOL TESTS [OPTION...]: small arrays of every op and dtype, by every pipeline, and every launch of a partition.
sanitize() {
  compute-sanitizer --tool "$1" "${@:3}" --error-exitcode 9 "$programs/engine_contract_test" --gtest_brief=1 --gtest_filter="$2"
}
production=Cuda/EngineAnswers.SmallSizes
exact='Cuda/EngineExactTest.LosesNothing/*:Cuda/EngineExactTest.GivesTheSameBitsInAnyOrder/*'
exact+=':Cuda/EngineExactAlone.*'
exact+=':Cuda/EngineExactTest.AnswersAsTheSchoolbookDoesBesideOtherOps/*'
rungs=Cuda/EngineRungs
others='Cuda/EngineMatmul.RepeatsHaveTheSameBits/*:Cuda/EnginePieces.States/f32'
launches='Cuda/EngineLaunches.*:Cuda/*.LongRows/*:Cuda/EngineWholeArrays.AnswerAsTheCpuEngine/f32'
launches+=':Cuda/EnginePairSlices.OnceEach/*:Cuda/EngineMany.AnswerWhereverArraysBegin/*'
# Racecheck is about shared memory, whose use depends on the size of elements, and takes minutes for each table of values of
# 8 bytes in the memory of the device.
of_sizes='Cuda/EngineLaunches.OnceEach/i16_*:Cuda/EngineLaunches.OnceEach/f32_*:Cuda/*.LongRows/i16:Cuda/*.LongRows/f32:Cuda/*.LongRows/f8_e4m3fn'
of_sizes+=':Cuda/EnginePairSlices.OnceEach/f32'
# Answers that are not known yet are copied before they are replaced, so copies are not checked for memory that was not
# written; the tests compare every answer.
copies=(--check-api-memory-access no)

# The real server and the real command line: data to a value, on the GPU.
serve() {
  local work=$logs/serve status=0
  rm -rf "$work" && mkdir -p "$work"
  cd "$work"
  cp "$root/tests/data/co2.npy" .
  head -c 256M /dev/urandom >random.bin
  start_server "$tree/bin/reduced" "$work" || return 1
  export REDUCED_SERVER=unix:$work/socket
  local reduce=("$tree/bin/reducectl" reduce --timeout 30s)
  "$tree/bin/reducectl" info &&
    "${reduce[@]}" co2.npy --engine cuda --nan omit --op sum,mean,min,max,argmax,var &&
    "${reduce[@]}" random.bin --dtype i32 --engine cuda --op sum,min,max,mean &&
    "${reduce[@]}" random.bin --dtype i32 --engine cpu --op sum,min,max,mean &&
    "${reduce[@]}" random.bin --dtype i32 --op sum,min,max,mean &&
    "${reduce[@]}" random.bin --dtype u64 --engine cuda --op bit_xor,max --json &&
    serve_exact co2.npy &&
    serve_arrays random.bin &&
    serve_health &&
    "$tree/bin/reducectl" loadtest --via device_region --size 4Ki,1Mi,64Mi --concurrency 4 --duration 2s --verify 10% \
      --stability 100% || status=1
  stop_server || status=1
  rm -f random.bin got.npy
  cd "$root"
  return "$status"
}

# What the server and this machine say of themselves.
serve_health() {
  "$tree/bin/reducectl" health && "$tree/bin/reducectl" doctor
}

# serve_exact FILE: exact sums have the same bits on both engines, their states too.
serve_exact() {
  local engine
  for engine in cuda cpu; do
    "$tree/bin/reducectl" reduce "$1" --engine $engine --nan omit --precision exact --op sum,mean,var,std,l1,l2 \
      --state "exact.$engine" --json | tee "exact.$engine.json" || return 1
    grep -o '"results": {[^}]*}' "exact.$engine.json" >"exact.$engine.results" || return 1
  done
  cmp exact.cuda exact.cpu && cmp exact.cuda.results exact.cpu.results &&
    "$tree/bin/reducectl" merge exact.cuda exact.cpu
}

# serve_arrays FILE: the same from an array that stays in the GPU's memory, and the array back.
serve_arrays() {
  local id
  id=$("$tree/bin/reducectl" arrays put "$1" --dtype i32 --device cuda:0 --timeout 30s) || return 1
  "$tree/bin/reducectl" reduce --array "$id" --op sum,min,max,mean &&
    "$tree/bin/reducectl" reduce --array "$id" --op sum,min,max,mean --json &&
    "$tree/bin/reducectl" arrays get "$id" --out got.npy && tail -c "$(stat -c %s "$1")" got.npy | cmp - "$1" &&
    "$tree/bin/reducectl" arrays list &&
    "$tree/bin/reducectl" arrays delete "$id" &&
    "$tree/bin/reducectl" info
}

# The ladder of matrix products, kept as LOGS/matmul.json and .svg, large products, and what blocks do.
products() {
  local dtype status=0
  for dtype in f32 f64; do
    "$@" --matmul --dtype "$dtype" --json >"$logs/matmul.$dtype.json" || status=1
    "$@" --matmul --dtype "$dtype" --n 4096 --pipeline matmul_register_tile || status=1
  done
  "$@" --matmul --dtype i32 --n 1000 --tile 16 || status=1
  "$@" --matmul --sweep-block --pipeline matmul_global || status=1
  cat "$logs"/matmul.f??.json >"$logs/matmul.json"
  "$@" --from "$logs/matmul.json" --svg "$logs/matmul.svg" || status=1
  return "$status"
}

# Every pipeline, op and dtype that a ladder can have, then the ladders of the sources and what block sizes do, kept as
# LOGS/ladder.json and .svg. A wrong answer is a failure.
ladders() {
  local work=$logs/ladders status=0 dtype op
  rm -rf "$work" && mkdir -p "$work"
  start_server "$tree/bin/reduced" "$work" || return 1
  export REDUCED_SERVER=unix:$work/socket
  local ladder=("$tree/bin/reducectl" ladder)
  for dtype in i32 i64 u32 f32 f64; do
    for op in sum prod min max mean sum_squares l2 any all count_nonzero bit_and bit_or bit_xor; do
      if [[ $dtype == f* && $op == bit_* ]]; then continue; fi
      "${ladder[@]}" --dtype "$dtype" --n 100003 --op "$op" --repeats 2 >"$work/last" ||
        { cat "$work/last"; echo "FAILED: ladder of $op of $dtype"; status=1; }
    done
  done
  "${ladder[@]}" --json --svg "$logs/ladder.svg" >"$logs/ladder.json" || status=1
  "${ladder[@]}" --from "$logs/ladder.json" &&
    "${ladder[@]}" --dtype i32 --n 16Mi --pipeline divergent_map,uniform_map &&
    "${ladder[@]}" --dtype i32 --n 16Mi --sweep-block --pipeline template_unroll8 &&
    "${ladder[@]}" --dtype i32 --n 16Mi --sweep-block --pipeline shared_interleaved || status=1
  products "${ladder[@]}" || status=1
  stop_server || status=1
  return "$status"
}

# Arrays over all GPUs, where there are several.
shards() {
  local gpus
  gpus=$(nvidia-smi --list-gpus | wc -l)
  if ((gpus < 2)); then
    echo "one GPU: left out"
  else
    "$programs/bench_shards" "$gpus" 4
  fi
}

# The Python package with arrays of this GPU: of PyTorch, and of CuPy, JAX and Numba where they are installed.
python_arrays() {
  if [ -z "${REDUCED_WHEEL:-}" ]; then
    echo "left out: REDUCED_WHEEL names no wheel of the package"
    return
  fi
  rm -rf "$logs/site"
  python3 -m pip install --quiet --no-deps --no-index --target "$logs/site" "$REDUCED_WHEEL" &&
    REDUCED=$tree/bin/reduced PYTHONPATH=$logs/site XLA_PYTHON_CLIENT_PREALLOCATE=false \
      python3 -B -m pytest -q -p no:cacheprovider "$root/tests/python/test_gpu.py"
}

# What is timed runs alone, and so do the tests, three at a time: processes get the GPU in turns, milliseconds each, for
# which many small reductions wait. The checks, which are slow on the host, run side by side.
step server serve
step ladder ladders
step bench_cuda "$programs/bench_cuda"
step bench_exact_cuda "$programs/bench_exact_cuda"
step bench_answers "$programs/bench_answers"
step bench_groups_cuda "$programs/bench_groups_cuda"
step bench_many "$programs/bench_many"
step bench_matrix "$programs/bench_matrix" --json="$logs/matrix.json" --svg="$logs/matrix.svg"
step bench_layouts "$programs/bench_layouts" --json="$logs/layouts.json"
step bench_shards shards
step bench_rpc "$programs/bench_rpc"
step bench_stream "$programs/bench_stream"
step bench_local "$programs/bench_local"
step python python_arrays
step tests ctest --test-dir "$programs" -L gpu --output-on-failure -j 3
step memcheck sanitize memcheck "$exact:$production/*:$rungs.SmallSizes/*:$others:$launches" &
step racecheck sanitize racecheck "$exact:$production/f32:$production/bool:$rungs.ThreeBlocks/*:$others:$of_sizes" &
step synccheck sanitize synccheck "$exact:$production/*:$rungs.EveryOpOnce/*:$others:$launches" &
step initcheck sanitize initcheck "$exact:$production/*:$rungs.EveryOpOnce/*:$others:$launches" "${copies[@]}" &
wait
if [[ " ${wanted[*]} " == *" soak "* ]]; then
  step soak python3 -B "$root/tests/e2e/soak.py" --tree "$tree" --minutes "${SOAK_MINUTES:-10}"
fi
for name in server ladder bench_cuda bench_exact_cuda bench_answers bench_groups_cuda bench_many bench_matrix bench_layouts bench_shards bench_rpc bench_stream bench_local soak; do
  if [[ -f $logs/$name.txt ]]; then cat "$logs/$name.txt"; fi
done
printf '\n'
cat "$logs"/*.row
! grep -q FAILED "$logs"/*.row
