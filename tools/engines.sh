#!/usr/bin/env bash
# Installs the servers that tests start, and runs them on the loopback interface.
#
# usage: tools/engines.sh install NAME...           installs them into .venv/engines, pinned and checked, and the Java, Maven
#                                                   and Go that they need, if these are missing and the user is root
#        tools/engines.sh run NAME FOLDER PORT ...  writes a configuration into FOLDER and runs the server in the foreground
#
# Each server is in a file of its own, tools/engines/NAME.sh, with the functions install_NAME and run_NAME.
set -euo pipefail
cd "$(dirname "$0")/.."

report() { printf 'engines: %s\n' "$*" >&2; }
die() { report "$*"; exit 1; }
usage() { die "usage: tools/engines.sh install NAME... | run NAME FOLDER PORT [ARGUMENT...]"; }
load() { [ -f "tools/engines/$1.sh" ] && . "tools/engines/$1.sh" || die "there is no tools/engines/$1.sh"; }
. tools/packages.bash

engines=$PWD/.venv/engines
case "${1:-} $#" in
"install "[2-9]) shift; for name; do load "$name"; "install_$name"; done ;;
"run "[4-9] | "run "[1-9][0-9]) shift; load "$1"; "run_$@" ;;
*) usage ;;
esac
