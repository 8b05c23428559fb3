"""Texts of Felix's error frames that both sides know. The protocol has no codes: a text is all that a client gets."""

from __future__ import annotations

from typing import Final

OUTCOME_UNKNOWN: Final = "outcome unknown: the disk failed during the write, which may be stored, or not"
"""The text of a reply that does not know what became of the request: it must not be sent again, unless twice is as good
as once."""
