"""The page of configuration keys: name, default, range and meaning, from `penstock.config.settings`.

A key's meaning is the string below it in its section.
"""

from __future__ import annotations

import ast
import enum
import inspect
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta
from scripts.reference.markdown import table

from penstock.config import settings
from penstock.config.layers import FLAG_OF, to_toml_value
from penstock.config.settings import Settings

HEAD: Final = """# Configuration keys

Every key of the broker, with its default and its meaning. `make reference` makes this page from
`config/settings.py`. [Configure a broker](../how-to/configure.md) explains where values come from.

A key `log.durability` is `durability` in the section `[log]` of the TOML file, and `PENSTOCK_LOG__DURABILITY` in the
environment. Some keys have a flag of `penstock serve`, too. Sizes are bytes, or texts such as `"64MiB"`. Durations are
seconds, or texts such as `"7d"`.
"""
COLUMNS: Final = ("Key", "Default", "Values", "Meaning")
SIZES: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
DURATIONS: Final = ((86_400, "d"), (3600, "h"), (60, "m"))


def meanings(section: type) -> dict[str, str]:
    """Key → the string below it in the source."""
    tree = ast.parse(inspect.getsource(section)).body[0]
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else None
            found[field.target.id] = " ".join(text.split()) if isinstance(text, str) else ""
    return found


def sections() -> dict[str, type[msgspec.Struct]]:
    hints = get_type_hints(Settings)
    return {name: of for name, of in hints.items() if isinstance(of, type) and issubclass(of, msgspec.Struct)}


def rows(section: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    meaning = meanings(section)
    defaults = section()
    hints = get_type_hints(section, include_extras=True)
    for name, of in hints.items():
        if get_origin(of) is None and isinstance(of, type) and issubclass(of, msgspec.Struct):
            continue
        key = prefix + name
        flag = f" Flag: `{FLAG_OF[key]}`." if key in FLAG_OF else ""
        default = getattr(defaults, name)
        yield f"`{key}`", f"`{_value(default, _unit(of))}`", _values(of), meaning[name] + flag


def _value(value: Any, unit: str | None) -> str:
    """A value as it may be written in the file, without quotes."""
    for at, sign in {"size": SIZES, "duration": DURATIONS}.get(unit or "", ()):
        if value and value % at == 0:
            return f"{value / at:g}{sign}"
    if unit == "duration":
        return f"{value:g}s" if value else "0"
    return to_toml_value(value)


def _meta(of: Any) -> list[Meta]:
    return [each for each in getattr(of, "__metadata__", ()) if isinstance(each, Meta)]


def _unit(of: Any) -> str | None:
    return next((str(meta.extra["unit"]) for meta in _meta(of) if meta.extra), None)


def _values(of: Any) -> str:
    bare = get_args(of)[0] if get_origin(of) is Annotated else of
    if get_origin(bare) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(bare))
    if isinstance(bare, type) and issubclass(bare, enum.Enum):
        return ", ".join(f"`{each.value}`" for each in bare)
    if bare is bool:
        return "`true`, `false`"
    unit = _unit(of)
    for meta in _meta(of):
        if meta.ge is not None and meta.le is not None:
            return f"{_number(meta.ge, unit)} to {_number(meta.le, unit)}"
    if unit == "address":
        return "`host:port`, `off`"
    return "list" if get_origin(bare) is tuple else "text"


def _number(value: float, unit: str | None) -> str:
    if unit in ("size", "duration"):
        return _value(value, unit)
    return f"{value:,}" if isinstance(value, int) or value == int(value) else f"{value:g}"


def page() -> str:
    lines = [HEAD, *table(COLUMNS, rows(Settings)), ""]
    for name, section in sections().items():
        about = inspect.getdoc(section) or ""
        lines += [f"## {name}", "", about, "", *table(COLUMNS, rows(section, name + ".")), ""]
        if section is settings.SecuritySection:
            lines += ["A grant in `security.grants`:", "", *table(("Key", "Meaning"), _grant()), ""]
    return "\n".join(lines)


def _grant() -> Iterator[tuple[str, str]]:
    for name, text in meanings(settings.Grant).items():
        yield f"`{name}`", text
