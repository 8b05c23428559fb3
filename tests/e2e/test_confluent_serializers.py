"""Confluent's own serializers for Python against our registry, unchanged: Avro, JSON Schema and Protobuf, through a
topic of the broker; and its client's other calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.timestamp_pb2 import Timestamp
from tests.launcher import BrokerProcess

import penstock

ORDER = {"id": "a1", "count": 2}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "count", "type": "int"}],
}
JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["id"],
}
LATER = {**AVRO, "fields": [*AVRO["fields"], {"name": "note", "type": "string", "default": ""}]}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("registry") / "data").ready() as made:
        yield made


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": f"http://{broker.address('http')}"}) as made:
        yield made


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def through(broker: BrokerProcess, topic: str, value: bytes) -> bytes:
    """The value after a way through the log."""
    with penstock.connect(broker.address("rustlog")) as db:
        db.produce(topic, value)
        return bytes(next(iter(db.consume(topic, follow=False))).value)


def test_avro(broker: BrokerProcess, client: SchemaRegistryClient) -> None:
    serialize = AvroSerializer(client, json.dumps(AVRO))
    data = serialize(ORDER, value_of("avro"))
    assert data is not None and data[0] == 0
    number = int.from_bytes(data[1:5], "big")
    assert client.get_latest_version("avro-value").schema_id == number
    assert AvroDeserializer(client)(through(broker, "avro", data), value_of("avro")) == ORDER
    AvroSerializer(client, json.dumps(LATER))(ORDER | {"note": "x"}, value_of("avro"))
    reader = AvroDeserializer(client, json.dumps(LATER))  # resolves what the first version wrote
    assert reader(data, value_of("avro")) == ORDER | {"note": ""}


def test_json_schema(broker: BrokerProcess, client: SchemaRegistryClient) -> None:
    data = JSONSerializer(json.dumps(JSON), client)(ORDER, value_of("json"))
    assert data is not None
    back = JSONDeserializer(None, schema_registry_client=client)
    assert back(through(broker, "json", data), value_of("json")) == ORDER


def shop() -> Any:
    """A file with an import and two messages, as protoc would have made it."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    text, message = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
    once = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=text, label=once)
    visit = file.message_type.add(name="Visit")
    visit.field.add(name="at", number=1, type=message, type_name=".google.protobuf.Timestamp", label=once)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(Timestamp.DESCRIPTOR.file.serialized_pb)
    pool.Add(file)
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in ("Order", "Visit")]


def test_protobuf(broker: BrokerProcess, client: SchemaRegistryClient) -> None:
    """Also a message that is not the first of its file."""
    conf = {"use.deprecated.format": False}
    order, visit = shop()
    for topic, message in (("orders", order(id="a1")), ("visits", visit(at={"seconds": 5}))):
        data = ProtobufSerializer(type(message), client, conf)(message, value_of(topic))
        assert data is not None
        back = ProtobufDeserializer(type(message), conf, client)
        assert back(through(broker, topic, data), value_of(topic)) == message
    assert client.get_latest_version("orders-value").schema_id == client.get_latest_version("visits-value").schema_id


def test_other_calls_of_the_client(client: SchemaRegistryClient) -> None:
    number = client.register_schema("calls", Schema(json.dumps(AVRO), "AVRO"))
    assert json.loads(client.get_schema(number).schema_str or "") == AVRO
    found = client.lookup_schema("calls", Schema(json.dumps(AVRO), "AVRO"))
    assert (found.version, found.schema_id) == (1, number)
    assert "calls" in client.get_subjects() and client.get_versions("calls") == [1]
    assert client.test_compatibility("calls", Schema(json.dumps(LATER), "AVRO"))
    assert client.get_compatibility("calls") == "BACKWARD"
    client.set_compatibility("calls", "FULL")
    assert client.get_compatibility("calls") == "FULL"
    assert client.get_version("calls", 1).schema_id == number
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("calls", Schema('{"type": "int"}', "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    with pytest.raises(SchemaRegistryError) as missing:
        client.get_latest_version("nothing")
    assert missing.value.error_code == 40401
    assert client.delete_version("calls", 1) == 1
    client.register_schema("calls", Schema(json.dumps(AVRO), "AVRO"))
    assert client.delete_subject("calls", permanent=True) is not None
    assert "calls" not in client.get_subjects()
