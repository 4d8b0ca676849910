#!/bin/sh
# Makes the certificates of compose.yaml and kubernetes.yaml, in the folder `certificates`. Run it again to renew them: the
# authorities stay. Keep certificates/authorities offline afterwards: a party with one of its keys can join as a server.
#
# usage: ./certificates.sh ADDRESS,ADDRESS,ADDRESS NAME...
#   ADDRESS  where clients reach each node of Cassandra. Compose: 10.89.22.10,10.89.22.11,10.89.22.12
#            Kubernetes: the addresses of the Services cql-0, cql-1 and cql-2
#   NAME     a name or an address by which clients know intakes and serve
set -eu
umask 077
[ $# -ge 2 ] || { sed -n '5,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p certificates/authorities certificates/nats certificates/cassandra certificates/edge
nodes=$1
shift
cd certificates

# names TEXT...: writes an alternative name for each word.
names() {
    for name in "$@"; do
        case $name in
            *[!0-9.]*) echo "DNS:$name" ;;
            *) echo "IP:$name" ;;
        esac
    done | paste -sd, -
}

# made OPTION...: makes a key on P-256 (PKCS#8) and its certificate.
made() {
    openssl req -x509 -config /dev/null -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc "$@"
}

# signed AUTHORITY FOLDER NAMES: makes FOLDER/tls.key and FOLDER/tls.crt, for servers and clients.
signed() {
    [ -e "authorities/$1.crt" ] || made -days 3650 -subj "/CN=moteseal $1" \
        -keyout "authorities/$1.key" -out "authorities/$1.crt" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
    made -days 398 -subj "/CN=$2" -CA "authorities/$1.crt" -CAkey "authorities/$1.key" \
        -keyout "$2/tls.key" -out "$2/tls.crt" -addext "subjectAltName=$3" \
        -addext basicConstraints=critical,CA:FALSE -addext keyUsage=critical,digitalSignature \
        -addext extendedKeyUsage=serverAuth,clientAuth
}

signed nats nats "$(names nats-0.nats nats-1.nats nats-2.nats)"
cp authorities/nats.crt nats/ca.crt

# shellcheck disable=SC2046 # One word for each address.
signed cassandra cassandra "$(names $(echo "$nodes" | tr , ' ') cql-0 cql-1 cql-2)"
cat cassandra/tls.key cassandra/tls.crt > cassandra/node.pem
rm cassandra/tls.key cassandra/tls.crt
cp authorities/cassandra.crt cassandra/ca.crt

# An operator's commands use the names of the services.
signed edge edge "$(names "$@" intake intake-0 intake-1 serve)"
cp authorities/edge.crt edge-ca.crt
cat nats/ca.crt cassandra/ca.crt > ca.crt
