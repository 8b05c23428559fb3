"""The broker: topics, produce, fetch, queues, groups and access, one package per subject. Independent of protocols and
sockets.

Imports only `log`. Start at `broker.py`, which assembles the services; each is an attribute, such as `broker.topics`.
Modules with singular names hold rules (pure functions), those with plural names hold services.
"""
