"""The matrix: what each way in wrote, each way out shows, with the same offset, key, value, time and order: from the
journal, after a kill, and from tables. `docs/conformance.md` shows it; `make matrix` writes it there."""

from __future__ import annotations

import pytest
from tests.matrix.observations import PHASES, Observations, Written, observed
from tests.matrix.readers import READERS, Reader, Row
from tests.matrix.writers import WRITERS, Place

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Observations:
    return observed(tmp_path_factory.mktemp("matrix"))


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("writer", WRITERS)
def test_cell(seen: Observations, writer: str, reader: str, phase: str) -> None:
    check_all(seen, writer, reader, phase)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("reader", READERS)
def test_names_of_topics(seen: Observations, reader: str, phase: str) -> None:
    """Names that look like others, or like something else, are those of their own records only."""
    check_all(seen, "names", reader, phase)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("reader", READERS)
def test_gaps(seen: Observations, reader: str, phase: str) -> None:
    """Expired records are skipped, or reported, and the records behind them have the same offset everywhere."""
    check_all(seen, "gaps", reader, phase)


def check_all(seen: Observations, writer: str, reader: str, phase: str, kind: type[Reader] | None = None) -> None:
    kind = kind or READERS[reader]
    if phase not in kind.phases:
        return  # a table is read when there is one
    assert seen.places(writer, kind, phase)
    for topic, place in seen.places(writer, kind, phase):
        found = [row for row in seen.rows(phase, reader, place) if not (row.told and topic.offsets)]
        if kind.partitions:
            check(found, expected(seen, topic, place, kind), place)
        elif place.partition == 0:
            check_queue(found, topic, place)


def expected(seen: Observations, topic: Written, place: Place, kind: type[Reader]) -> list[Row]:
    """The expected output of this way out for a partition."""
    shows = kind.shows
    return [
        Row(
            (topic.offsets[at] if topic.offsets else at) if "offset" in shows else None,
            kind.value(entry.value),
            kind.key(entry.key) if "key" in shows else None,
            seen.times[place][at] if "timestamp" in shows else None,
            entry.headers if "headers" in shows else None,
        )
        for at, entry in enumerate(topic.records[place])
    ]


def check(found: list[Row], due: list[Row], place: Place) -> None:
    assert [row.offset for row in found] == [row.offset for row in due], place
    for one, other in zip(found, due, strict=True):
        if one != other:  # not shown as a whole: some are long
            for name in Row._fields:
                assert str(getattr(one, name))[:300] == str(getattr(other, name))[:300], (place, one.offset, name)
            raise AssertionError(f"{place}: the record at {one.offset} differs behind its beginning")


def check_queue(found: list[Row], topic: Written, place: Place) -> None:
    """Of several partitions: all of each, in its order."""
    by_partition = [[entry.value for entry in records] for records in topic.records.values()]
    values = [row.value for row in found]
    assert len(values) == sum(map(len, by_partition)) - topic.unseen, place
    if topic.unseen or len(by_partition) == 1:
        assert (values == by_partition[0][topic.unseen :]) is True
        return
    for due in by_partition:
        assert [value for value in values if value in due] == due
