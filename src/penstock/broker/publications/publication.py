"""Publications: records that were staged by many tasks and are added to the log together, exactly once.

An application numbers its batches in ascending order. A publication is identified by its application and this number,
so a repeated request, even after a restart, is recognized as done. This module has the rules; `publications` executes
them.
"""

from __future__ import annotations

import unicodedata
from hashlib import blake2b
from typing import Final, TypeAlias

import msgspec

from penstock.broker.errors import InvalidArgument
from penstock.broker.limits import Limits
from penstock.broker.names import Scope
from penstock.broker.security.access import Identity
from penstock.broker.state.events import PublicationAdvanced, PublicationDropped, PublicationStarted, Published
from penstock.broker.tenancy.fair_share import allowance
from penstock.broker.tenancy.fair_share import check_room as check_share

KEY_BYTES: Final = 16
MAX_APP_CHARACTERS: Final = 255
MAX_BATCH: Final = (1 << 63) - 1
REMEMBERED_US: Final = 7 * 86_400_000_000  # an application that published within this time is never evicted
ONCE: Final = "\0once-"
"""Prefix of the names of one-time publications. They are never repeated, so they are not remembered."""


class Running(msgspec.Struct, array_like=True):
    """A publication in several steps that has begun. It will be finished unless its files are missing."""

    batch: int
    refs: list[str]  # staged files, in the order in which they are appended
    once: bool
    done: int = 0  # number of chunks already in the log


class Publication(msgspec.Struct, array_like=True):
    """The state of an application's publications."""

    key: bytes
    at: int  # µs since 1970: time of its last publication
    batch: int = -1  # the last one published
    running: Running | None = None
    tenant: str = ""  # empty if unknown


Publications: TypeAlias = dict[bytes, Publication]
"""By key, in order of the last publication."""


def app_key(identity: Identity, scope: Scope, app: str) -> bytes:
    """The key of an application. It is unique to the identity, so that applications of others with the same name do not
    collide; nor do those of a later user with the same name, whose records would be taken for published.
    """
    who = "\0".join((identity.name, identity.tenant or "", "" if identity.tenant is None else "@", str(identity.since)))
    return blake2b("\0".join((*scope, who, app)).encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


def check_app(app: str, batch: int) -> None:
    name = app.removeprefix(ONCE)
    if not 1 <= len(name) <= MAX_APP_CHARACTERS:
        raise InvalidArgument(f"An application's name of {len(name)} characters; 1 to {MAX_APP_CHARACTERS} are allowed")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        raise InvalidArgument("An application's name has no control characters in it")
    if not 0 <= batch <= MAX_BATCH:
        raise InvalidArgument(f"Batch {batch} of '{name}': batches are numbered from 0 to {MAX_BATCH}")


def check_room(publications: Publications, key: bytes, tenant: str, limits: Limits, now: int) -> None:
    """Raise LimitReached if one more application of the tenant cannot be remembered."""
    total, limit = len(publications), limits.publishing_apps
    if key in publications or total < allowance(limit, 0, limits.tenant_share):  # no tenant can be at its share yet
        return
    oldest = next(iter(publications.values()))
    if oldest.running is None and _forgettable(oldest, now):
        return
    mine = sum([known.tenant == tenant for known in publications.values()])
    remedy = ": give a query that starts again the application id that it had before"
    what = "applications that published in the last 7 days"
    check_share(what, limit, total, tenant, mine, limits.tenant_share, remedy=remedy)


def _forgettable(publication: Publication, now: int) -> bool:
    return publication.at + REMEMBERED_US <= now


def apply_publication(
    publications: Publications, event: Published | PublicationStarted | PublicationAdvanced | PublicationDropped
) -> None:
    known = publications.pop(event.key, None)
    match event:
        case Published():
            if not event.once:
                _make_room(publications, event.at, event.kept)
                tenant = event.tenant or ("" if known is None else known.tenant)
                publications[event.key] = Publication(event.key, event.at, event.batch, tenant=tenant)
        case PublicationStarted():
            _make_room(publications, event.at, event.kept)
            batch = -1 if known is None else known.batch
            running = Running(event.batch, event.refs, event.once)
            publications[event.key] = Publication(event.key, event.at, batch, running, event.tenant)
        case PublicationAdvanced():
            assert known is not None and known.running is not None
            known.running.done = event.done
            publications[event.key] = known
        case PublicationDropped():
            if known is not None and known.batch >= 0:
                known.running = None
                publications[event.key] = known


def _make_room(publications: Publications, now: int, kept: int) -> None:
    while len(publications) >= kept:
        oldest = next(iter(publications.values()))
        if oldest.running is not None or not _forgettable(oldest, now):
            return
        del publications[oldest.key]
