# Building programs from source with Go. Go verifies the digest of every module with its checksum database.

# The Go that the programs need. An older Go fetches this toolchain as a module, which is verified in the same way.
go_needed=1.26.8

# go_install PACKAGE VERSION: builds a program into .venv/engines/bin. Keeps neither Go's cache of builds nor its modules.
go_install() {
    local package=$1 version=$2 go build
    need go golang-go
    report "building ${package##*/} $version"
    build=$(mktemp -d)
    export GOPATH=$build/path GOMODCACHE=$build/modules GOCACHE=$build/cache GOBIN=$engines/bin GOFLAGS=-modcacherw CGO_ENABLED=0
    export GOSUMDB=${GOSUMDB:-sum.golang.org}
    go=$(go_command "$build")
    GOTOOLCHAIN=local "$go" install -trimpath -ldflags='-s -w' "$package@v$version" ||
        die "could not build ${package##*/} $version; the messages above state why"
    rm -rf "$build"
}

# Prints the command of a Go that is new enough. Go before 1.21 cannot fetch a toolchain by itself, but its
# `go mod download` can fetch one as a module.
go_command() {
    local have folder module
    have=$(go env GOVERSION)
    if printf '%s\n' "go$go_needed" "${have%% *}" | sort -V -C; then
        command -v go
        return
    fi
    module=golang.org/toolchain@v0.0.1-go$go_needed.$(go env GOOS)-$(go env GOARCH)
    folder=$(cd "$1" && go mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
    [ -d "$folder" ] || die "could not fetch Go $go_needed as a module; install Go $go_needed or newer and run this again"
    # Modules carry no permissions.
    chmod -R u+w "$folder" && chmod +x "$folder"/bin/* "$folder"/pkg/tool/*/*
    printf '%s\n' "$folder/bin/go"
}
