# Apache Cassandra, from the jars that Maven distributes. Sourced by tools/engines.sh.

install_cassandra() {
    local folder=$engines/cassandra pom=tools/engines/cassandra
    # Cassandra runs on Java, so it is needed even if the jars are already in .venv.
    need java default-jdk-headless
    (cd "$folder" && sha256sum --status -c ../../../$pom/checksums) 2>/dev/null && return
    need mvn maven
    report "fetching Cassandra"
    rm -rf "$folder"
    mvn --quiet --batch-mode -f $pom/pom.xml dependency:copy-dependencies -DincludeScope=runtime \
        -DoutputDirectory="$folder" >&2 &&
        (cd "$folder" && sha256sum --quiet -c ../../../$pom/checksums) || die "could not fetch Cassandra"
}

# encryption client|server KEYSTORE TRUSTSTORE: prints the section of docs/scale/cassandra.yaml about TLS with clients or between
# nodes, with other files. Tests therefore use the documented settings.
encryption() {
    awk -v section="$1_encryption_options:" -v keystore="$2" -v truststore="$3" '
        /^[^ ]/ { inside = $0 == section }
        inside && $1 == "keystore:" { $0 = "  keystore: " keystore }
        inside && $1 == "truststore:" { $0 = "  truststore: " truststore }
        inside' docs/scale/cassandra.yaml
}

# run_cassandra FOLDER PORT [KEY=VALUE...]: runs one node. Its cluster is that of the node at 127.0.0.1, which is started
# first. KEY is a setting of cassandra.yaml, or
#   join       for a further node, the milliseconds in which it learns of the other nodes when it starts
#   jvm        options of the Java virtual machine, which replace those for a fast start
#   cql        a PEM file with the node's key (PKCS #8) and its certificate: clients must then use TLS. With the setting
#              native_transport_port_ssl, only the clients at that port
#   internode  a file like that of cql: the nodes must then use TLS among themselves, and the authority must have signed
#              the certificates of all of them
#   authority  a PEM file with the certificate of this authority
run_cassandra() {
    local folder=$1 port=$2 key delay=0 jvm="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms256m -Xmx512m"
    local cql="" internode="" authority=""
    local options=() package
    [ -d "$engines/cassandra" ] || die "Cassandra is not installed; run tools/engines.sh install cassandra"
    mkdir -p "$folder"
    folder=$(cd "$folder" && pwd)
    declare -A settings=(
        [cluster_name]=moteseal [partitioner]=org.apache.cassandra.dht.Murmur3Partitioner
        [commitlog_sync]=batch [endpoint_snitch]=SimpleSnitch [num_tokens]=4
        [listen_address]=127.0.0.1 [rpc_address]=127.0.0.1
        [native_transport_port]=$port [storage_port]=$((port + 1))
        [roles_validity]=2s [permissions_validity]=2s [credentials_validity]=2s
        [memtable_heap_space]=64MiB [memtable_offheap_space]=64MiB [commitlog_segment_size]=32MiB
        [concurrent_reads]=8 [concurrent_writes]=8 [native_transport_max_threads]=8 [key_cache_size]=8MiB
        [row_cache_size]=0MiB [counter_cache_size]=0MiB [networking_cache_size]=16MiB [file_cache_size]=32MiB
        [autocompaction_on_startup_enabled]=true [auto_snapshot]=false [auto_bootstrap]=false
    )
    for key in "${@:3}"; do
        case $key in
        jvm=*) jvm=${key#*=} ;;
        cql=*) cql=${key#*=} ;;
        internode=*) internode=${key#*=} ;;
        authority=*) authority=${key#*=} ;;
        join=*) delay=${key#*=} settings[auto_bootstrap]=true ;;
        *=*) settings[${key%%=*}]=${key#*=} ;;
        *) die "$key is not KEY=VALUE" ;;
        esac
    done
    {
        for key in "${!settings[@]}"; do printf '%s: %s\n' "$key" "${settings[$key]}"; done
        for key in hints saved_caches cdc_raw; do printf '%s_directory: %s/%s\n' $key "$folder" $key; done
        printf 'commitlog_directory: %s/commitlog\ndata_file_directories:\n  - %s/data\n' "$folder" "$folder"
        printf 'seed_provider:\n  - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n'
        printf '    parameters:\n      - seeds: "127.0.0.1:%s"\n' "${settings[storage_port]}"
        [ -z "$cql" ] || encryption client "$cql" ""
        [ -z "$internode" ] || encryption server "$internode" "$authority"
    } >"$folder/cassandra.yaml"
    cat >"$folder/logback.xml" <<XML
<configuration>
  <appender name="LOG" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%-5level %date{HH:mm:ss.SSS} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="LOG"/></root>
</configuration>
XML
    for package in java.base/jdk.internal.misc java.base/jdk.internal.ref java.base/sun.nio.ch \
        java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.registry java.rmi/sun.rmi.server \
        java.sql/java.sql java.base/java.lang.ref java.base/java.lang.reflect jdk.unsupported/sun.misc; do
        options+=(--add-exports "$package=ALL-UNNAMED")
    done
    for package in java.base/java.lang.module java.base/jdk.internal.loader java.base/jdk.internal.ref \
        java.base/jdk.internal.reflect java.base/jdk.internal.math java.base/jdk.internal.module \
        java.base/jdk.internal.util.jar jdk.management/com.sun.management.internal java.base/sun.nio.ch \
        java.base/java.io java.base/java.nio java.base/java.util java.base/java.util.concurrent \
        java.base/java.util.concurrent.atomic java.base/java.lang java.base/java.net java.base/java.lang.reflect; do
        options+=(--add-opens "$package=ALL-UNNAMED")
    done
    # No port for management, no wait for other nodes. Clients and the node itself use only the loopback interface.
    # shellcheck disable=SC2086
    exec java $jvm -XX:-UsePerfData -XX:+ExitOnOutOfMemoryError -Xss256k \
        -Djava.io.tmpdir="$folder" -Djdk.attach.allowAttachSelf=true -Djna.tmpdir="$folder" \
        -Dcassandra.config="file://$folder/cassandra.yaml" -Dcassandra.storagedir="$folder" \
        -Dlogback.configurationFile="$folder/logback.xml" -Dcassandra-foreground=yes \
        -Dcassandra.skip_wait_for_gossip_to_settle=0 -Dcassandra.ring_delay_ms="$delay" \
        -Dcassandra.superuser_setup_delay_ms=0 \
        "${options[@]}" -cp "$engines/cassandra/*" org.apache.cassandra.service.CassandraDaemon
}
