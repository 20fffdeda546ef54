# shellcheck shell=bash
# What quickstart.sh, tests/run.sh, tests/package/check.sh and .ci/run share; they source it. Defines `root`, the top of
# the source tree, and `build`, the build directory that the quickstart and the tests have in common.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck disable=SC2034  # for those who source this
build=$root/build/native
server_pid=

# Of the build, and not for the programs that run afterwards: a server takes REDUCED_CUDA for a flag that it does not have.
export -n REDUCED_CUDA REDUCED_VECTOR_TARGETS

# ccache: the same source compiled in another build directory is the same.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1

# say TEXT...: announces a step, with the time since the script began.
say() { printf '==> [%d:%02d] %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"; }

# CUDA_ARCHITECTURES of the environment, else the compute capabilities of the GPUs present as CMake takes them; 9.0 where
# there is none.
cuda_architectures() {
  local found=${CUDA_ARCHITECTURES:-}
  [[ -z $found ]] || { echo "$found"; return; }
  found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | grep -E '^[0-9]+\.[0-9]+$' | sort -u |
    sed 's/\.//; s/$/-real/' | paste -sd ';') || true
  echo "${found:-90-real}"
}

# cuda_option: what REDUCED_CUDA is in builds for this machine: the value in the environment, else AUTO with an NVIDIA GPU and
# OFF without one, since the CUDA engine takes a quarter of the whole compilation.
cuda_option() {
  if [[ -n ${REDUCED_CUDA:-} ]]; then
    echo "$REDUCED_CUDA"
  elif nvidia-smi --list-gpus 2> /dev/null | grep -q '^GPU '; then
    echo AUTO
  else
    echo OFF
    say "No NVIDIA GPU: building without CUDA (REDUCED_CUDA=ON in the environment builds its engine, too)" >&2
  fi
}

# configure DIR OPTION...: a Release build for this machine in DIR: with CUDA if it has a GPU, for its vector instruction set,
# several sources compiled in one go. It has failpoints, so that the tests take what the first command has built. The
# environment can have REDUCED_CUDA, REDUCED_VECTOR_TARGETS (empty: all of them), and REDUCED_WERROR=ON, which makes warnings
# errors.
configure() {
  local dir=$1 cuda
  shift
  mkdir -p "$dir"
  cuda=$(cuda_option)
  if ! cmake -S "$root" -B "$dir" -G Ninja --no-warn-unused-cli -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_UNITY_BUILD=ON -DREDUCED_CUDA="$cuda" \
    -DREDUCED_VECTOR_TARGETS="${REDUCED_VECTOR_TARGETS-NATIVE}" \
    -DCMAKE_CUDA_ARCHITECTURES="$(cuda_architectures)" -DREDUCED_FAILPOINTS=ON -DREDUCED_WERROR="${REDUCED_WERROR:-OFF}" "$@" > "$dir/configure.log" 2>&1; then
    cat "$dir/configure.log" >&2
    return 1
  fi
  grep -E 'engines:|for Python' "$dir/configure.log"
}

# start_server PROGRAM DIR OPTION...: starts it on the Unix socket DIR/socket and returns when it serves. Its log is DIR/log.
start_server() {
  local program=$1 dir=$2 deadline=$((SECONDS + 60))
  shift 2
  "$program" --listen="unix:$dir/socket" --ready_file="$dir/ready" --metrics_listen= "$@" > "$dir/log" 2>&1 &
  server_pid=$!
  until [[ -s $dir/ready ]]; do
    if ! kill -0 "$server_pid" 2> /dev/null || ((SECONDS > deadline)); then
      echo "The server did not start; its log:" >&2
      cat "$dir/log" >&2
      return 1
    fi
    sleep 0.05
  done
}

# Ends what start_server started, if it runs: SIGTERM and, after 30 s, SIGKILL. Returns the server's exit status.
stop_server() {
  local pid=$server_pid deadline=$((SECONDS + 30))
  server_pid=
  [[ -n $pid ]] || return 0
  kill -TERM "$pid" 2> /dev/null || true
  while kill -0 "$pid" 2> /dev/null; do
    if ((SECONDS > deadline)); then
      kill -KILL "$pid" 2> /dev/null || true
    fi
    sleep 0.05
  done
  wait "$pid"
}
