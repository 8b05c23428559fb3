#!/bin/sh
# All tests under the conditions in which they fail first, if they depend on more than they should: in random order; with
# one worker, and with four; on one processor; beside a busy process; with the smallest socket buffers, and with large
# ones (where this user may have a network namespace of its own). Prints the seed of every order, and stops at a failure.
#   sh scripts/soak.sh PYTEST ROUNDS [TEST...]
set -u
pytest=$1
rounds=$2
shift 2

# A network of its own, with its own sizes of socket buffers: "least default most" bytes.
buffers() {
    sizes=$1
    shift
    unshare --net sh -c '
        ip link set lo up
        echo "$0" >/proc/sys/net/ipv4/tcp_wmem
        echo "$0" >/proc/sys/net/ipv4/tcp_rmem
        exec "$@"' "$sizes" "$@"
}

try() {
    echo "== $1 (--random-order $seed)"
    shift
    "$@" || {
        echo "failed; to repeat it: $*" >&2
        exit 1
    }
}

round=0
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    seed=$(date +%s)
    try "round $round: one worker" "$pytest" -q --random-order "$seed" "$@"
    try "round $round: four workers" "$pytest" -q --random-order "$seed" -n 4 --dist loadgroup "$@"
    try "round $round: one processor" taskset -c 0 "$pytest" -q --random-order "$seed" "$@"
    sh -c 'while :; do :; done' &
    busy=$!
    trap 'kill "$busy" 2>/dev/null' EXIT INT TERM
    try "round $round: beside a busy process" "$pytest" -q --random-order "$seed" -n 2 --dist loadgroup "$@"
    kill "$busy"
    if unshare --net true 2>/dev/null; then
        try "round $round: small socket buffers" buffers "4096 4608 8192" "$pytest" -q --random-order "$seed" "$@"
        try "round $round: large socket buffers" \
            buffers "4096 4194304 33554432" "$pytest" -q --random-order "$seed" "$@"
    fi
done
