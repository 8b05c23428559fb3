"""The journal on Apache Kafka: one commit group is one Kafka record, and the local segments are a cache of them.

`fencing.py` defines, as pure functions, who may write and which records count, `landmarks.py` where a journal may
begin; the other modules implement that. Only `client.py` and `topics.py` use confluent-kafka, which is an extra:
`penstock[kafka]`.
"""
