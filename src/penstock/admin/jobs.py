"""Jobs: work that takes longer than a request should wait for. Starting one returns its number immediately; its owner,
or an administrator of the tenant, may query its progress and cancel it.

A job is implemented by a generator: it yields what it waits for (work off the loop, or a commit), is sent the result,
and returns the job's result. Other work has a turn between two steps. Each step runs with the identity of the job's
owner, and permissions are checked each time: after a key is revoked, its jobs can do nothing more.

Jobs exist in memory only, and end with the broker. Changes that a job has made are in the log; the rest must be
requested again. Only the result of a search is lost with its job.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.errors import AccessDenied
from penstock.broker.names import Scope
from penstock.broker.runtime.executor import Deferred
from penstock.broker.security.access import ANONYMOUS, Identity, Permission
from penstock.broker.tenancy.fair_share import allowance, check_room
from penstock.doors.http.errors import EXPECTED_ERRORS, HttpError, Problem, problem_of
from penstock.log.engine import GroupState

logger = logging.getLogger(__name__)

MAX_UNDER_WAY: Final = 64  # waiting or running jobs, of all tenants
AT_ONCE: Final = 4  # running jobs
MAX_ENDED: Final = 256  # finished jobs that are kept
ENDED_US: Final = 3_600_000_000  # and for how long
RESULT_BYTES: Final = 32 << 20  # total of the results of finished jobs

State: TypeAlias = Literal["waiting", "running", "done", "failed", "cancelled"]


class Awaited(Protocol):
    """Something that completes later, such as a commit."""

    def on_done(self, callback: Callable[[Any], None], /) -> None: ...


Steps: TypeAlias = Generator[Deferred[Any, Any] | Awaited, Any, Any]


class JobProgress(msgspec.Struct):
    """The progress of a job, in units such as records or letters."""

    done: int = 0
    total: int | None = None  # null: unknown


class JobView(msgspec.Struct):
    """A job."""

    id: int
    kind: str  # record.search, dlq.replay, dlq.purge, table.verify, table.repair, backup.create
    state: State
    tenant: str
    namespace: str
    resource: str  # that it works on
    identity: str  # of its owner
    created: int  # µs since 1970
    started: int | None
    ended: int | None
    progress: JobProgress
    result: Any = None  # depends on its kind; null until it is done
    error: Problem | None = None


class Job:
    """One job. It is passed to its generator, which reports progress in it."""

    def __init__(self, view: JobView, identity: Identity, scope: Scope) -> None:
        self.view = view
        self.identity = identity
        self.scope = scope
        self.progress = view.progress
        self.steps: Steps | None = None
        self._withdraw: Callable[[], bool] = lambda: True
        self.records: list[Any] = []  # of a search
        self.bytes = 0  # approximate size of `records`

    def on_cancel(self, withdraw: Callable[[], bool]) -> None:
        """Call this when the job is cancelled; if it returns False, the job cannot be cancelled now."""
        self._withdraw = withdraw

    def withdraw(self) -> bool:
        """Withdraw what the job waits for. False if it cannot be cancelled now."""
        return self._withdraw()

    def describe_work(self) -> dict[str, str]:
        kind = f"job {self.view.kind}"
        return {"door": "http", "peer": self.identity.peer, "request": kind, "identity": self.view.identity}

    @property
    def over(self) -> bool:
        return self.view.ended is not None


class Jobs:
    """All jobs of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._number = 0
        self._jobs: dict[int, Job] = {}
        self._waiting: deque[Job] = deque()
        self._running: dict[str, int] = {}  # jobs by tenant

    def start(self, identity: Identity, kind: str, scope: Scope, resource: str, steps: Callable[[Job], Steps]) -> Job:
        """Start a job, or queue it. The caller has checked permissions, or `steps` does when it is called, which is
        immediately. Raises LimitReached."""
        broker = self._broker
        if broker.access.enforced and identity.name == ANONYMOUS.name:
            raise AccessDenied("A job belongs to somebody: log in to start one")
        under_way = [job for job in self._jobs.values() if not job.over]
        mine = sum(job.scope.tenant == scope.tenant for job in under_way)
        check_room("jobs", MAX_UNDER_WAY, len(under_way), scope.tenant, mine, broker.limits.tenant_share)
        self._number += 1
        name = broker.users.whoami(identity).name or identity.name
        now = broker.now()
        view = JobView(
            *(self._number, kind, "waiting", scope.tenant, scope.namespace, resource, name),
            *(now, None, None, JobProgress()),
        )
        job = Job(view, identity, scope)
        job.steps = steps(job)
        self._jobs[view.id] = job
        broker.audit.note(identity, "job.start", scope=scope, resource=resource, action=kind, job=str(view.id))
        self._waiting.append(job)
        self._tidy(now)
        self._start_next()
        return job

    def find(self, identity: Identity, number: int | None) -> Job:
        """Raises HttpError for a job that does not exist, or is of another tenant; AccessDenied for another user's."""
        job = self._jobs.get(number or 0)
        if self._broker.access.enforced and identity.name == ANONYMOUS.name:
            raise AccessDenied("Log in to see jobs")
        if job is not None and self._may_see(identity, job):
            return job
        if job is not None and identity.tenant == job.scope.tenant:
            raise AccessDenied(f"Job {job.view.id} is somebody else's")
        raise HttpError(404, "job_not_found", "There is no such job; a broker that was started again knows of none")

    def list(self, identity: Identity, tenant: str) -> list[Job]:
        self._tidy(self._broker.now())
        return [job for job in self._jobs.values() if job.scope.tenant == tenant and self._may_see(identity, job)]

    def _may_see(self, identity: Identity, job: Job) -> bool:
        is_creator = identity[:2] == job.identity[:2] and identity.since == job.identity.since
        return is_creator or self._broker.access.allows(identity, Permission.ADMIN, job.scope, "")

    def cancel(self, identity: Identity, job: Job) -> None:
        """Cancel an unfinished job, without undoing what it has done. Forget a finished one."""
        if job.over:
            del self._jobs[job.view.id]
            return
        if not job.withdraw():
            raise HttpError(409, "job_not_cancellable", "It cannot be interrupted now; it ends by itself")
        self._broker.audit.note(
            identity, "job.cancel", scope=job.scope, resource=job.view.resource, action="cancel", job=str(job.view.id)
        )
        if job.view.state == "waiting":
            self._waiting.remove(job)
        if job.over:  # `withdraw` has ended it
            job.view.state = "cancelled"
        else:
            self._end(job, "cancelled")

    # -- running

    def _start_next(self) -> None:
        share = self._broker.limits.tenant_share
        for job in list(self._waiting):
            total, tenant = sum(self._running.values()), job.scope.tenant
            mine = self._running.get(tenant, 0)
            if total >= AT_ONCE:
                break
            if mine < allowance(AT_ONCE, total - mine, share):
                self._waiting.remove(job)
                self._running[tenant] = mine + 1
                job.view.state, job.view.started = "running", self._broker.now()
                self._later(job, lambda steps: next(steps))

    def _later(self, job: Job, resume: Callable[[Steps], Any]) -> None:
        self._broker.turns.later(partial(self._step, job, resume))

    def _step(self, job: Job, resume: Callable[[Steps], Any]) -> None:
        """Resume the job until its next wait."""
        steps, turns = job.steps, self._broker.turns
        if job.over or steps is None:
            return
        began = turns.timer()
        try:
            self._wait(job, resume(steps))
        except StopIteration as ended:
            job.view.result = ended.value
            self._end(job, "done")
        except EXPECTED_ERRORS as error:
            job.view.error = problem_of(error)
            self._end(job, "failed")
        except Exception:
            self._broker.metrics.internal_errors += 1
            logger.exception("job %d (%s) failed", job.view.id, job.view.kind)
            job.view.error = Problem("internal_error", "internal error; the broker's log tells more")
            self._end(job, "failed")
        turns.charge(turns.timer() - began, job)

    def _wait(self, job: Job, awaited: Deferred[Any, Any] | Awaited) -> None:
        if isinstance(awaited, Deferred):
            work = awaited

            def finished(steps: Steps) -> Any:
                try:
                    found = work.finish()
                except EXPECTED_ERRORS as error:
                    return steps.throw(error)
                return steps.send(found)

            work.start(self._broker.executor, lambda: self._later(job, finished))
        else:
            awaited.on_done(lambda outcome: self._later(job, partial(_conclude, outcome)))

    def _end(self, job: Job, state: State) -> None:
        running = job.view.started is not None
        job.view.state, job.view.ended = state, self._broker.now()
        steps, job.steps = job.steps, None
        if steps is not None:
            steps.close()
        if running:
            tenant = job.scope.tenant
            self._running[tenant] -= 1
            if not self._running[tenant]:
                del self._running[tenant]
            self._start_next()

    # -- finished jobs

    def _tidy(self, now: int) -> None:
        """Forget jobs that ended long ago and, if there are too many, the oldest of the tenant with the most."""
        ended = {number: job for number, job in self._jobs.items() if job.over}
        for number, job in list(ended.items()):
            if now - (job.view.ended or 0) > ENDED_US:
                del self._jobs[number], ended[number]
        while len(ended) > MAX_ENDED or sum(job.bytes for job in ended.values()) > RESULT_BYTES:
            weight: dict[str, int] = {}
            for job in ended.values():
                part = job.bytes / RESULT_BYTES + 1 / MAX_ENDED
                weight[job.scope.tenant] = weight.get(job.scope.tenant, 0) + round(part * 1e9)
            busiest = max(weight, key=lambda tenant: weight[tenant])
            oldest = next(number for number, job in ended.items() if job.scope.tenant == busiest)
            del self._jobs[oldest], ended[oldest]


def _conclude(outcome: Any, steps: Steps) -> Any:
    """Resume the generator after a wait: a failed group is raised as an error of the job."""
    if getattr(outcome, "state", None) is GroupState.FAILED:
        return steps.throw(outcome.error)
    return steps.send(outcome)
