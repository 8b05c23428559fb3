#!/bin/sh
# All tests under the conditions in which they fail first, if they depend on more than they should. Every round runs them
# three times, each in a random order of its own:
#   alone     two at once, each with one worker on one processor: one with the smallest socket buffers, one with large ones
#   crowded   four workers beside a busy process, with small socket buffers in odd rounds and large ones in even rounds
# Sizes of buffers need a network namespace, and are left as they are where this user may not have one. Prints the seed of
# every order, keeps what pytest said in LOGS, goes on after a failure, and says in the end how many runs were green.
#   sh scripts/soak.sh PYTEST ROUNDS [TEST...]
set -u
pytest=$1
rounds=$2
shift 2
logs=${LOGS:-build/soak}
mkdir -p "$logs"
runs=0
failed=0

small="4096 4608 8192"
large="4096 4194304 33554432"

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

# run NAME SIZES COMMAND...: all tests once.
run() {
    name=$1
    sizes=$2
    shift 2
    seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
    echo "== $name, buffers $sizes (--random-order $seed)"
    buffers "$sizes" "$@" --random-order "$seed" >"$logs/$name.log" 2>&1
    status=$?
    echo "== $name: $(tail -n 1 "$logs/$name.log")"
    [ "$status" = 0 ] || grep -E '^(FAILED|ERROR) ' "$logs/$name.log"
    return "$status"
}

count() {
    runs=$((runs + 1))
    [ "$1" = 0 ] || failed=$((failed + 1))
}

last=$(($(nproc) - 1))
round=0
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))

    run "$round-alone-small" "$small" taskset -c 0 "$pytest" -q "$@" &
    beside=$!
    run "$round-alone-large" "$large" taskset -c "$last" "$pytest" -q "$@"
    count $?
    wait "$beside"
    count $?

    [ $((round % 2)) = 1 ] && sizes=$small || sizes=$large
    sh -c 'while :; do :; done' &
    busy=$!
    trap 'kill "$busy" 2>/dev/null' EXIT INT TERM
    run "$round-crowded" "$sizes" "$pytest" -q -n 4 --dist loadfile "$@"
    count $?
    kill "$busy"
done
echo "$((runs - failed)) of $runs runs green"
[ "$failed" = 0 ]
