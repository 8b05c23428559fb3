"""A program of somebody who uses the original's Python client: `python kimberlite_wheel.py VERSION ADDRESS`.

It runs in an environment with that version and nothing else, and knows nothing of the broker's code.
"""

# mypy: ignore-errors

from __future__ import annotations

import sys
from importlib.metadata import version as installed

from kimberlite import Client, DataClass, KimberliteError, Value

version, address = sys.argv[1:]
assert installed("kimberlite") == version


def refused(work) -> bool:
    try:
        work()
    except KimberliteError:
        return True
    return False


def cells(result) -> list[list[object]]:
    return [[value.data for value in row] for row in result.rows]


def streams(client: Client) -> None:
    stream = client.create_stream("events", DataClass.PUBLIC)
    assert client.create_stream("events", DataClass.PUBLIC) == stream
    assert refused(lambda: client.create_stream("events", DataClass.PHI))
    old = client.create_stream("old", DataClass.NON_PHI)
    assert client.create_stream("old", DataClass.PUBLIC) == old
    events = [b"%d" % number + b"." * number for number in range(200)]
    assert client.append(stream, events) == 0
    assert refused(lambda: client.append(stream, [b"late"]))
    assert client.append(stream, [b"more"], len(events)) == len(events)
    found: list[bytes] = []
    while page := client.read(stream, len(found)):
        found += [event.data for event in page]
    assert found == [*events, b"more"]
    with client.subscribe(stream, from_offset=195) as subscription:
        taken = [subscription.next_event() for _ in range(6)]
    assert [(event.offset, event.data) for event in taken] == [(at, found[at]) for at in range(195, 201)]


def tables(client: Client) -> None:
    client.execute("CREATE TABLE people (id BIGINT PRIMARY KEY, name TEXT)")
    assert refused(lambda: client.execute("CREATE TABLE people (id BIGINT)"))
    insert = "INSERT INTO people (id, name) VALUES ($1, $2)"
    first = client.execute(insert, [Value.bigint(1), Value.text("Ada")])
    assert refused(lambda: client.execute(insert, [Value.bigint(1), Value.text("again")]))
    client.execute(insert, [Value.bigint(2), Value.null()])
    assert cells(client.query("SELECT * FROM people ORDER BY id")) == [[1, "Ada"], [2, None]]
    assert cells(client.query_at("SELECT * FROM people", None, first.log_offset)) == [[1, "Ada"]]
    assert client.query("SELECT COUNT(*) FROM people").columns == ["COUNT(*)"]
    assert "people" in {table.name for table in client.admin.list_tables()}
    client.execute("DROP TABLE people")
    assert refused(lambda: client.query("SELECT * FROM people"))
    assert "people" not in {table.name for table in client.admin.list_tables()}
    client.execute("CREATE TABLE people (id BIGINT)")
    assert cells(client.query("SELECT * FROM people")) == []
    assert cells(client.query_at("SELECT * FROM people", None, first.log_offset)) == [[1, "Ada"]]


with Client.connect([address], 42) as client:
    streams(client)
    tables(client)
    assert client.admin.server_info().build_version.startswith("penstock")
print("done", version)
