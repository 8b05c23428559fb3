"""Addresses of journals on Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.log.kafka.url import InvalidAddress, parse


def test_an_address_with_everything(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cret\n")
    address = parse(
        "kafka://k1:9092,[::1]:9093/orders-prod?replication=5&min_insync=3&allow_unsafe=true&delivery_seconds=4"
        f"&security.protocol=SASL_SSL&sasl.mechanism=PLAIN&sasl.username=me&sasl.password.file={secret}"
    )
    assert address.servers == "k1:9092,[::1]:9093"
    assert (address.name, address.topic) == ("orders-prod", "orders-prod.journal")
    assert (address.replication, address.min_insync, address.allow_unsafe) == (5, 3, True)
    assert address.delivery_seconds == 4
    assert address.client_options() == {
        "bootstrap.servers": "k1:9092,[::1]:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "s3cret",
    }


def test_what_an_address_does_not_say_is_safe() -> None:
    address = parse("kafka://k1:9092/a")
    assert (address.replication, address.min_insync, address.allow_unsafe) == (3, 2, False)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("http://k1:9092/a", "expected kafka://"),
        ("kafka://k1/a", "'k1' is no HOST:PORT"),
        ("kafka://k1:9092,/a", "'' is no HOST:PORT"),
        ("kafka://k1:9092", "expected a NAME"),
        ("kafka://k1:9092/a/b", "expected a NAME"),
        ("kafka://k1:9092/a b", "expected a NAME"),
        ("kafka://k1:9092/a#b", "`#`"),
        ("kafka://k1:9092/a?replicas=3", "there is no option 'replicas'; did you mean 'replication'"),
        ("kafka://k1:9092/a?sasl.password=x", "name that with sasl.password.file"),
        ("kafka://k1:9092/a?replication=0", "replication: expected a whole number from 1"),
        ("kafka://k1:9092/a?allow_unsafe=yes", "allow_unsafe: expected true or false"),
    ],
)
def test_an_address_that_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidAddress, match=problem.replace("?", "\\?")):
        parse(text)


def test_a_secret_that_cannot_be_read() -> None:
    with pytest.raises(InvalidAddress, match=r"sasl\.password\.file: /nonexistent cannot be read"):
        parse("kafka://k1:9092/a?sasl.password.file=/nonexistent").client_options()
