"""Tables of topics: the jobs of the table worker, and their outcome. Start at `tables.py`; `table_jobs.py` decides
which jobs there are, and `log/tables` does them.
"""
