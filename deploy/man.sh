#!/usr/bin/env bash
# Writes the man page of a program from its --help, and from that of each of its commands, to standard output.
# Usage: deploy/man.sh PROGRAM SECTION VERSION SUMMARY SEE-ALSO > PAGE
set -euo pipefail
program=$1 section=$2 version=$3 summary=$4 see_also=$5
name=$(basename "$program")
awk_script=$(dirname "${BASH_SOURCE[0]}")/man.awk

# part HELP [COMMAND]...: a help as a part of the page.
part() {
  awk -v command="${*:2}" -f "$awk_script" <<< "$1"
}

# commands HELP: the names under its heading Subcommands.
commands() {
  awk '/^(Subc|C)ommands:$/ { listed = 1; next } /^$/ { listed = 0 } listed && /^  [a-z]/ { print $1 }' <<< "$1"
}

# usage HELP: its line of usage.
usage() {
  sed -n 's/^Usage: //p' <<< "$1" | sed 's/-/\\-/g; s/^/.B /'
}

# environment HELP: the variables that stand for options.
environment() {
  sed -nE 's/^ *(-[^-]*)?(--[a-z-]+) .*\(Env:([A-Z_]+)\).*/.TP\n.B \3\nas \2/p' <<< "$1" | sed '/^as/s/-/\\-/g'
}

# describe [COMMAND]...: the parts of these commands, and of those under them.
describe() {
  local help command
  help=$("$program" "$@" --help)
  if (($# > 0)); then
    printf '.SS %s\n' "$*"
    usage "$help"
    part "$help" "$@"
  fi
  for command in $(commands "$help"); do
    describe "$@" "$command"
  done
}

# No locale and no terminal's width changes what the help says.
export LC_ALL=C COLUMNS=100
help=$("$program" --help)
printf '.TH %s %s "" "reduced %s"\n' "${name^^}" "$section" "$version"
printf '.SH NAME\n%s \\- %s\n' "$name" "$summary"
printf '.SH SYNOPSIS\n'
usage "$help"
part "$help"
if [[ -n $(commands "$help") ]]; then
  printf '.SH "COMMANDS AND THEIR OPTIONS"\n'
  describe
fi
if [[ $help == *"(Env:"* ]]; then
  printf '.SH ENVIRONMENT\n'
  environment "$help"
fi
printf '.SH "SEE ALSO"\n%s\n' "$see_also"
