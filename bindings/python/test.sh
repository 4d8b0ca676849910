#!/usr/bin/env bash
# Tests the Python package. It uses the extension module and the `moteseal` program that `cargo test
# --workspace` builds, so that nothing is compiled twice. Needs the packages of requirements.txt.
#
# usage: bindings/python/test.sh [pytest arguments]
#   PYTHON       the Python interpreter; default: .venv/bin/python
#   CARGO_FLAGS  options for cargo; default: --locked
set -euo pipefail
cd "$(dirname "$0")/../.."

python=${PYTHON:-.venv/bin/python}
target=${CARGO_TARGET_DIR:-target}
# shellcheck disable=SC2086
cargo test --quiet ${CARGO_FLAGS:---locked} --workspace --no-run

case $(uname -s) in Darwin) library=lib_moteseal.dylib ;; *) library=lib_moteseal.so ;; esac
package=$target/python
rm -rf "$package"
mkdir -p "$package"
cp -R bindings/python/python/moteseal "$package/"
cp "$target/debug/deps/$library" "$package/moteseal/_moteseal.abi3.so"

package=$(cd "$package" && pwd)
target=$(cd "$target" && pwd)
export PYTHONPATH=$package MOTESEAL=$target/debug/moteseal PYTHONDONTWRITEBYTECODE=1
exec "$python" -m pytest -p no:cacheprovider -c bindings/python/pyproject.toml --rootdir bindings/python "${@:-bindings/python/tests}"
