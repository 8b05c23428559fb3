"""Tables in memory, made of closed journal files as the real builder makes them, and read as the engine's past."""

from __future__ import annotations

from tests.log.harness import PLENTY

from penstock.log.batch import RecordSlice
from penstock.log.engine import ClosedFile, Engine, PartitionId


class MemoryTable:
    def __init__(self) -> None:
        self.parts: dict[PartitionId, list[RecordSlice]] = {}
        self.failure: Exception | None = None  # instead of an answer
        self.reads = 0
        self.closed = False

    def end(self, partition: PartitionId) -> int:
        parts = self.parts.get(partition)
        return parts[-1].end_offset if parts else 0

    def build(self, engine: Engine, file: ClosedFile) -> dict[PartitionId, int]:
        """Take what it does not have yet, as one commit; up to where it has each partition then."""
        added: list[tuple[PartitionId, RecordSlice]] = []
        for partition, span in file.spans.items():
            at = max(span.first, self.end(partition))
            if at > self.end(partition):
                assert at <= engine.bounds(partition).start, "a gap in the table"
            while at < span.end:
                for part in engine.read(partition, at, PLENTY, PLENTY).run():
                    if part.base_offset < span.end:
                        kept = part.between(part.base_offset, min(part.end_offset, span.end))
                        added.append((partition, kept))
                        at = kept.end_offset
        for partition, part in added:
            self.parts.setdefault(partition, []).append(part)
        return {partition: max(span.end, self.end(partition)) for partition, span in file.spans.items()}

    def drop_below(self, partition: PartitionId, start: int) -> None:
        kept = [part for part in self.parts.get(partition, ()) if part.end_offset > start]
        if kept:
            self.parts[partition] = kept

    # -- `Past`

    def read(
        self, partition: PartitionId, offset: int, end: int, max_bytes: int, max_records: int
    ) -> list[RecordSlice]:
        if self.failure is not None:
            raise self.failure
        self.reads += 1
        found: list[RecordSlice] = []
        for part in self.parts.get(partition, ()):
            if not part.base_offset <= offset < min(part.end_offset, end):
                continue
            taken = part.batch.slice(offset, min(part.end_offset, end), max_bytes, max_records)
            if found and taken.byte_size() > max_bytes:
                break
            found.append(taken)
            offset = taken.end_offset
            max_bytes -= taken.byte_size()
            max_records -= len(taken)
            if max_bytes <= 0 or max_records <= 0:
                break
        return found

    def offset_at(self, partition: PartitionId, timestamp: int, start: int) -> int | None:
        if self.failure is not None:
            raise self.failure
        for part in self.parts.get(partition, ()):
            if part.end_offset > start:
                found = part.between(max(start, part.base_offset), part.end_offset).first_at(timestamp)
                if found is not None:
                    return found
        return None

    def close(self) -> None:
        self.closed = True
