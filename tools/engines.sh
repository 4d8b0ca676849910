#!/usr/bin/env bash
# Installs the engines that tests of large deployments use, and runs them on the loopback interface. An
# engine is a file tools/engines/NAME.sh with the functions install_NAME and run_NAME.
#
# usage: tools/engines.sh install NAME
#        tools/engines.sh run NAME FOLDER PORT [KEY=VALUE...]
#   install   fetches the engine into .venv, if it is not there yet
#   run       runs the engine in the foreground; all its data is in FOLDER, and clients connect to PORT
set -euo pipefail
cd "$(dirname "$0")/.."

report() { printf 'engines: %s\n' "$*" >&2; }
die() { report "$*"; exit 1; }

usage="usage: tools/engines.sh install NAME | run NAME FOLDER PORT [KEY=VALUE...]"
case "${1:-}:$#" in install:2 | run:[4-9] | run:[1-9][0-9]) ;; *) die "$usage" ;; esac
[[ $2 =~ ^[a-z]+$ && -f tools/engines/$2.sh ]] || die "there is no engine $2; the engines are: $(cd tools/engines && echo *.sh)"
source "tools/engines/$2.sh"
"$1_$2" "${@:3}"
