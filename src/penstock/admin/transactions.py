"""Open transactions: `/transactions`, for a tenant's administrators."""

from __future__ import annotations

import msgspec

from penstock.admin.paging import Page, PageQuery, cut
from penstock.broker.broker import Broker
from penstock.doors.http.replies import Outcome, after_commit, done, json_reply
from penstock.doors.http.router import Request, Route


class TransactionView(msgspec.Struct):
    """An open transaction."""

    id: str
    state: str  # active or committing
    began: int  # µs since 1970
    records: int
    bytes: int
    topics: list[str]


class TransactionRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> tuple[Route, ...]:
        path = "/api/v1/transactions"
        return (
            Route("GET", path, self.list, "Open transactions.", query=PageQuery, reply=Page[TransactionView]),
            Route(
                *("DELETE", f"{path}/{{transaction}}", self.abort, "Roll a transaction back, whosever it is."),
                audit="transaction.abort",
            ),
        )

    def list(self, request: Request) -> Outcome:
        transactions = self._broker.transactions.open_in(request.identity, request.scope)
        found = cut(transactions, lambda each: each.id, request.query)
        page = Page([TransactionView(*each) for each in found.items], found.next)
        return after_commit(self._broker.pending_commit, json_reply(page))

    def abort(self, request: Request) -> Outcome:
        self._broker.transactions.abort(request.identity, request.scope, request.names["transaction"])
        return done(self._broker.pending_commit)
