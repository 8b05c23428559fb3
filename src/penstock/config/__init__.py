"""Configuration: every key with its default (`settings`), the layers from which values come (`layers`), and their
conversion to the settings of each component (`broker`, `doors`, `listen`, `tokens`, `transport`, `workers`).

All settings objects are created here; only `server` and `cli` know the keys. Imports workers, transport, doors, wire,
broker and log. Start at `settings.py`.
"""
