"""The table worker: moves closed segments to tables and maintains these, in a process of its own."""
