"""Signatures of commands: typer derives options from parameters, and several commands share some."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def replace_first(run: Any, command: Callable[..., None], options: type, names: tuple[str, ...] | None = None) -> None:
    """Give `run` the signature of the command, with options in place of its first parameter, after the others.

    `options` is a NamedTuple of annotated options; `names` selects some of them."""
    signature = inspect.signature(command, eval_str=True)
    run.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    append(run, options, names)


def append(run: Any, options: type, names: tuple[str, ...] | None = None) -> None:
    """Append options to the signature of `run`."""
    types = get_type_hints(options, include_extras=True)
    defaults: dict[str, Any] = options._field_defaults  # type: ignore[attr-defined]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=types[name])
        for name in (tuple(types) if names is None else names)
    ]
    signature = run.__signature__
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *added])
