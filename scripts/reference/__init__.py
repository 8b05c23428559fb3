"""Reference pages that are made from the code: commands, configuration, metrics and errors.

`make reference` writes them to docs/reference/; `tests/test_reference.py` fails while a committed page is not the one
that the code makes.
"""
