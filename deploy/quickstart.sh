#!/usr/bin/env bash
# From a fresh Debian 12 machine to a first answer: installs what is missing, builds the server and its command line, starts
# the server, reduces real and random data, and stops it. Leaves nothing but the build in build/native.
set -euo pipefail
# shellcheck source=deploy/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

say "Looking for the packages that the build needs"
"$root/deploy/dependencies.sh" build

say "Configuring $build"
configure "$build"

say "Building the server and reducectl on $(nproc) cores: a few minutes the first time, seconds after that"
cmake --build "$build" --parallel "$(nproc)" --target reduced reducectl

work=$(mktemp -d)
trap 'stop_server || true; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

say "Starting the server on a Unix socket"
start_server "$build/server/reduced" "$work"

export REDUCED_SERVER=unix:$work/socket
run() {
  printf '\n$ %s\n' "$*"
  "$@"
}
PATH=$build/client:$PATH
cd "$root/tests/data"

say "Weekly atmospheric CO2, in ppm; weeks without a measurement are NaN"
run reducectl reduce co2.npy --op mean,nan_count
run reducectl reduce co2.npy --op min,max,argmax,mean,std,nan_count --nan omit
run reducectl reduce co2.csv --column co2 --op mean --nan omit --json

say "Generating 256 MiB of random bytes"
head -c 256M /dev/urandom > "$work/random.bin"
cd "$work"
run reducectl reduce random.bin --dtype u8 --op mean,std --timeout 60s
run reducectl reduce random.bin --dtype i32 --op sum,min,max --timeout 60s
run reducectl info

say "Stopping the server"
stop_server
say "Done. To start it yourself: $build/server/reduced --listen=127.0.0.1:50051"
