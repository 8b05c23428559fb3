"""Configuration: every key with its default (`settings`), the layers that values come from (`layers`), and how they
become the settings of each part (`broker`, `doors`, `listen`, `tokens`, `transport`, `workers`).

Settings objects are made here and nowhere else; no other part but `server` and `cli` knows the keys. Imports workers,
transport, doors, wire, broker and log. Start at `settings.py`.
"""
