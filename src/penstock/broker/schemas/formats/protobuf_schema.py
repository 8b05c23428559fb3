"""Protobuf: the definition is a `.proto` file, and a record's value is one message in the binary encoding.

Confluent's serializers register a FileDescriptorProto in base64 instead; that is accepted too. protoc compiles a file
once to such a descriptor, which is stored beside the definition and used from then on. The schema describes the first
message in the file, unless a line of it names another:

    // penstock:message=Order

Unknown fields are valid, as always in protobuf; but a known field with a different wire type is not.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, unknown_fields
from google.protobuf.message import DecodeError, Message

from penstock.broker.errors import SchemaInvalid
from penstock.broker.schemas.formats import protobuf_compatibility
from penstock.broker.schemas.formats.format import MAX_PROBLEMS, Decoder, Sides, Validator
from penstock.broker.schemas.schema import Schema

FILE: Final = "schema.proto"
WELL_KNOWN: Final = "google/protobuf/"
PROTOC_SECONDS: Final = 15
PROTOC_MEMORY: Final = 1 << 30
MAX_COMPILED: Final = 1 << 20

BASE64: Final = re.compile(rb"[A-Za-z0-9+/\s]+={0,2}\s*")
IMPORT: Final = re.compile(r"google/protobuf/[a-z_]+\.proto")
MESSAGE: Final = re.compile(rb"^[ \t]*//[ \t]*penstock:message=([A-Za-z0-9_.]{1,255})[ \t]*\r?$", re.MULTILINE)

# In a separate process: a definition that crashes protoc must not crash the broker.
_PROTOC: Final = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))
import os, grpc_tools
from grpc_tools import protoc
include = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
sys.exit(protoc.main(["protoc", "-I.", "-I" + include, "--include_imports", "--descriptor_set_out=out", "{file}"]))
"""


def prepare(definition: bytes) -> bytes:
    file = _described(definition)
    compiled = _protoc(definition) if file is None else _with_imports(file)
    if len(compiled) > MAX_COMPILED:
        raise SchemaInvalid(f"the compiled definition is larger than {MAX_COMPILED} bytes")
    file = _files(compiled)[-1]
    for name in file.dependency:
        if not name.startswith(WELL_KNOWN):
            raise SchemaInvalid(f"import of {name[:200]}: only {WELL_KNOWN}… can be imported")
    _message(definition, compiled)
    return compiled


def description(schema: Schema) -> bytes:
    """The FileDescriptorProto of a valid schema."""
    return bytes(_files(schema.compiled)[-1].SerializeToString())


def message_of(schema: Schema) -> Any:
    """The descriptor of the message that a valid schema describes."""
    return _message(schema.definition, schema.compiled)


def validator(schema: Schema) -> Validator:
    kind = message_factory.GetMessageClass(message_of(schema))

    def validate(data: bytes) -> list[str]:
        try:
            message = kind.FromString(data)
        except DecodeError as error:
            return [f"invalid Protobuf wire format: {error}"]
        if not message.IsInitialized():
            return [f"missing required field: {name}" for name in message.FindInitializationErrors()[:MAX_PROBLEMS]]
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() == size:
            return []  # no unknown fields at any depth
        return list(_wrong_wire_types(kind.FromString(data), ""))[:MAX_PROBLEMS]

    return validate


def decoder(schema: Schema) -> Decoder:
    kind = message_factory.GetMessageClass(message_of(schema))

    def read(data: bytes) -> Any:
        try:
            return json_format.MessageToDict(kind.FromString(data), preserving_proto_field_name=True)
        except (json_format.Error, DecodeError, TypeError) as error:  # such as an Any of an unknown type
            raise ValueError(f"it has no form in JSON: {error}") from None

    return read


def compatible(reader: Schema, writer: Schema, sides: Sides) -> list[str]:
    mine, theirs = (_message(schema.definition, schema.compiled) for schema in (reader, writer))
    return protobuf_compatibility.problems(mine, theirs, sides)


