"""A broker's worth of demo data for the console, made through the administration API: the shop of `penstock up`, with
something of everything that a screen shows."""

from __future__ import annotations

import base64
import json
import random
import time
import urllib.request
from typing import Any

from penstock.cli.generator import Shop

ORDER_SCHEMA = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}, "quantity": {"type": "integer"}, "price": {"type": "number"}},
    "required": ["order_id", "quantity"],
}


class Api:
    """The administration API at one address."""

    def __init__(self, url: str, login: tuple[str, str] | None = None) -> None:
        self._url = f"{url}/api/v1"
        self._login = login

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(self._url + path, method=method)
        request.add_header("Content-Type", "application/json")
        if self._login is not None:
            token = base64.b64encode(":".join(self._login).encode()).decode()
            request.add_header("Authorization", f"Basic {token}")
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(request, data, timeout=30) as reply:
            return json.load(reply)


def encoded(document: Any) -> str:
    return base64.b64encode(json.dumps(document).encode()).decode()


def fill(api: Api, records: int = 600) -> None:
    """Topics with records, a group that is behind, dead letters, schemas, users, keys, delayed records, a cache."""
    chance = random.Random(7)
    shop, now = Shop(chance), time.time()
    api("POST", "/schemas/order", {"kind": "json", "definition": encoded(ORDER_SCHEMA)})
    wider = ORDER_SCHEMA | {"properties": {**ORDER_SCHEMA["properties"], "customer": {"type": "string"}}}  # type: ignore[dict-item]
    api("PUT", "/schemas/order", {"mode": "none"})
    api("POST", "/schemas/order", {"kind": "json", "definition": encoded(wider)})
    settings = {"schema": "order", "rejected": "dead-letter"}
    api("POST", "/topics", {"name": "orders", "partitions": 2, "settings": settings})
    api("POST", "/topics", {"name": "page_views", "partitions": 2})
    api("POST", "/topics", {"name": "payments", "settings": {"retention_seconds": 86_400}})
    append(api, "orders", shop_orders(records))
    views = [shop.page_view(now - records + index) for index in range(records)]
    append(api, "page_views", [{"key_text": key.decode(), "value_text": value.decode()} for key, value in views])
    append(api, "payments", [payment(chance, index) for index in range(records // 2)])
    api("POST", "/groups/billing/orders/offsets", {"to": "latest"})
    api("POST", "/groups/warehouse/orders/offsets", {"offset": records // 8})
    api("POST", "/groups/analytics/page_views/offsets", {"to": "earliest"})
    for minutes in (300, 600, 1_200):  # not due while tests look at these topics
        record = {"key_text": "reminder", "value_text": '{"send": "reminder"}', "delay_ms": minutes * 60_000}
        api("POST", "/topics/payments/records", {"records": [record]})
    for key in ("basket-17", "basket-23", "basket-42"):
        api("PUT", f"/caches/baskets/{key}", {"text": json.dumps({"items": chance.randint(1, 9)})})
    api("POST", "/users", {"name": "grace", "password": "a long demo word", "roles": ["consumer"]})
    api("POST", "/users", {"name": "linus", "password": "another demo word", "roles": ["producer"]})
    api("POST", "/keys", {"name": "warehouse", "permissions": ["read", "commit"]})
    api("PUT", "/acls/payments", {"users": ["grace"], "restrict": True})


def shop_orders(count: int, seed: int = 7) -> list[dict[str, Any]]:
    """Of the last seconds; some do not fit the schema, as in life."""
    shop, now = Shop(random.Random(seed)), time.time()
    values = [shop.order(now - count + index).decode() for index in range(count)]
    return [{"key_text": f"customer-{index % 200}", "value_text": value} for index, value in enumerate(values)]


def payment(chance: random.Random, index: int) -> dict[str, Any]:
    failed = chance.random() < 0.1
    value = {
        "payment_id": f"{chance.getrandbits(48):012x}",
        "amount": round(chance.uniform(3, 900), 2),
        "status": "failed" if failed else "settled",
        "card": {"brand": chance.choice(["visa", "amex"]), "country": chance.choice(["DE", "FR", "US"])},
        "error": {"code": "card_declined", "retry": True} if failed else None,
    }
    headers = [{"name": "trace", "text": f"{chance.getrandbits(32):08x}"}, {"name": "source", "text": "checkout"}]
    return {"key_text": f"payment-{index}", "value_text": json.dumps(value), "headers": headers}


def append(api: Api, topic: str, records: list[dict[str, Any]]) -> None:
    for start in range(0, len(records), 200):
        api("POST", f"/topics/{topic}/records", {"records": records[start : start + 200]})
