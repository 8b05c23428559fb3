"""JSON and MessagePack to typed values, from any thread.

The first time that msgspec meets a type it reads the type's fields, and meanwhile another thread may run. If that one
decodes the same type, it finds a description that is only half there, and the process crashes. So the decoder of a
type is made once, by one thread at a time, and kept.
"""

from __future__ import annotations

import threading
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

_MAKING: Final = threading.Lock()
_JSON: Final[dict[Any, msgspec.json.Decoder[Any]]] = {}
_MSGPACK: Final[dict[Any, msgspec.msgpack.Decoder[Any]]] = {}


def decode_json(data: bytes | str, kind: type[T]) -> T:
    """As `msgspec.json.decode`."""
    decoder = _JSON.get(kind)
    if decoder is None:
        with _MAKING:
            decoder = _JSON[kind] = _JSON.get(kind) or msgspec.json.Decoder(kind)
    return decoder.decode(data)  # type: ignore[no-any-return]


def decode_msgpack(data: bytes, kind: type[T]) -> T:
    """As `msgspec.msgpack.decode`."""
    decoder = _MSGPACK.get(kind)
    if decoder is None:
        with _MAKING:
            decoder = _MSGPACK[kind] = _MSGPACK.get(kind) or msgspec.msgpack.Decoder(kind)
    return decoder.decode(data)  # type: ignore[no-any-return]
