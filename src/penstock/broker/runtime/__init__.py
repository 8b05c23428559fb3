"""What every service of the broker runs on: executor, clocks, timers, metrics."""
