"""The drawings: file name in docs/pictures/ → the function that draws it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from scripts.pictures.canvas import Canvas

DIRECTORY: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures"

DOORS: Final = (
    ("RustLog", "topics, partitions", "TCP 9092"),
    ("FlyMQ", "groups, transactions", "TCP 9092"),
    ("BlipMQ", "work queues", "TCP 5555"),
    ("Kimberlite", "tenants, SQL", "TCP 5432"),
    ("Felix", "fan-out, cache", "QUIC 5000"),
)


def overview() -> str:
    """One log, five doors, and everything that reads it."""
    canvas = Canvas(860, 430, "One log behind five doors: clients of five protocols write and read the same records")
    canvas.text(430, 34, "penstock.connect(), the command line, or any client of the five protocols",
                "label", "middle")  # fmt: skip
    for number, (name, about, port) in enumerate(DOORS):
        x = 20 + number * 166
        canvas.arrow((x + 78, 48), (x + 78, 72))
        canvas.box(x, 74, 156, 74, name, about, port, kind="door")
        canvas.arrow((x + 78, 150), (x + 78, 186))
    canvas.box(20, 188, 820, 70, "one durable log",
               "a record that one door stores is the same record at every other door: offset, key, value, headers",
               kind="log")  # fmt: skip
    below = (
        ("Delta tables", "Parquet files", "disk or object store"),
        ("SQL", "every topic is a table", "as of any position"),
        ("Arrow Flight", "columns for programs", "gRPC 8815"),
        ("Spark", "source, sink, pipelines", "exactly once"),
        ("HTTP", "API, health, metrics", "TCP 8080"),
    )
    for number, (name, *lines) in enumerate(below):
        x = 20 + number * 166
        canvas.arrow((x + 78, 260), (x + 78, 296))
        canvas.box(x, 298, 156, 74, name, *lines, kind="out")
    canvas.text(430, 404, "one broker, one data directory, one set of users, roles and access lists", "small", "middle")
    return canvas.svg()


def durability() -> str:
    """The way of an acknowledgement."""
    canvas = Canvas(860, 330, "The way of an acknowledgement: a reply leaves after its commit group is on disk")
    steps = (
        ("client", "sends a record", "box"),
        ("door", "checks access", "door"),
        ("log", "gives it an offset", "log"),
        ("commit group", "appends of one turn", "log"),
        ("disk", "write, fdatasync", "disk"),
    )
    for number, (name, about, kind) in enumerate(steps):
        canvas.box(20 + number * 168, 70, 148, 66, name, about, kind=kind)
        if number:
            canvas.arrow((number * 168, 103), (18 + number * 168, 103))
    canvas.text(24, 44, "1. the record goes in", "label")
    canvas.text(514, 160, "not readable and not acknowledged yet", "small", "middle")
    canvas.arrow((766, 138), (766, 236), (598, 236), kind="reply")
    canvas.box(448, 204, 148, 66, "committed", "readers see the record", kind="out")
    canvas.arrow((446, 236), (262, 236), kind="reply")
    canvas.box(112, 204, 148, 66, "acknowledged", "all replies of the group", kind="out")
    canvas.arrow((110, 236), (60, 236), (60, 140), kind="reply")
    canvas.text(776, 190, "synced", "small")
    canvas.text(24, 306, "2. the reply leaves when the group is on disk. After a failed sync it is an error.")
    return canvas.svg()


def pipeline() -> str:
    """What `make up` starts."""
    canvas = Canvas(920, 400, "What make up starts: a generator, the broker, and a pipeline on Spark")
    canvas.box(20, 150, 130, 70, "generator", "a small shop", kind="box")
    doors = (("RustLog", 105), ("FlyMQ", 195), ("BlipMQ", 195), ("Felix", 195), ("Kimberlite", 285))
    for at, (door, middle) in enumerate(doors):
        y = 30 + at * 64
        canvas.box(196, y, 110, 48, door, kind="door")
        canvas.arrow((152, 185), (194, y + 24))
        canvas.arrow((308, y + 24), (352, middle))
    canvas.group(340, 40, 170, 300, "the broker's log")
    for y, topic in ((75, "orders"), (165, "page_views"), (255, "payments")):
        canvas.box(354, y, 142, 60, topic, "topic", kind="log")
        canvas.arrow((498, y + 30), (552, 185))
    canvas.box(554, 150, 116, 70, "Spark", "rules, windows", kind="out")
    for y, name, about in (
        (24, "bronze", "every record, raw"),
        (104, "silver_…", "typed, each event once"),
        (184, "gold_…", "by minute and session"),
        (264, "revenue, funnel, …", "topics of results"),
    ):
        canvas.box(720, y, 184, 64, name, about, kind="log" if "topics" in about else "out")
        canvas.arrow((672, 185), (718, y + 32))
    canvas.box(554, 300, 116, 60, "dead letters", "topic", kind="disk")
    canvas.arrow((612, 222), (612, 298))
    canvas.text(24, 380, "From the topics on, every record counts exactly once, whichever process is killed.", "label")
    return canvas.svg()


LAYERS: Final = (
    (("cli", "commands", "box"),),
    (("server", "the broker process", "box"), ("mirror", "copies topics", "out")),
    (("config", "keys and layers", "box"), ("connection", "penstock.connect", "out")),
    (("admin", "HTTP", "box"), ("workers", "beside the broker", "box"), ("transport", "sockets", "box"),
     ("conformance", "vectors", "out"), ("spark", "source, sink", "out")),
    (("doors", "the server side", "door"), ("clients", "the client side", "door"), ("sql", "a library", "box"),
     ("flight", "the log as Arrow", "box")),
    (("wire", "bytes and messages", "door"), ("broker", "topics, groups, queues, access, state", "log")),
    (("log", "segments, commit groups, recovery, tables", "log"),),
)  # fmt: skip


def layers() -> str:
    """Packages in rows, each above those that it imports."""
    canvas = Canvas(860, 502, "The packages of Penstock: each imports only packages of rows below its own")
    for number, row in enumerate(LAYERS):
        width = (820 - 12 * (len(row) - 1)) / len(row)
        for at, (name, about, kind) in enumerate(row):
            canvas.box(20 + at * (width + 12), 20 + number * 64, width, 52, name, about, kind=kind)
    note = "a package imports only packages of rows below its own; the table has the whole list"
    canvas.text(430, 486, note, "small", "middle")
    return canvas.svg()


DRAWINGS: Final[dict[str, Callable[[], str]]] = {
    "overview.svg": overview,
    "durability.svg": durability,
    "layers.svg": layers,
    "pipeline.svg": pipeline,
}
