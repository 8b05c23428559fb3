"""Values of a schema as Arrow columns: which columns a definition has (one module for each language), and how they are
filled. The broker's own process never loads it: Arrow takes long to load."""
