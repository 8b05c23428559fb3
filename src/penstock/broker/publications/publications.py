"""All publications of a broker: permits to stage records, and publishing staged records exactly once. Publications that
were interrupted, by the end of the process or a full disk, are resumed here.

`publication` has the rules, `publishing` the steps of one publication, and `staging` the files.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from penstock.broker.errors import InvalidArgument, LimitReached, ShuttingDown, StagedNotFound
from penstock.broker.names import Scope
from penstock.broker.publications.publication import ONCE, app_key, check_app, check_room
from penstock.broker.publications.publishing import FINAL, PublicationRun, PublishContext, Publishing
from penstock.broker.publications.staging import TOKEN_BYTES, leftovers, parse_ref
from penstock.broker.security.access import Identity, Permission
from penstock.broker.state.events import PublicationDropped
from penstock.broker.state.state import Topic
from penstock.broker.tenancy.fair_share import check_room as check_share
from penstock.log.engine import CommitGroup
from penstock.log.errors import CommitFailed, LogError, LogFull, LogUnavailable

logger = logging.getLogger(__name__)

AT_ONCE: Final = 2  # publications being appended at once: each holds a few MiB
TRY_AGAIN: Final = 1_000_000  # retry delay after a failure, µs
CLEAN_EVERY: Final = 3_600_000_000  # µs


class Permit(NamedTuple):
    """A permit to stage records."""

    app: str  # as given, or a generated one for a one-time publication
    key: bytes  # in the names of all files staged for it
    topics: list[Topic]  # in the order of the requested names


class Publications:
    def __init__(
        self,
        context: PublishContext,
        topic: Callable[[Identity, Scope, str], Topic],
        *,
        token: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        """`topic` finds or creates a topic for a producer."""
        self._context = context
        self._topic = topic
        self._token = token
        self._runs: dict[bytes, PublicationRun] = {}  # by application key; an application has one at a time
        self._queued: deque[PublicationRun] = deque()  # runs that have not started yet
        self._active = 0
        self._waiting: dict[str, int] = {}  # unanswered requests, by tenant
        self._started = context.clock()
        self._cleaned: int | None = None
        self._try_at: int | None = 0  # when to look for interrupted publications

    def __len__(self) -> int:
        """The number of publications in progress."""
        return len(self._runs)

    # -- for clients

    def prepare(
        self, identity: Identity, scope: Scope, app: str | None, batch: int, names: Sequence[str]
    ) -> tuple[Permit, CommitGroup | None]:
        """Permission to stage records for these topics; missing topics are created as for any other producer. Valid
        once the group is committed. `app` None: a one-time publication under a generated name.
        """
        self._require(identity, scope)
        for name in names:
            self._context.access.require(identity, Permission.WRITE, scope, name)
        if app is None:
            app = ONCE + self._token(TOKEN_BYTES * 2).hex()
        check_app(app, batch)
        found = [self._topic(identity, scope, name) for name in names]
        return Permit(app, app_key(identity, scope, app), found), self._context.state_log.pending_commit

    def publish(self, identity: Identity, scope: Scope, app: str, batch: int, refs: Sequence[str]) -> Publishing:
        """Publish the files named by `refs`. All of their records are in the log, exactly once, when the outcome of the
        returned request is committed. If it fails, or this raises, the same request may be repeated.
        """
        self._require(identity, scope)
        key = self._key(identity, scope, app, batch, refs)
        self._context.state_log.current()
        limits, tenant = self._context.limits, scope.tenant
        total, mine = sum(self._waiting.values()), self._waiting.get(tenant, 0)
        check_share(*("publications that wait", limits.publications_waiting, total, tenant, mine, limits.tenant_share))
        request = Publishing(identity, scope, key, batch, refs, once=app.startswith(ONCE))
        self._waiting[tenant] = mine + 1
        request.outcome.on_done(lambda _: self._answered(tenant))
        self._consider(request)
        return request

    def discard(self, identity: Identity, scope: Scope, app: str, batch: int, refs: Sequence[str]) -> None:
        """Delete staged files that will not be published. Files of running or finished publications are not touched."""
        self._require(identity, scope)
        key = self._key(identity, scope, app, batch, refs)
        state, staging = self._context.state_log.current(), self._context.staging
        known, run = state.publications.get(key), self._runs.get(key)
        used = {*(run.refs if run else ()), *(known.running.refs if known and known.running else ())}
        unused = [ref for ref in refs if ref not in used]
        self._context.executor(lambda: staging.remove(unused), _nothing)

    def _require(self, identity: Identity, scope: Scope) -> None:
        self._context.access.require_any(identity, Permission.WRITE, scope)

    def _key(self, identity: Identity, scope: Scope, app: str, batch: int, refs: Sequence[str]) -> bytes:
        """The application's key. Raises unless all refs belong to this batch of it."""
        check_app(app, batch)
        key = app_key(identity, scope, app)
        if len(refs) > self._context.limits.publication_refs:
            limit = self._context.limits.publication_refs
            raise LimitReached(f"A publication of {len(refs)} staged files; {limit} is the limit: use fewer tasks")
        if len(set(refs)) < len(refs):
            raise InvalidArgument("The same staged file twice in one publication")
        for ref in refs:
            parsed = parse_ref(ref)
            if parsed is None or (parsed.key, parsed.batch) != (key, batch):
                raise StagedNotFound(ref, "it is not of this application and batch")
        return key

    # -- scheduling

    def _consider(self, request: Publishing) -> None:
        """Answer the request, start it, or queue it behind the running publication of its application."""
        state_log = self._context.state_log
        try:
            known = state_log.current().publications.get(request.key)
            if known is not None and request.batch <= known.batch:
                self._repeat(request)
                return
            run = self._runs.get(request.key)
            if run is None and known is not None and known.running is not None:
                run = PublicationRun(self._context, request.key, self._ended, running=known.running)
                run.behind.append(request)
                self._enter(run)
            elif run is not None:
                run.behind.append(request)
            else:
                if not request.once:
                    known_apps, limits, now = state_log.state.publications, self._context.limits, self._context.clock()
                    check_room(known_apps, request.key, request.scope.tenant, limits, now)
                self._enter(PublicationRun(self._context, request.key, self._ended, request=request))
        except (LimitReached, ShuttingDown) as error:
            request.outcome.finish(error)

    def _repeat(self, request: Publishing) -> None:
        """Answer a request that was already published, once that is durable: its commit may still be pending."""
        request.repeated = True
        self._context.metrics.publications_repeated += 1

        def settled(error: Exception | None) -> None:
            if error is None:
                self._clean_up(request.key, request.batch)
            request.outcome.finish(error)

        group = self._context.state_log.pending_commit
        if group is None:
            settled(None)
        else:
            group.on_done(lambda group: settled(group.error))

    def _enter(self, run: PublicationRun) -> None:
        self._runs[run.key] = run
        self._queued.append(run)
        self._advance()

    def _advance(self) -> None:
        while self._active < AT_ONCE and self._queued:
            self._active += 1
            self._queued.popleft().start()

    def _ended(self, run: PublicationRun, error: Exception | None) -> None:
        del self._runs[run.key]
        self._active -= 1
        if error is None:
            self._context.metrics.publications_committed += 1
            self._clean_up(run.key, run.batch)
        elif run.begun and isinstance(error, FINAL) and not self._context.state_log.closed:
            self._drop(run, error)
        elif run.begun:
            logger.warning("a publication is to be finished later: %s", error)
            self._try_at = self._context.clock() + TRY_AGAIN
            error = self._doubtful(run, error)
        if run.request is not None:
            run.request.rows = run.rows
            run.request.outcome.finish(error)
        for request in run.behind:
            if error is None:
                self._consider(request)
            else:
                request.outcome.finish(error)
        self._advance()

    def _doubtful(self, run: PublicationRun, error: Exception) -> Exception:
        """The error to report for a publication that has begun. Unless there was no room even for its first event, the
        rest of it may still be appended later.
        """
        known = self._context.state_log.state.publications.get(run.key)
        begun = known is not None and known.running is not None and known.running.batch == run.batch
        if isinstance(error, CommitFailed) or (isinstance(error, LogFull | LogUnavailable) and not begun):
            return error
        return CommitFailed(f"outcome unknown: the publication has begun, and is to be finished later: {error}")

    def _drop(self, run: PublicationRun, error: Exception) -> None:
        """Give up a publication that can never be finished: a repeated request starts from the beginning, and chunks
        already in the log stay there.
        """
        known = self._context.state_log.current().publications.get(run.key)
        if known is None or known.running is None or known.running.batch != run.batch:
            return  # its start event was in a group that failed: nothing of it is in the log
        logger.error(
            "batch %d of a publication cannot be finished, and %d of its chunks are in the log: %s",
            run.batch,
            known.running.done,
            error,
        )
        self._context.metrics.publications_dropped += 1
        try:
            self._context.state_log.commit((PublicationDropped(run.key),))
        except LogError:
            self._try_at = self._context.clock() + TRY_AGAIN

    def _answered(self, tenant: str) -> None:
        self._waiting[tenant] -= 1
        if not self._waiting[tenant]:
            del self._waiting[tenant]

    # -- periodic work

    def rebuilt(self) -> None:
        self._try_at = self._context.clock() + TRY_AGAIN

    def sweep(self, now: int) -> None:
        """Resume interrupted publications. Called a few times a second; `now` is the wall clock, in µs."""
        if self._try_at is not None and not 0 < self._try_at - now <= TRY_AGAIN:
            self._try_at = None
            for known in list(self._context.state_log.current().publications.values()):
                if known.running is not None and known.key not in self._runs:
                    self._enter(PublicationRun(self._context, known.key, self._ended, running=known.running))

    def clean(self, now: int) -> None:
        """Delete staged files that are no longer needed: on the first call, and then at most once an hour."""
        if self._cleaned is not None and 0 <= now - self._cleaned < CLEAN_EVERY:
            return
        self._cleaned = now
        staging, names = self._context.staging, list[str]()

        def decide() -> None:
            publications = self._context.state_log.state.publications
            used = {ref for run in self._runs.values() for ref in run.refs}
            used.update(ref for known in publications.values() if known.running for ref in known.running.refs)

            def published(key: bytes) -> int:
                return publications[key].batch if key in publications else -1

            leftover = leftovers(names, published, used.__contains__, now, self._started)
            self._context.executor(lambda: staging.remove(leftover), _nothing)

        self._context.executor(lambda: names.extend(staging.names()), decide)

    def _clean_up(self, key: bytes, batch: int) -> None:
        staging = self._context.staging
        self._context.executor(lambda: staging.remove_published(key, batch), _nothing)


def _nothing() -> None:
    """Callback for work without a follow-up."""
