"""Subscribing to a stream. What is delivered, and when, is the business of `Subscriptions`."""

from __future__ import annotations

from penstock.protocols.answers import Outcome
from penstock.protocols.kimberlite import messages as m
from penstock.protocols.kimberlite.call import Call


def subscribe(call: Call, request: m.Subscribe) -> Outcome:
    return call.subscriptions.subscribe(call, request)


def credit(call: Call, request: m.SubscribeCredit) -> Outcome:
    return call.subscriptions.credit(call, request)


def unsubscribe(call: Call, request: m.Unsubscribe) -> Outcome:
    return call.subscriptions.unsubscribe(call, request)
