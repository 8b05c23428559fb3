#!/bin/sh
# All tests under the conditions in which they fail first, if they depend on more than they should. Every round runs them
# twice, in two random orders:
#   alone     one worker, on one processor, with the smallest socket buffers
#   crowded   four workers, beside a busy process, with large socket buffers
# Sizes of buffers need a network namespace, and are left as they are where this user may not have one. Prints the seed of
# every order, and stops at a failure.
#   sh scripts/soak.sh PYTEST ROUNDS [TEST...]
set -u
pytest=$1
rounds=$2
shift 2

# A network of its own, with its own sizes of socket buffers: "least default most" bytes.
buffers() {
    sizes=$1
    shift
    if ! unshare --net true 2>/dev/null; then
        "$@"
        return
    fi
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
    try "round $round, alone" \
        buffers "4096 4608 8192" taskset -c 0 "$pytest" -q --random-order "$seed" "$@"
    sh -c 'while :; do :; done' &
    busy=$!
    trap 'kill "$busy" 2>/dev/null' EXIT INT TERM
    seed=$(date +%s)
    try "round $round, crowded" \
        buffers "4096 4194304 33554432" "$pytest" -q --random-order "$seed" -n 4 --dist loadfile "$@"
    kill "$busy"
done
