"""The site of the documents: what `make docs` does beyond mkdocs."""
