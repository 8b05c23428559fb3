"""The OpenAPI document of the administration API, generated from the table of routes, so that it always matches."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock import __version__
from penstock.doors.http.errors import ProblemBody
from penstock.doors.http.replies import JSON
from penstock.doors.http.router import Route

REF: Final = "#/components/schemas/{name}"
SCOPE: Final = (
    ("tenant", "Whose it is; also the tenant of the user who logs in. Left out: that of the identity, or `default`."),
    ("namespace", "The namespace in the tenant; left out: `default`."),
)
SECURITY: Final = {
    "user": {"type": "http", "scheme": "basic", "description": "A user's name and password."},
    "token": {"type": "http", "scheme": "bearer", "description": "A JSON Web Token, or an API key."},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key."},
}


def openapi(routes: Sequence[Route]) -> dict[str, Any]:
    types = list({repr(kind): kind for route in routes for kind in _types(route)}.values())
    schemas, components = msgspec.json.schema_components(types, ref_template=REF)
    schema_of = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema_of, components)
    queries = {name.rpartition(".")[2] for name in map(_name, {route.query for route in routes})}
    kept = {name: schema for name, schema in components.items() if name not in queries}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": __version__,
            "description": "Administration of a Penstock broker. Identities and access checks are those of the doors.",
        },
        "servers": [{"url": "/"}],
        "security": [{}, *({name: []} for name in SECURITY)],
        "paths": paths,
        "components": {"schemas": kept, "securitySchemes": SECURITY},
    }


def _types(route: Route) -> list[Any]:
    return [kind for kind in (route.query, route.body, route.reply, ProblemBody) if kind is not None]


def _name(kind: type[msgspec.Struct]) -> str:
    return kind.__name__


def _operation(route: Route, schema_of: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    said = inspect.getdoc(route.handler)
    operation: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.path.split("/")[3]],
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route, components)],
        "responses": {
            str(route.status): {"description": "It is done.", **_content(route, schema_of)},
            "default": {
                "description": "It is refused.",
                "content": {JSON: {"schema": schema_of[repr(ProblemBody)]}},
            },
        },
    }
    if said:
        operation["description"] = said
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schema_of[repr(route.body)]}}}
    return operation


def _content(route: Route, schema_of: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object"} if route.reply is None else schema_of[repr(route.reply)]
    return {"content": {kind: {"schema": schema} if kind == JSON else {} for kind in route.content}}


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]


def _query_parameters(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "query", "required": False, "description": text, "schema": {"type": "string"}}
        for name, text in SCOPE
    ]
    known = components.get(_name(route.query), {})
    for name, schema in known.get("properties", {}).items():
        parameter = {"name": name, "in": "query", "required": name in known.get("required", ()), "schema": schema}
        if "description" in schema:
            parameter["description"] = schema["description"]
        found.append(parameter)
    return found
