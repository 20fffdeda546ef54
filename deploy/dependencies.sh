#!/usr/bin/env bash
# Installs the Debian packages that are missing. Usage: deploy/dependencies.sh [build|test|release|check]...
#   build    to build the programs (default)
#   test     to build and run the tests, in addition
#   release  to run deploy/release.sh, in addition to build
#   check    to run .ci/run, in addition
# CUDA is not among them: the build uses it if it is installed (nvcc on the PATH or in /usr/local/cuda).
set -euo pipefail

packages_for() {
  case $1 in
    build)
      echo ca-certificates g++ cmake ninja-build ccache libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev libabsl-dev \
        libspdlog-dev prometheus-cpp-dev libcivetweb-dev libtbb-dev libhwy-dev libcli11-dev nlohmann-json3-dev \
        libssl-dev zlib1g-dev libzstd-dev liblzma-dev libbz2-dev libzip-dev
      ;;
    test)
      echo libgtest-dev libgmock-dev libbenchmark-dev python3-dev python3-venv python3-grpcio python3-protobuf python3-numpy python3-seccomp python3-yaml yamllint \
        openssl groff-base zstd libopenmpi-dev openmpi-bin
      ;;
    release)
      echo python3-dev python3-venv binutils podman runc mmdebstrap
      ;;
    check)
      echo git gcovr pkgconf clang-format clang-tidy clang-14 libclang-rt-14-dev shellcheck binutils prometheus chromium podman runc mmdebstrap haproxy
      ;;
    *)
      echo "dependencies.sh: group: got '$1'; allowed: build, test, release, check" >&2
      return 2
      ;;
  esac
}

wanted=
for group in "${@:-build}"; do
  wanted+=" $(packages_for "$group")"
done

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  echo "This is not a Debian system: nothing was installed. These packages are needed, by their names in Debian 12:$wanted"
  exit 0
fi

missing=()
for package in $wanted; do
  # shellcheck disable=SC2016  # a format of dpkg-query, not of the shell
  if [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2> /dev/null) != installed ]]; then
    missing+=("$package")
  fi
done
if ((${#missing[@]} == 0)); then
  echo "All packages are installed."
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo > /dev/null; then
    echo "dependencies.sh: installing packages needs root or sudo; run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "Installing ${#missing[@]} packages, which takes minutes on a bare system: ${missing[*]}"
apt() {
  ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o APT::Color=0 "$@"
}
apt update
# Each package that is set up, also those that the missing ones need, is a line of apt's; every twentieth is one here.
apt install --yes --no-install-recommends "${missing[@]}" -q=0 |
  awk '/newly installed/ { total = $3 } /^Setting up/ && ++count % 20 == 0 { print "  set up " count " of " total; fflush() }'
