"""Configuration: every key with its default, the layers it comes from, and how it becomes the settings of each part.

Imports the parts whose settings it makes. Start at `settings.py` (the keys), then `layers.py` (file, environment,
flags).
"""
