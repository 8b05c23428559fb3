"""The runtime used by every service: executor, scheduler, clocks, timers, metrics. Except for `gauges.py`, it imports
only names and door numbers from the rest of the broker.
"""
