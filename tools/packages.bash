# Installing Debian packages. Sourced by tools/setup.sh and tools/engines.sh, which define report and die. If the user is not
# root, a message names the packages.

# install WHAT PACKAGE...: installs the Debian packages that provide WHAT.
install() {
    local what=$1
    shift
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
        die "$what is missing; install it (Debian: apt-get install $*) and run this again"
    report "installing $* for $what"
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null 2>&1 || {
        apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null
    } || die "could not install $*"
}

# need COMMAND PACKAGE...: installs the packages if COMMAND is missing.
need() { command -v "$1" >/dev/null || install "$@"; }
