"""Options of Spark's Kafka source and sink, for programs migrated from there: accepted under another name, accepted
because they request what is always the case, or refused with a hint at the option to use instead. There is a table for
each; names are in lower case, and one that ends in a dot is a prefix. `docs/spark.md` lists them."""

from __future__ import annotations

from typing import Final

RENAMED: Final = {
    "kafka.bootstrap.servers": "bootstrap.servers",
    "kafka.group.id": "group.id",
    "kafka.transactional.id": "txnAppId",
    "kafkaconsumer.polltimeoutms": "pollTimeoutMs",
}
"""Options that are renamed to ours."""

ALWAYS_SO: Final[dict[str, tuple[str, ...]]] = {
    "kafka.isolation.level": ("read_committed",),
    "kafka.acks": ("all", "-1"),
    "kafka.enable.idempotence": ("true",),
    "kafka.enable.auto.commit": ("false",),
    "kafka.allow.auto.create.topics": ("false",),
}
"""Options that request what is always the case, with the accepted values."""

EQUIVALENT: Final = {
    "kafka.security.protocol": "'tls.enabled' or 'tls.ca' for TLS; 'user' and 'password', or 'api.key', for a login",
    "kafka.sasl.": "'user' and 'password', or 'api.key'",
    "kafka.ssl.truststore.": "'tls.ca', a PEM file",
    "kafka.ssl.keystore.": "'tls.cert' and 'tls.key', PEM files",
    "kafka.ssl.key.password": "'tls.key', a PEM file without a password",
    "kafka.ssl.endpoint.identification.algorithm": "'tls.hostname'",
    "kafka.ssl.": "'tls.ca', 'tls.cert', 'tls.key' and 'tls.hostname'",
    "kafka.auto.offset.reset": "'startingOffsets'",
    "kafka.key.deserializer": "nothing: key is binary, so cast the column or use penstock.spark.decode",
    "kafka.value.deserializer": "nothing: value is binary, so cast the column or use penstock.spark.decode",
    "kafka.key.serializer": "nothing: write key as string or binary",
    "kafka.value.serializer": "nothing: write value as string or binary, for example with to_json",
    "kafka.interceptor.classes": "nothing: change rows in the query",
    "kafka.partitioner.class": "a column 'partition'",
    "kafka.isolation.level": "nothing: only what is committed is ever seen, as with 'read_committed'",
    "kafka.acks": "nothing: what is written is on disk before it counts, as with 'all'",
    "kafka.enable.idempotence": "nothing: every write is exactly once, as with 'true'",
    "kafka.enable.auto.commit": "'group.id', which shows the progress of the checkpoint",
    "kafka.allow.auto.create.topics": "nothing: reading creates no topic",
    "kafka.max.poll.records": "'maxRecordsPerPartition' or 'maxOffsetsPerTrigger'",
    "kafka.fetch.": "'maxBytesPerTrigger'",
    "kafka.max.partition.fetch.bytes": "'maxBytesPerTrigger'",
    "kafka.request.timeout.ms": "'retryTimeout' and 'pollTimeoutMs'",
    "kafka.session.timeout.ms": "'retryTimeout'",
    "kafka.metadata.max.age.ms": "'partition.metadata.cache.ttl.ms'",
    "kafka.compression.type": "nothing: the broker decides how it keeps records",
    "kafka.linger.ms": "nothing: a micro-batch is written as a whole",
    "kafka.batch.size": "nothing: a micro-batch is written as a whole",
    "groupidprefix": "'group.id'",
    "kafkaconsumer.": "nothing: there are no consumers to cache; 'pollTimeoutMs' is known under both names",
    "kafka.": "nothing here",
}
"""Options that are refused, with the replacement; the first match counts."""


def equivalent(name: str) -> str | None:
    """The replacement for this option of the Kafka source, for an error text; None if it is not one."""
    for known, text in EQUIVALENT.items():
        if name == known or (known.endswith(".") and name.startswith(known)):
            return text
    return None
