#!/bin/sh
# Runs rustc with paths in the image that do not depend on where the repository and cargo's
# registry are. Panics name their source file, so longer paths would make the image longer.
repository=$(cd "$(dirname "$0")/../.." && pwd -P)
registry=${CARGO_HOME:-$HOME/.cargo}/registry/src
exec "$@" "--remap-path-prefix=$repository=" "--remap-path-prefix=$registry=cargo"
