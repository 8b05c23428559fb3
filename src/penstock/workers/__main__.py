"""Entry point of every worker process: `python -m penstock.workers MODULE DESCRIPTOR`, started only by the broker.

A worker has its own process group, because Ctrl-C is for the broker, which stops its workers gracefully. It stays in
the broker's session: Linux schedules sessions as groups (autogroup), and a priority counts within its group only. In
its own session, even a worker of idle priority would get as much of a processor as the broker.
"""

import os
import runpy
import signal
import sys

if __name__ == "__main__":
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # or a terminal in mode `tostop` stops a worker that logs something
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
