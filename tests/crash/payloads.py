"""Payloads that show whose they are, and that they are whole."""

from __future__ import annotations

from zlib import crc32


def payload_of(record: str, size: int) -> bytes:
    body = f"{record}|".encode().ljust(size, b".")
    return body + b"%08x" % crc32(body)


def id_of(payload: bytes) -> str:
    body, checksum = payload[:-8], payload[-8:]
    if checksum != b"%08x" % crc32(body):
        return f"damaged {payload[:40]!r}"
    return body.partition(b"|")[0].decode()
