"""Measures Penstock beside other servers: `make bench-peers`, or `python -m benchmarks.peers --help`."""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time

from benchmarks import machine
from benchmarks.peers import results, servers
from benchmarks.peers.parts import GROUPS, PARTS, chosen, configurations
from benchmarks.peers.tried import Peers
from benchmarks.settings import scratch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMPILED = os.path.join(ROOT, "build", "compiled")
PICTURES = os.path.join(ROOT, "docs", "images", "peers")


def main() -> None:
    options = _options()
    _allow_many_sockets()
    compiled = COMPILED if os.path.isdir(os.path.join(COMPILED, "penstock")) and not options.plain else None
    conditions = {**machine.describe(options.dir), "rounds": f"{options.rounds} of {options.seconds:g} s, interleaved"}
    conditions["load before"] = " ".join(f"{load:.1f}" for load in os.getloadavg())
    for name, value in conditions.items():
        print(f"{name:<12} {value}")
    for note in configurations(compiled):
        print(f"{'':<12} {note}")
    for obstacle in servers.left_out():
        print(f"{'':<12} {obstacle}")
    found: list[results.Series] = []
    with scratch(options.dir) as directory:
        peers = Peers(
            directory, compiled, options.rounds, options.seconds, options.most, options.server, options.door,
            options.against, options.level or servers.LEVELS,
        )  # fmt: skip
        for name in chosen(options.only):
            began = time.monotonic()
            series = PARTS[name](peers)
            found += series
            print(f"\n== {name} ({time.monotonic() - began:.0f} s)\n", flush=True)
            for each in series:
                print(each.markdown(), flush=True)
            conditions["load after"] = " ".join(f"{load:.1f}" for load in os.getloadavg())
            pictures = PICTURES if options.publish else options.out
            files = results.write(options.out, pictures, conditions, configurations(compiled), found)
    print("\n".join(files))


def _allow_many_sockets() -> None:
    """For thousands of connections, here and in the servers that are started."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < servers.MANY:
        print(f"no more than {hard} files may be open here: use --most {hard - 1000}", file=sys.stderr)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--only", action="append", choices=[*PARTS, *GROUPS], help="only this; may be repeated")
    parser.add_argument("--server", action="append", help="only this one (penstock, redis, nats); may be repeated")
    parser.add_argument("--door", action="append", help="only this door of Penstock's (rustlog, …); may be repeated")
    parser.add_argument("--level", action="append", choices=servers.LEVELS, help="only this; may be repeated")
    parser.add_argument("--against", help="directory of another revision's package (its src), to be measured too")
    parser.add_argument("--plain", action="store_true", help="leave the compiled package out")
    parser.add_argument("--rounds", type=int, default=5, help="of every figure (%(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one round of one server (%(default)s)")
    parser.add_argument("--most", type=int, default=10_000, help="connections, topics, … at most (%(default)s)")
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "bench-peers"), help="for results (%(default)s)")
    parser.add_argument("--publish", action="store_true", help="put the plots into docs/images/peers")
    parser.add_argument("--dir", default=ROOT, help="where servers put data (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