def _wrong_wire_types(message: Message, path: str) -> Iterator[str]:
    """Fields of the message, and of nested ones, whose wire type in the data differs from the schema's."""
    known = message.DESCRIPTOR.fields_by_number
    for field in unknown_fields.UnknownFieldSet(message):
        if field.field_number in known:
            name = path + known[field.field_number].name
            yield f"invalid Protobuf wire format: field {name} ({field.field_number}) in wire type {field.wire_type}"
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        for inner in _messages(descriptor, value):
            yield from _wrong_wire_types(inner, f"{path}{descriptor.name}.")


def _messages(descriptor: Any, value: Any) -> list[Message]:
    if not descriptor.is_repeated:
        return [value]
    if not descriptor.message_type.GetOptions().map_entry:
        return list(value)
    if descriptor.message_type.fields_by_name["value"].message_type is None:
        return []
    return list(value.values())


def _described(definition: bytes) -> Any | None:
    """The file, if the definition is a FileDescriptorProto in base64; else None."""
    if not BASE64.fullmatch(definition):
        return None
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(definition, validate=True))
    except (binascii.Error, DecodeError):
        return None
    file.name = FILE
    return file


def _with_imports(file: Any) -> bytes:
    """The compiled definition, as protoc would produce it: imported files first, then this one."""
    found: dict[str, Any] = {}

    def add(name: str) -> None:
        if name in found or not name.startswith(WELL_KNOWN):
            return
        try:
            module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        except ImportError:
            raise SchemaInvalid(f"import of {name[:200]}: there is no such file") from None
        known = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        for inner in known.dependency:
            add(inner)
        found[name] = known

    for name in file.dependency:
        if not IMPORT.fullmatch(name):
            raise SchemaInvalid(f"import of {name[:200]}: only {WELL_KNOWN}… can be imported")
        add(name)
    try:
        compiled = descriptor_pb2.FileDescriptorSet(file=[*found.values(), file]).SerializeToString()
        pool = descriptor_pool.DescriptorPool()
        for each in _files(compiled):
            pool.Add(each)
        pool.FindFileByName(FILE)
    except (TypeError, KeyError, ValueError) as error:
        raise SchemaInvalid(f"the description makes no sense: {error}") from None
    return bytes(compiled)


def _protoc(definition: bytes) -> bytes:
    code = _PROTOC.format(memory=PROTOC_MEMORY, seconds=PROTOC_SECONDS, size=MAX_COMPILED * 2, file=FILE)
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        with open(os.path.join(directory, FILE), "wb") as file:
            file.write(definition)
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-c", code],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=PROTOC_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SchemaInvalid(f"protoc took longer than {PROTOC_SECONDS} seconds") from None
        if done.returncode != 0:
            lines = done.stderr[-2000:].decode(errors="replace").splitlines()
            said = [line for line in lines if not line.startswith(("WARNING:", "W0000"))]  # logged by the library
            raise SchemaInvalid("; ".join(said) or f"protoc ended with {done.returncode}")
        with open(os.path.join(directory, "out"), "rb") as file:
            return file.read()


def _files(compiled: bytes) -> list[Any]:
    return list(descriptor_pb2.FileDescriptorSet.FromString(compiled).file)


def _message(definition: bytes, compiled: bytes) -> Any:
    """The descriptor of the message that the definition describes, in a separate pool."""
    files = _files(compiled)
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    package = files[-1].package
    wanted = MESSAGE.search(definition)
    if wanted is None:
        if not files[-1].message_type:
            raise SchemaInvalid("the definition has no message")
        name = files[-1].message_type[0].name
    else:
        name = wanted[1].decode()
    full = f"{package}.{name}" if package and not name.startswith(package + ".") else name
    try:
        return pool.FindMessageTypeByName(full)
    except KeyError:
        raise SchemaInvalid(f"the definition has no message {full}") from None
