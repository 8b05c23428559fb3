"""Routes: a table of methods and paths with their handlers.

A route's path is a template: `/topics/{topic}/records`. Its query parameters and its body are msgspec structs, decoded
before its handler is called: handlers get values with the right types and within their bounds, and API documentation
can be generated from the table. Every request to a route has an identity: see `login`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias, get_args, get_origin
from urllib.parse import parse_qsl, unquote_to_bytes, urlsplit

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.errors import AccessDenied, InvalidName
from penstock.broker.names import DEFAULT_SCOPE, Scope, scope
from penstock.broker.runtime.executor import Deferred
from penstock.broker.security.access import Identity
from penstock.doors.http.errors import HttpError, problem
from penstock.doors.http.login import Login
from penstock.doors.http.rebinding import refuse_rebound_name
from penstock.doors.http.replies import JSON, HttpReply, Outcome
from penstock.doors.http.request import AcceptedRequest, Admission, RequestHead
from penstock.typed_decoding import decode_json

SAFE_METHODS: Final = ("GET", "HEAD")
CUSTOM_HEADER: Final = "x-requested-with"
MAX_BODY: Final = 64 << 10
MAX_UNAUTHENTICATED_BODY: Final = 64 << 10  # of a request without a login


class NoParameters(msgspec.Struct, forbid_unknown_fields=True):
    """The query parameters of a route that has none but the tenant."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as passed to its handler."""

    identity: Identity
    tenant: str
    namespace: str
    names: Mapping[str, str]  # values of the template's parameters
    query: Any  # of the route's type `query`
    body: Any  # of the route's type `body`; bytes if that is None
    accept: str = ""
    enforced: bool = False  # security is on
    named_tenant: str | None = None  # in the request, if any
    login: Login | None = None  # of its connection
    by_hand: bool = False  # sent by a browser: its changes to data are audited, unlike those of programs

    @property
    def scope(self) -> Scope:
        return scope(self.tenant, self.namespace)


Handler: TypeAlias = Callable[[Request], Outcome]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    method: str
    path: str
    handler: Handler
    summary: str
    query: type[msgspec.Struct] = NoParameters
    body: type[Any] | None = None
    reply: Any = None  # the type of the reply's JSON document
    status: int = 200
    audit: str = ""  # type of the audit event for failed attempts
    changes: bool | None = None  # whether it changes something; None: depends on the method
    max_body: int = MAX_BODY
    content: tuple[str, ...] = (JSON,)  # media types of the reply

    @property
    def name(self) -> str:
        """Its name in the API documentation, from its handler's name and the class of that."""
        owner = getattr(self.handler, "__self__", None)
        noun = re.sub(r"(?<!^)(?=[A-Z])", "_", type(owner).__name__.removesuffix("Routes")).lower()
        return f"{noun}_{self.handler.__name__}" if owner is not None else self.handler.__name__

    @property
    def mutates(self) -> bool:
        return self.method not in SAFE_METHODS if self.changes is None else self.changes


@dataclass(slots=True)
class _Node:
    """The routes of a path, and the path segments below it."""

    routes: dict[str, Route] = field(default_factory=dict)
    literals: dict[str, _Node] = field(default_factory=dict)
    parameter: tuple[str, _Node] | None = None


