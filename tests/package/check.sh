#!/usr/bin/env bash
# Installs a build into a temporary directory, moves the tree elsewhere and checks there that it holds together: its
# programs find every library but glibc's inside it and need no newer glibc than 2.36, they run with an empty environment,
# and another project builds against it. Usage: tests/package/check.sh BUILD-DIR
set -euo pipefail
# shellcheck source=deploy/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../deploy/setup.sh"

work=$(mktemp -d)
trap 'stop_server || true; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

say "Installing $1"
cmake --install "$1" --prefix "$work/installed" > "$work/install.log"
tree=$work/moved
mv "$work/installed" "$tree"

say "Libraries"
# What ldd may find outside the tree: glibc and the kernel's.
glibc='^(linux-vdso|ld-linux[^.]*|/lib64/ld-linux[^.]*|libc|libm|libmvec|libpthread|libdl|librt|libresolv|libutil|libanl)\.so'
check_libraries() {
  local file=$1 name arrow path _
  while read -r name arrow path _; do
    [[ $name =~ $glibc ]] && continue
    [[ $arrow == '=>' && $(realpath "$path" 2> /dev/null) == "$tree"/* ]] || fail "$file gets $name from '$path'"
  done < <(env -i ldd "$file")
}
check_libraries "$tree/bin/reduced"
check_libraries "$tree/bin/reducectl"
check_libraries "$tree/lib/libreduced_client.so"
newest=$(find "$tree/bin" "$tree/lib" -type f \( -perm -u+x -o -name '*.so*' \) -exec readelf --version-info --wide {} + |
  grep -oE 'GLIBC_2\.[0-9]+' | sort -uV | tail -1)
[[ $(printf '%s\n' "$newest" GLIBC_2.36 | sort -V | tail -1) == GLIBC_2.36 ]] || fail "needs $newest, more than GLIBC_2.36"
echo "$(find "$tree/lib" -name '*.so*' -type f | wc -l) libraries in the tree; newest symbol of glibc needed: $newest"

say "Hardening"
# has FILE WORD OPTION...: what readelf says of it with these options.
has() { readelf --wide "${@:3}" "$1" | grep -E "$2" > /dev/null || fail "$1: no $2"; }
for file in "$tree/bin/reduced" "$tree/bin/reducectl" "$tree/lib/libreduced_client.so"; do
  has "$file" GNU_RELRO --program-headers
  has "$file" 'FLAGS.*NOW' --dynamic
  has "$file" '\<DYN\>' --file-header
  has "$file" __stack_chk_fail --dyn-syms
  has "$file" '_chk@GLIBC' --dyn-syms
done

say "Programs, with an empty environment"
printf '#!/bin/sh\nexec env -i "%s" "$@"\n' "$tree/bin/reduced" > "$work/reduced"
chmod +x "$work/reduced"
start_server "$work/reduced" "$work"
env -i "$tree/bin/reducectl" --server "unix:$work/socket" reduce "$root/tests/data/co2.npy" --op sum,nan_count --json
if ! bash -n "$tree/share/bash-completion/completions/reducectl"; then fail "no bash completion"; fi

if grep -qaE 'REDUCED_FAILPOINTS|regions/files_lost' "$tree/bin/reduced"; then fail "the server has failpoints"; fi

say "Another project"
cmake -S "$root/tests/package" -B "$work/consumer" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$tree" \
  > "$work/consumer.log" 2>&1 || { cat "$work/consumer.log"; fail "find_package(reduced)"; }
if grep -i warning "$work/consumer.log"; then fail "find_package(reduced) warns"; fi
cmake --build "$work/consumer"
env -i "$work/consumer/consumer" "unix:$work/socket"

say "The same by pkg-config"
flags=$(PKG_CONFIG_PATH=$(dirname "$(find "$tree" -name reduced.pc)") pkg-config --cflags --libs reduced)
# shellcheck disable=SC2086  # they are several words
c++ -std=c++20 "$root/tests/package/main.cc" $flags -o "$work/by_pkg_config"
env -i "$work/by_pkg_config" "unix:$work/socket"

stop_server || fail "the server exited with $?"
say "The installed tree holds together"
