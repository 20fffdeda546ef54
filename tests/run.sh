#!/usr/bin/env bash
# Installs what is missing, builds everything for this machine and runs every test that isn't labelled `slow`.
# Usage: tests/run.sh [CTEST-ARGUMENT...], for instance: tests/run.sh -L unit
set -euo pipefail
# shellcheck source=deploy/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../deploy/setup.sh"

say "Looking for the packages that the build and the tests need"
"$root/deploy/dependencies.sh" build test

# What builds and tests the Python package; without it both leave the package out, and say so.
venv=$root/build/venv
wanted=$root/tests/python/requirements.txt
if ! cmp -s "$wanted" "$venv/requirements.txt"; then
  say "Installing from PyPI what the Python package needs, into $venv"
  if python=$(PATH=/usr/bin:$PATH command -v python3) && "$python" -m venv --clear "$venv" &&
    "$venv/bin/pip" --quiet --disable-pip-version-check install --requirement "$wanted"; then
    cp "$wanted" "$venv/requirements.txt"
  else
    rm -rf "$venv"
  fi
fi

say "Configuring $build"
configure "$build" -DREDUCED_TESTS=ON

say "Building on $(nproc) cores"
cmake --build "$build" --parallel "$(nproc)"

say "Testing"
# Two at a time for each core: see tests/CMakeLists.txt.
ctest --test-dir "$build" --parallel $((2 * $(nproc))) --output-on-failure --no-tests=error --timeout 600 --label-exclude '^slow$' "$@"
