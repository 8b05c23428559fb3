"""HTTP for operators: health and metrics on every port (`http`), and the administration API on a Unix socket in the
data directory (`socket`), with one module for each resource. Imports doors, broker and log. Start at `http.py`.
"""
