"""One package per wire protocol; everything that knows a protocol lives in its package and nowhere else."""
