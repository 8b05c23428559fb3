"""Tables of topics: the jobs of the table worker, and their outcome. Start at `tables.py`; `log/tables` builds them."""