class Router:
    """Answers the requests of a session by a table of routes."""

    def __init__(
        self,
        broker: Broker,
        routes: Iterable[Route],
        missing: str = "there is nothing at this path",
        enforced: bool | None = None,
        *,
        bodies: Collection[str] = (JSON,),
        forgeable: Collection[str] | None = None,
    ) -> None:
        """`enforced`: whether handlers see security as on; None: the actual value. A request that changes something
        must have a body of one of the types `bodies`, if its method is one of `forgeable`; None: with any method."""
        self._broker = broker
        self._enforced = enforced
        self._bodies = bodies
        self._forgeable = forgeable
        self._missing = missing
        self.routes = tuple(routes)
        self._root = _Node()
        for route in self.routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        node = self._root
        for part in route.path.split("/")[1:]:
            if part.startswith("{"):
                if node.parameter is None:
                    node.parameter = (part[1:-1], _Node())
                node = node.parameter[1]
            else:
                node = node.literals.setdefault(part, _Node())
        assert route.method not in node.routes, f"{route.method} {route.path} is there twice"
        node.routes[route.method] = route

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route of a request and the names in its path; raises HttpError."""
        node, names = self._root, {}
        for part in path.split("/")[1:]:
            literal = node.literals.get(part)
            if literal is not None:
                node = literal
            elif node.parameter is not None and part:
                name, node = node.parameter
                names[name] = _decoded(part)
            else:
                raise HttpError(404, "not_found", self._missing)
        if not node.routes:
            raise HttpError(404, "not_found", self._missing)
        route = node.routes.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = [*node.routes, *(("HEAD",) if "GET" in node.routes else ())]
            raise HttpError(
                405, "method_not_allowed", f"only {' and '.join(allowed)}", (("Allow", ", ".join(allowed)),)
            )
        return route, names

    def open(self, head: RequestHead) -> Admission:
        if not self._broker.access.enforced:
            refuse_rebound_name(head.headers.get("host", ""), head.login.peer)
        route, names = self.find(head.method, head.path)
        if route.mutates:
            _refuse_foreign_origin(head)
            if self._forgeable is None or head.method in self._forgeable:
                _require_type(head, self._bodies)
        parameters = _parameters(head.query)
        tenant, namespace = parameters.pop("tenant", None), parameters.pop("namespace", None)
        identity = head.login.identify(head.headers, None if tenant is None else tenant[-1])
        if route.mutates and head.login.by_cookie:
            _require_own_page(head)

        def admit(found: Identity) -> AcceptedRequest:
            query = _query(route.query, parameters)
            request = Request(
                found,
                (tenant[-1] if tenant else found.tenant) or DEFAULT_SCOPE.tenant,
                namespace[-1] if namespace else DEFAULT_SCOPE.namespace,
                names,
                query,
                None,
                head.headers.get("accept", ""),
                self._broker.access.enforced if self._enforced is None else self._enforced,
                tenant[-1] if tenant else None,
                head.login,
                "sec-fetch-site" in head.headers,
            )
            limit = min(route.max_body, MAX_UNAUTHENTICATED_BODY) if head.login.unauthenticated else route.max_body
            return AcceptedRequest(limit, partial(self._run, route, head, request))

        return identity.then(admit) if isinstance(identity, Deferred) else admit(identity)

    def _run(self, route: Route, head: RequestHead, request: Request, body: bytes) -> Outcome:
        try:
            if not route.audit:
                return route.handler(_with_body(route, request, body))
            with self._broker.audit.attempt(request.identity, route.audit):
                return route.handler(_with_body(route, request, body))
        except AccessDenied:
            if head.login.unauthenticated:
                raise head.login.refused() from None
            raise


def _with_body(route: Route, request: Request, body: bytes) -> Request:
    return replace(request, body=body if route.body is None else decode_json(body, route.body))


def _refuse_foreign_origin(head: RequestHead) -> None:
    """Refuse a request from another site's page: it can make a browser send requests with the browser's credentials,
    but not without the `Origin` header."""
    origin = head.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != head.headers.get("host", "").lower():
        raise HttpError(403, "foreign_origin", "this is not taken from pages of another site")


def _require_type(head: RequestHead, bodies: Collection[str]) -> None:
    """Require a body type, or a custom header, that another site's page cannot make a browser send."""
    kind = head.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in bodies and CUSTOM_HEADER not in head.headers:
        raise HttpError(
            415, "json_only", "a request that changes something has Content-Type: application/json, or X-Requested-With"
        )


def _require_own_page(head: RequestHead) -> None:
    """Refuse a change with a cookie, which browsers add by themselves, unless it is from our own pages: every browser
    states this in one of two headers."""
    if "origin" not in head.headers and head.headers.get("sec-fetch-site") != "same-origin":
        raise HttpError(403, "foreign_origin", "a change by cookie is taken from this broker's own pages only")


def _parameters(query: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
    except ValueError:
        raise HttpError(400, "invalid_request", "the query of the address is not UTF-8") from None
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def _query(kind: type[msgspec.Struct], parameters: dict[str, list[str]]) -> Any:
    lists = _list_fields(kind)
    values: dict[str, Any] = {}
    for name, given in parameters.items():
        if name in lists:
            values[name] = given
        elif len(given) == 1:
            values[name] = given[0]
        else:
            raise HttpError(400, "invalid_request", f"'{name[:100]}' is there more than once")
    return msgspec.convert(values, type=kind, strict=False)


def _list_fields(kind: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(each.encode_name for each in msgspec.structs.fields(kind) if _is_list(each.type))


def _is_list(kind: Any) -> bool:
    return get_origin(kind) in (list, tuple) or any(_is_list(each) for each in get_args(kind))


def _decoded(part: str) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise InvalidName("A name in the path is not UTF-8") from None


def not_found(message: str) -> HttpReply:
    return problem(404, "not_found", message)
