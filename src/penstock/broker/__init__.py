"""The broker: topics, produce, fetch, queues, groups, access, in packages by subject. Knows no protocol and no socket.

Imports log only. Start at `broker.py`, which puts the services together; a service is reached by its name, as
`broker.topics`. Modules in the singular are rules (pure functions), those in the plural are services.
"""
