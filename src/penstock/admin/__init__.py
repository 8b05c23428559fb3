"""HTTP for operators: health and metrics (`health`) and the administration API (`api`), with one module per resource,
on every port (`http`) and on a Unix socket in the data directory (`socket`). Imports doors, broker and log. Start at
`api.py`."""
