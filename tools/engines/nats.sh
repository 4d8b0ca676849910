# nats-server, built from source. Go verifies the digest of every module with its checksum database.

nats_version=2.15.3
# The Go that nats-server needs. An older Go fetches this toolchain as a module, which is verified in the same way.
nats_go=1.26.8

# Installs nats-server into .venv/engines/bin. Keeps neither Go's cache of builds nor its modules.
install_nats() {
    local server=$engines/bin/nats-server go build
    [ "$("$server" --version 2>/dev/null)" = "nats-server: v$nats_version" ] && return
    command -v go >/dev/null || nats_get_go
    printf 'engines: building nats-server %s\n' "$nats_version" >&2
    build=$(mktemp -d)
    export GOPATH=$build/path GOMODCACHE=$build/modules GOCACHE=$build/cache GOBIN=$engines/bin GOFLAGS=-modcacherw CGO_ENABLED=0
    export GOSUMDB=${GOSUMDB:-sum.golang.org}
    go=$(nats_go_command "$build")
    GOTOOLCHAIN=local "$go" install -trimpath -ldflags='-s -w' "github.com/nats-io/nats-server/v2@v$nats_version" ||
        die "could not build nats-server $nats_version; the messages above state why"
    rm -rf "$build"
}

# Prints the command of a Go that is new enough. Go before 1.21 cannot fetch a toolchain by itself, but its
# `go mod download` can fetch one as a module.
nats_go_command() {
    local have folder module
    have=$(go env GOVERSION)
    if printf '%s\n' "go$nats_go" "${have%% *}" | sort -V -C; then
        command -v go
        return
    fi
    module=golang.org/toolchain@v0.0.1-go$nats_go.$(go env GOOS)-$(go env GOARCH)
    folder=$(cd "$1" && go mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
    [ -d "$folder" ] || die "could not fetch Go $nats_go as a module; install Go $nats_go or newer and run this again"
    # Modules carry no permissions.
    chmod -R u+w "$folder" && chmod +x "$folder"/bin/* "$folder"/pkg/tool/*/*
    printf '%s\n' "$folder/bin/go"
}

nats_get_go() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
        die "Go is missing; install it (Debian: apt-get install golang-go) and run this again"
    printf 'engines: installing golang-go\n' >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends golang-go >/dev/null ||
        die "could not install golang-go"
}

# run_nats FOLDER PORT [MONITORING_PORT [NAME CLUSTER_PORT CLUSTER_PORT...]]: runs a server with JetStream that syncs each
# message before it acknowledges it. With a name, it is a server of a cluster: its own port in the cluster, and those
# of all servers of the cluster.
run_nats() {
    local folder=$1 port=$2 monitoring=${3:-} name=${4:-} own=${5:-} route
    [ -x "$engines/bin/nats-server" ] || die "nats-server is not installed; run tools/engines.sh install nats"
    mkdir -p "$folder"
    {
        printf 'listen: 127.0.0.1:%s\n' "$port"
        [ -z "$monitoring" ] || printf 'http: 127.0.0.1:%s\n' "$monitoring"
        printf 'jetstream { store_dir: "%s/data", max_file_store: 1GB, sync_interval: always }\n' "$folder"
        if [ -n "$name" ]; then
            printf 'server_name: %s\ncluster {\n  name: moteseal\n  listen: 127.0.0.1:%s\n  routes: [\n' "$name" "$own"
            for route in "${@:6}"; do printf '    nats://127.0.0.1:%s\n' "$route"; done
            printf '  ]\n}\n'
        fi
    } >"$folder/nats.conf"
    exec "$engines/bin/nats-server" -c "$folder/nats.conf"
}
