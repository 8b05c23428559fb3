"""Caches: `/caches`, `/caches/sessions` for its keys, `/caches/sessions/{key}`."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from penstock.admin.paging import Page, PageQuery, cut
from penstock.admin.record_view import text_of
from penstock.broker.broker import Broker
from penstock.broker.cache.cache_store import CacheName
from penstock.broker.errors import InvalidArgument
from penstock.doors.http.errors import HttpError
from penstock.doors.http.replies import Outcome, PendingHttpReply, after_commit, done, json_reply
from penstock.doors.http.router import Request, Route

MAX_BODY: Final = 2 << 20


class CacheView(msgspec.Struct):
    """A cache with entries."""

    name: str
    keys: int
    journalled: bool  # survives a restart


class CachedKeyView(msgspec.Struct):
    """A key of a cache."""

    key: str
    bytes: int  # of its value
    expires: int | None  # µs since 1970; null: never


class CachedValue(msgspec.Struct):
    """A value of a cache."""

    value: bytes  # in base64
    text: str | None  # the same, if it is UTF-8


class CachedTerms(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A value to put: in base64, or as text."""

    value: bytes | None = None
    text: str | None = None
    ttl_ms: Annotated[int, Meta(ge=1)] | None = None  # null: no expiry


class SwapTerms(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A value to put if the current one is as expected, both in base64."""

    value: bytes
    expected: bytes | None = None  # null: the key does not exist
    ttl_ms: Annotated[int, Meta(ge=1)] | None = None


class SwappedValue(msgspec.Struct):
    """The current value, in base64, and whether it is the new one."""

    stored: bool
    value: bytes | None


class IncrementTerms(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An increment of a number. A missing one starts at 0, and `ttl_ms` applies only to that."""

    by: int = 1
    ttl_ms: Annotated[int, Meta(ge=1)] | None = None


class IncrementedValue(msgspec.Struct):
    """The number under a key."""

    number: int


class CacheRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._caches = broker.caches

    def routes(self) -> tuple[Route, ...]:
        path, one = "/api/v1/caches", "/api/v1/caches/{cache}/{key}"
        return (
            Route("GET", path, self.list, "Caches of a namespace.", query=PageQuery, reply=Page[CacheView]),
            Route(
                *("GET", f"{path}/{{cache}}", self.keys, "Keys of a cache."), query=PageQuery, reply=Page[CachedKeyView]
            ),
            Route("GET", one, self.get, "The value of a key.", reply=CachedValue),
            Route("PUT", one, self.put, "Put a value.", body=CachedTerms, max_body=MAX_BODY),
            Route("DELETE", one, self.delete, "Remove a key."),
            Route(
                *(
                    "POST",
                    f"{one}/compare-and-set",
                    self.compare_and_set,
                    "Put a value if the present one is as expected.",
                ),
                body=SwapTerms,
                reply=SwappedValue,
                max_body=2 * MAX_BODY,
            ),
            Route(
                *("POST", f"{one}/increment", self.increment, "Add to the number under a key."),
                body=IncrementTerms,
                reply=IncrementedValue,
            ),
        )

    def list(self, request: Request) -> Outcome:
        caches = self._caches.list(request.identity, request.scope)
        found = cut(caches, lambda each: each[0].name, request.query)
        page = Page([CacheView(name.name, keys, journalled) for name, keys, journalled in found.items], found.next)
        return after_commit(self._broker.pending_commit, json_reply(page))

    def keys(self, request: Request) -> Outcome:
        query: PageQuery = request.query
        work = self._caches.keys(request.identity, self._name(request), query.limit, query.after)
        return work.then(lambda page: json_reply(Page([CachedKeyView(*each) for each in page.keys], page.next)))

    def get(self, request: Request) -> Outcome:
        cache = self._name(request)
        value = self._caches.get(request.identity, cache, request.names["key"])
        if value is None:
            raise HttpError(404, "key_not_cached", "The cache has no such key")
        return PendingHttpReply(self._caches.settled(cache), json_reply(CachedValue(value, text_of(value))))

    def put(self, request: Request) -> Outcome:
        body: CachedTerms = request.body
        if (body.value is None) is (body.text is None):
            raise InvalidArgument("give 'value' or 'text'")
        value = (body.text or "").encode() if body.value is None else body.value
        cache = self._name(request)
        group = self._caches.put(request.identity, cache, request.names["key"], value, body.ttl_ms)
        self._note(request, "put")
        return done(group)

    def delete(self, request: Request) -> Outcome:
        there, group = self._caches.delete(request.identity, self._name(request), request.names["key"])
        if not there:
            raise HttpError(404, "key_not_cached", "The cache has no such key")
        self._note(request, "delete")
        return done(group)

    def _note(self, request: Request, action: str) -> None:
        if request.by_hand:
            resource = f"{request.names['cache']}/{request.names['key']}"
            self._broker.audit.note(
                request.identity, f"cache.{action}", scope=request.scope, resource=resource, action=action
            )

    def compare_and_set(self, request: Request) -> Outcome:
        body: SwapTerms = request.body
        stored, present, group = self._caches.compare_and_set(
            *(request.identity, self._name(request), request.names["key"]), body.expected, body.value, body.ttl_ms
        )
        return PendingHttpReply(group, json_reply(SwappedValue(stored, present)))

    def increment(self, request: Request) -> Outcome:
        body: IncrementTerms = request.body
        number, group = self._caches.increment(
            request.identity, self._name(request), request.names["key"], body.by, body.ttl_ms
        )
        return PendingHttpReply(group, json_reply(IncrementedValue(number)))

    def _name(self, request: Request) -> CacheName:
        return self._caches.name(request.tenant, request.namespace, request.names["cache"])
