"""Configuration: every key with its default, the layers it comes from, and how it becomes the settings of each part."""
