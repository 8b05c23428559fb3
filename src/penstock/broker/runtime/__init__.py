"""The runtime used by every service: executor, scheduler, clocks, timers, metrics. Imports no other part of the
broker.
"""
