"""The pictures of the documents, drawn as SVG.

`make pictures` writes them to docs/pictures/; `tests/test_pictures.py` fails while a committed one is not the one that
this package draws.
"""
