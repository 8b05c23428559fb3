"""Versions of the protocol: the requests and fields of each, from the tables in `generations`."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from penstock.clients.kimberlite.errors import Unsendable
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.connection import ClientCodec
from penstock.wire.kimberlite.codec.dialects import NAMED
from penstock.wire.kimberlite.codec.generations import GENERATIONS


class Version:
    __slots__ = (
        "_castagnoli",
        "_missing",
        "audited",
        "has_stream_info",
        "name",
        "number",
        "offset_required",
        "old_classes",
        "pushes",
        "subscribes",
    )

    def __init__(self, name: str, castagnoli: bool = False) -> None:
        if name not in NAMED:
            raise ValueError(f"{name!r} is no version of the protocol; there are {', '.join(NAMED)}")
        generation = GENERATIONS[NAMED[name][0]]
        fields = {variant.make: {field.name for field in variant.fields} for variant in generation.requests().variants}
        self.name = name
        self.number = generation.version
        self.pushes = generation.wrapped  # the server pushes events, and has `server_info`
        self.audited = generation.audited
        self.subscribes = m.Subscribe in fields
        self.has_stream_info = m.StreamInfo in fields  # a request for the length of a stream
        self.offset_required = "expected_offset" in fields[m.AppendEvents]  # in every append
        self.old_classes = name == "v0.1" or name.startswith("seed")
        self._castagnoli = castagnoli
        self._missing = {make: _missing(make, known) for make, known in fields.items()}

    def codec(self) -> ClientCodec:
        """A codec for one connection."""
        return ClientCodec(self.name, castagnoli=self._castagnoli)

    def adapt(self, request: m.Message, audit: m.AuditMetadata | None) -> m.Message:
        """The request in the form of this version. Raises Unsendable instead of dropping a field that the caller
        set."""
        if audit is not None and not self.audited:
            raise Unsendable("Notes for the audit log can be sent from version 3 on")
        missing = self._missing.get(type(request))
        if missing is None:
            raise Unsendable(f"Version {self.name} of the protocol has no {type(request).__name__}")
        for name, default in missing:
            if getattr(request, name) != default:
                raise Unsendable(f"In version {self.name} a {type(request).__name__} has no {name}")
        if isinstance(request, m.AppendEvents):
            if request.expected_offset is None and self.offset_required:
                raise Unsendable(f"In version {self.name} an append must say where the stream ends: expected_offset")
        elif isinstance(request, m.CreateStream):
            return self._with_data_class(request)
        return request

    def _with_data_class(self, request: m.CreateStream) -> m.CreateStream:
        """Map the data class: the first versions have a single class for all data that is not about patients."""
        if self.old_classes and request.data_class is m.DataClass.PUBLIC:
            return msgspec.structs.replace(request, data_class=m.DataClass.NON_PHI)
        if not self.old_classes and request.data_class is m.DataClass.NON_PHI:
            return msgspec.structs.replace(request, data_class=m.DataClass.PUBLIC)
        return request


def _missing(make: Any, known: set[str]) -> tuple[tuple[str, Any], ...]:
    """Fields of a request that a version does not have, and their defaults."""
    return tuple((field.name, field.default) for field in msgspec.structs.fields(make) if field.name not in known)


@cache
def find_version(name: str, castagnoli: bool = False) -> Version:
    return Version(name, castagnoli)
