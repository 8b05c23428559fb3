"""Resolution of the names in a statement to streams."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.broker.errors import QueryError
from penstock.sql.catalog import Catalog, Stream


def resolve(catalog: Catalog, names: Sequence[str]) -> dict[str, Stream]:
    """Name as written → stream: the one with exactly this name, else the only one that differs just in case. Missing
    ones are left out.
    """
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    found = catalog.open(wanted)
    missing = [name for name in wanted if name not in found]
    if not missing:
        return found
    folded: dict[str, list[str]] = {}
    for name in catalog.names():
        folded.setdefault(name.lower(), []).append(name)
    others: dict[str, str] = {}
    for name in missing:
        candidates = folded.get(name.lower(), [])
        if len(candidates) > 1:
            raise QueryError(f"'{name}' could be each of {', '.join(candidates)}: write it exactly")
        if candidates:
            others[name] = candidates[0]
    opened = catalog.open(sorted(set(others.values()).difference(found))) if others else {}
    for name, real in others.items():
        if real in opened or real in found:
            found[name] = opened.get(real) or found[real]
    return {name: found[name] for name in wanted if name in found}
