"""The journal on Apache Kafka: one commit group is one Kafka record, and the local segments are a cache of them.

`fencing.py` says, as pure functions, who may write and what counts, `landmarks.py` where a journal may begin;
everything else carries that out. Only `client.py` and `topics.py` know confluent-kafka, which is an extra:
`penstock[kafka]`.
"""
