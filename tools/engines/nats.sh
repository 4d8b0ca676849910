# nats-server, built from source.
. tools/engines/go.bash

nats_version=2.15.3

# Installs nats-server into .venv/engines/bin.
install_nats() {
    [ "$("$engines/bin/nats-server" --version 2>/dev/null)" = "nats-server: v$nats_version" ] && return
    go_install github.com/nats-io/nats-server/v2 "$nats_version"
}

# run_nats FOLDER PORT [MONITORING_PORT [NAME CLUSTER_PORT CLUSTER_PORT...]]: runs a server with JetStream that syncs each
# message before it acknowledges it. A file more.conf in FOLDER has further lines of its configuration, for example users.
# With a name, it is a server of a cluster: its own port in the cluster, and those
# of all servers of the cluster. A file cluster.conf in FOLDER has further lines of its block `cluster`, for example TLS.
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
            printf '  ]\n'
            [ ! -f "$folder/cluster.conf" ] || cat "$folder/cluster.conf"
            printf '}\n'
        fi
        [ ! -f "$folder/more.conf" ] || cat "$folder/more.conf"
    } >"$folder/nats.conf"
    exec "$engines/bin/nats-server" -c "$folder/nats.conf"
}
