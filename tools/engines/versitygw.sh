# versitygw, a server with the interface of S3 whose buckets are folders; built from source.
. tools/engines/go.bash

versitygw_version=1.8.0

# Installs versitygw into .venv/engines/bin. A program that was built in this way does not know its version, so
# a file has it.
install_versitygw() {
    local version=$engines/versitygw.version
    [ -x "$engines/bin/versitygw" ] && [ "$(cat "$version" 2>/dev/null)" = "$versitygw_version" ] && return
    go_install github.com/versity/versitygw/cmd/versitygw "$versitygw_version"
    printf '%s\n' "$versitygw_version" >"$version"
}

# run_versitygw FOLDER PORT: runs a server whose buckets are the folders in FOLDER/buckets. The environment variables
# ROOT_ACCESS_KEY and ROOT_SECRET_KEY are the credentials of its administrator.
run_versitygw() {
    local folder=$1 port=$2
    [ -x "$engines/bin/versitygw" ] || die "versitygw is not installed; run tools/engines.sh install versitygw"
    mkdir -p "$folder/buckets" "$folder/users"
    exec "$engines/bin/versitygw" --port "127.0.0.1:$port" --quiet --iam-dir "$folder/users" posix "$folder/buckets"
}
