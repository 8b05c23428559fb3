"""HTTP for operators: health, metrics, and the administration socket. Imports doors, broker and log. Start at
`http.py`.
"""
