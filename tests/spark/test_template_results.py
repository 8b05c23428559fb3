"""The template's continuous pipeline on a broker that got its events through five protocols: its tables against a
computation in plain Python on the same records, with broken, repeated and late ones, and a new column in the middle."""

from __future__ import annotations

import json
import random
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from tests.cli.test_up import FELIX, FLIGHT
from tests.launcher import BrokerProcess
from tests.spark import shop
from tests.spark.java import needs_java
from tests.spark.query import with_state

from penstock.cli.generator import DOORS, Doors, Shop
from penstock.spark.pipelines import continuous
from penstock.spark.pipelines.project import Project, load
from penstock.spark.pipelines.report import write_report
from penstock.transport.endpoint import Endpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [needs_java, pytest.mark.spark]

BEGIN = datetime(2026, 3, 1, 10, tzinfo=UTC).timestamp()
SHOP_MINUTES = 4
TIMES = {"orders": "ordered_at", "page_views": "viewed_at", "payments": "paid_at"}
BAD = (b"not json", b'{"order_id": "without a time"}', b"\xff\xfe")

Event = dict[str, Any]


def test_the_books_are_right(spark: SparkSession, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", *FLIGHT, *FELIX, PENSTOCK_KIMBERLITE__TENANTS="1=default").ready() as broker:
        project = shop.project(tmp_path / "shop", "continuous", broker.address("flight"))
        file = project / "pipeline.toml"
        file.write_text(file.read_text().replace('trigger = "5 seconds"', 'trigger = "once"'))
        pipeline = load(str(project), {})
        doors = Doors({name: Endpoint(*broker.endpoint(name)) for name in DOORS})
        try:
            sent = Sent(doors)
            sent.minutes(0, 2)
            run(spark, pipeline)
            events = project / "events.py"  # a column more, from now on
            events.write_text(events.read_text().replace(" via string", " via string, coupon string", 1))
            late = sent.order(BEGIN, order_id="late", coupon="X")
            sent.minutes(2, SHOP_MINUTES, coupon="SPRING")
            sent.far_ahead()
            run(spark, pipeline)
        finally:
            doors.end()
        check(pipeline, sent, late)
        dropped = Counter(shop.values(broker, "shop.dead_letters"))
        assert dropped == Counter(raw for kind in TIMES for raw in sent.bad(kind)) and dropped.keys() >= set(BAD)
        for name in ("revenue", "sessions", "funnel", "anomalies"):
            told = [json.loads(value, parse_float=Decimal) for value in shop.values(broker, name)]
            assert len(told) == len(rows(pipeline, f"gold_{name}")) > 0
        page = Path(write_report(pipeline)).read_text()
        assert page.count("<svg") == 5 and "sells something" in page and "nothing yet" not in page


class Sent:
    """Events of the shop, as they were sent. Times are the shop's own, so that results are known."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._shop = Shop(random.Random(5), late=0)
        self.raw: dict[str, list[bytes]] = defaultdict(list)
        doors.create_topics()

    def minutes(self, first: int, last: int, **more: str) -> None:
        for second in range(first * 60, last * 60, 5):
            at = BEGIN + second
            orders = [self._changed(self._shop.order(at), **more) for _ in range(4)]
            self._send("orders", [*orders, orders[0], *(BAD if second % 60 == 0 else ())])
            for send, via in (
                (self._doors.web_views, "flymq"),
                (self._doors.app_views, "blipmq"),
                (self._doors.screen_views, "felix"),
            ):
                views = [self._shop.page_view(at, via) for _ in range(2)]
                send(views)
                self.raw["page_views"] += [value for _, value in views]
            paid = self._shop.payments(at + 3)
            self._send("payments", [*paid, *paid[:1]])

    def order(self, at: float, **more: str) -> str:
        event = json.loads(self._shop.order(at)) | more
        self._send("orders", [json.dumps(event).encode()])
        return str(event["order_id"])

    def far_ahead(self) -> None:
        """An event of each kind an hour later: then everything before is over."""
        at = BEGIN + 3600
        self._send("orders", [self._good(lambda: self._shop.order(at))])
        views = [(b"", self._good(lambda: self._shop.page_view(at, "flymq")[1])) for _ in range(1)]
        self._doors.web_views(views)
        self.raw["page_views"] += [value for _, value in views]
        self._send("payments", self._shop.payments(at))

    def good(self, kind: str, name: str) -> Iterator[Event]:
        """Each event that can be read, once."""
        seen = set()
        for raw in self.raw[kind]:
            event = parsed(raw)
            if event is not None and TIMES[kind] in event and event[name] not in seen:
                seen.add(event[name])
                yield event

    def bad(self, kind: str) -> list[bytes]:
        """Records that are no events: the shop has more of them than this test adds."""
        return [raw for raw in self.raw[kind] if TIMES[kind] not in (parsed(raw) or {})]

    def _send(self, kind: str, values: list[bytes]) -> None:
        getattr(self._doors, kind)(values)
        self.raw[kind] += values

    @staticmethod
    def _good(make: Any) -> bytes:
        while parsed(event := make()) is None or b"_at" not in event:
            pass
        return bytes(event)

    @staticmethod
    def _changed(event: bytes, **more: str) -> bytes:
        known = parsed(event)
        if known is None or "quantity" not in known:
            return BAD[0]
        return json.dumps(json.loads(event) | more).encode()


def parsed(raw: bytes) -> Event | None:
    try:
        event = json.loads(raw, parse_float=Decimal)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def run(spark: SparkSession, project: Project) -> None:
    """As the runner does: all queries, until they have taken what is there, and windows that are over have ended."""
    try:
        with with_state(spark):
            continuous.run(spark, project, threading.Event(), lambda _: None)
    finally:
        sys.path.remove(project.directory)
        for name in ("events", "gold"):
            del sys.modules[name]


def rows(project: Project, table: str) -> list[dict[str, Any]]:
    return list(DeltaTable(project.table(table)).to_pyarrow_table().to_pylist())


def minute(text: str) -> datetime:
    return datetime.fromisoformat(text[:16] + ":00+00:00")


def check(project: Project, sent: Sent, late: str) -> None:
    kept = rows(project, "bronze")
    assert Counter(row["value"] for row in kept) == Counter(raw for raws in sent.raw.values() for raw in raws)
    assert len({(row["topic"], row["partition"], row["offset"]) for row in kept}) == len(kept)
    assert {row["tenant"] for row in kept} == {"default"}
    assert {row["door"] for row in kept} == {*DOORS}
    told = {(row["door"], event["via"]) for row in kept if "via" in (event := parsed(row["value"]) or {})}
    assert told == {(name, name) for name in DOORS}  # each event tells how it was sent

    orders = {event["order_id"]: event for event in sent.good("orders", "order_id")}
    del orders[late]
    views = list(sent.good("page_views", "view_id"))
    payments = list(sent.good("payments", "payment_id"))
    silver = rows(project, "silver_orders")
    assert sorted(row["order_id"] for row in silver) == sorted(orders)
    assert Counter(row["coupon"] for row in silver) == Counter(event.get("coupon") for event in orders.values())
    assert sorted(row["view_id"] for row in rows(project, "silver_page_views")) == sorted(v["view_id"] for v in views)
    check_gold(project, list(orders.values()), views, payments)

    broken = Counter({(row["dataset"], row["rule"]): 0 for row in rows(project, "bronze_quality")})
    for row in rows(project, "bronze_quality"):
        broken[row["dataset"], row["rule"]] += row["broke"]
    for kind in TIMES:
        assert broken[kind, "has an id and a time"] == len(sent.bad(kind))
    batches = Counter((row["batch"], row["dataset"], row["rule"]) for row in rows(project, "bronze_quality"))
    assert set(batches.values()) == {1}


def check_gold(project: Project, orders: list[Event], views: list[Event], payments: list[Event]) -> None:
    """Of all minutes but that which is an hour ahead."""
    over = minute("2026-03-01T10:30")
    revenue: dict[tuple[datetime, str], list[Decimal]] = defaultdict(list)
    for order in orders:
        revenue[minute(order["ordered_at"]), order["product"]].append(order["quantity"] * order["price"])
    expected = {key: (len(sums), sum(sums)) for key, sums in revenue.items() if key[0] < over}
    assert {(r["minute"], r["product"]): (r["orders"], r["revenue"]) for r in rows(project, "gold_revenue")} == expected

    steps: dict[datetime, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name, found, time in (("ordered", orders, "ordered_at"), ("paid", payments, "paid_at")):
        for event in found:
            steps[minute(event[time])][name].add(event["customer"])
    for view in views:
        steps[minute(view["viewed_at"])]["cart" if view["page"] == "/cart" else "looked"].add(view["customer"])
    names = ("looked", "cart", "ordered", "paid")
    expected_steps = {at: tuple(len(found[name]) for name in names) for at, found in steps.items() if at < over}
    told = {row["minute"]: tuple(row[name] for name in names) for row in rows(project, "gold_funnel")}
    assert told == expected_steps

    check_sessions(project, views, over)
    check_anomalies(project, orders, payments, over)


def check_sessions(project: Project, views: list[Event], over: datetime) -> None:
    by_customer: dict[str, list[datetime]] = defaultdict(list)
    for view in views:
        by_customer[view["customer"]].append(datetime.fromisoformat(view["viewed_at"].replace("Z", "+00:00")))
    gap = timedelta(seconds=30)
    expected = Counter[tuple[str, datetime, int]]()
    for customer, times in by_customer.items():
        visit: list[datetime] = []
        for at in [*sorted(times), None]:
            if visit and (at is None or at > visit[-1] + gap):
                if visit[0] < over:
                    expected[customer, visit[0], len(visit)] += 1
                visit = []
            if at is not None:
                visit.append(at)
    assert Counter((r["customer"], r["began"], r["views"]) for r in rows(project, "gold_sessions")) == expected


def check_anomalies(project: Project, orders: list[Event], payments: list[Event], over: datetime) -> None:
    paid = {payment["order_id"]: payment["amount"] for payment in payments}
    expected = Counter[tuple[datetime, str]]()
    for order in orders:
        at = minute(order["ordered_at"])
        due = order["quantity"] * order["price"]
        if at < over and paid.get(order["order_id"]) != due:
            expected[at, "wrong amount" if order["order_id"] in paid else "unpaid"] += 1
    assert {(r["minute"], r["anomaly"]): r["orders"] for r in rows(project, "gold_anomalies")} == expected
