"""Which version of the protocol a client speaks, and what can be said in it. Read from the tables in `generations`."""

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
        "_lacking",
        "audited",
        "lengths",
        "name",
        "number",
        "offsets",
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
        self.pushes = generation.wrapped  # events of a subscription; and questions about the server can be asked
        self.audited = generation.audited
        self.subscribes = m.Subscribe in fields
        self.lengths = m.StreamInfo in fields  # of streams can be asked for
        self.offsets = "expected_offset" in fields[m.AppendEvents]  # have to be told with every append
        self.old_classes = name == "v0.1" or name.startswith("seed")
        self._castagnoli = castagnoli
        self._lacking = {make: _lacking(make, known) for make, known in fields.items()}

    def wire(self) -> ClientCodec:
        """For one connection."""
        return ClientCodec(self.name, castagnoli=self._castagnoli)

    def fitted(self, request: m.Message, audit: m.AuditMetadata | None) -> m.Message:
        """The request as it can be said here. Raises Unsendable rather than leave out what the caller relies on."""
        if audit is not None and not self.audited:
            raise Unsendable("Notes for the audit log can be sent from version 3 on")
        lacking = self._lacking.get(type(request))
        if lacking is None:
            raise Unsendable(f"Version {self.name} of the protocol has no {type(request).__name__}")
        for name, default in lacking:
            if getattr(request, name) != default:
                raise Unsendable(f"In version {self.name} a {type(request).__name__} has no {name}")
        if isinstance(request, m.AppendEvents):
            if request.expected_offset is None and self.offsets:
                raise Unsendable(f"In version {self.name} an append must say where the stream ends: expected_offset")
        elif isinstance(request, m.CreateStream):
            return self._classed(request)
        return request

    def _classed(self, request: m.CreateStream) -> m.CreateStream:
        """The first versions have one class for all that is not about patients."""
        if self.old_classes and request.data_class is m.DataClass.PUBLIC:
            return msgspec.structs.replace(request, data_class=m.DataClass.NON_PHI)
        if not self.old_classes and request.data_class is m.DataClass.NON_PHI:
            return msgspec.structs.replace(request, data_class=m.DataClass.PUBLIC)
        return request


def _lacking(make: Any, known: set[str]) -> tuple[tuple[str, Any], ...]:
    """Fields of a request that a version does not have, and what stands there if nothing was said."""
    return tuple((field.name, field.default) for field in msgspec.structs.fields(make) if field.name not in known)


@cache
def version(name: str, castagnoli: bool = False) -> Version:
    return Version(name, castagnoli)
