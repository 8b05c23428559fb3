"""Values of a schema as Arrow columns: the columns of a definition (one module per schema language), and how they are
filled. Never imported by the broker's own process: Arrow is slow to import.
"""
