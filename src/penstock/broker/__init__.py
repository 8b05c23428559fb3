"""The broker: topics, produce, fetch, queues, groups, access, in packages by subject. Knows no protocol and no
socket; imports log only. Start at `broker.py`, which puts the services together.
"""
