"""Plays conversations to a server: sends the client's part, and compares the replies with the expected ones."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.conformance import cleanup, notation
from penstock.conformance.cleanup import Leftover, Leftovers, RemoveTopics, RunNames
from penstock.conformance.connection import FRAMINGS, Connection, Unexpected, Unreachable
from penstock.conformance.results import FAILED, OK, SKIPPED, Result
from penstock.conformance.vectors import Conversation, Session, Step, sessions

TIMEOUT: Final = 5.0  # seconds per step
SLOW: Final = 6  # factor for steps marked as slow

Connect: TypeAlias = Callable[[], Awaitable[Connection]]


class Played(NamedTuple):
    """The results of a run, the objects it could not remove, and why it stopped early, if it did."""

    results: list[Result]
    left: list[Leftover]
    interrupted: bool = False
    unreachable: str = ""


async def play_protocol(
    protocol: str, connect: Connect, given: Mapping[str, str], seconds: float = TIMEOUT,
    remove: RemoveTopics = cleanup.nowhere, progress: Callable[[int, int], None] | None = None,
) -> Played:  # fmt: skip
    """Play all conversations of a protocol, each on its own connection. `given`: variables such as user and token.
    `remove` deletes topics if the protocol cannot. A cancelled run still cleans up. `progress` is called with the
    numbers done and in total. Raises Unreachable if no server was ever reached."""
    names, leftovers = cleanup.RunNames(), cleanup.Leftovers()
    results: list[Result] = []
    interrupted, unreachable = False, ""
    try:
        found = sessions(protocol)
        total = sum(len(session.conversations) for session in found.values())
        for stem, session in found.items():
            for each in session.conversations:
                known = variables(given, names)
                results.append(await play(protocol, stem, session, each, connect, given, seconds, known, leftovers))
                if progress is not None:
                    progress(len(results), total)
    except asyncio.CancelledError:
        interrupted = True
    except Unreachable as error:
        if not results:
            raise
        unreachable = str(error)
    await _to_its_end(leftovers.remove_topics(remove))
    return Played(results, leftovers.remaining(), interrupted, unreachable)


async def play(
    protocol: str, stem: str, session: Session, conversation: Conversation, connect: Connect, given: Mapping[str, str],
    seconds: float, known: dict[str, bytes] | None = None, leftovers: Leftovers | None = None,
) -> Result:  # fmt: skip
    """Play one conversation, and clean up after it: objects that were not removed are added to `leftovers`. Raises
    Unreachable."""
    name = f"{stem}/{conversation.name}"
    left_out = _left_out(session, conversation, given)
    if left_out:
        return Result(protocol, name, SKIPPED, left_out, conversation.why, conversation.source)
    known = known or variables(given)
    leftovers = leftovers or cleanup.Leftovers()
    login = session.login if conversation.login and all(each in given for each in session.login_needs) else []
    player = Player(protocol, await connect(), known, seconds)
    try:
        detail = await player.run("login", login) or await player.run("step", conversation.steps)
    finally:
        await player.connection.close()
        made = cleanup.made_by(session, conversation)
        if made:
            leftovers.add(made, known, f"{protocol} has no way to delete it")
            await _to_its_end(_clean_up(protocol, session, connect, given, seconds, known, leftovers))
    return Result(protocol, name, FAILED if detail else OK, detail, conversation.why, conversation.source)


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end, even if cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def _clean_up(
    protocol: str, session: Session, connect: Connect, given: Mapping[str, str], seconds: float,
    known: dict[str, bytes], leftovers: Leftovers,
) -> None:  # fmt: skip
    login = session.login if all(each in given for each in session.login_needs) else []
    for each in session.cleanup:
        if any(name in given for name in each.without):
            continue
        try:
            player = Player(protocol, await connect(), known, seconds)
        except Unreachable as error:
            leftovers.add(each.removes, known, str(error))
            continue
        try:
            fault = await player.run("login", login) or await player.run("cleanup", each.steps)
        finally:
            await player.connection.close()
        if fault:
            leftovers.add(each.removes, known, f"it could not be deleted: {fault}")
        else:
            leftovers.discard(each.removes, known)


def _left_out(session: Session, conversation: Conversation, given: Mapping[str, str]) -> str:
    """The reason for skipping a conversation; empty if it can be played."""
    missing = [f"--{each}" for each in conversation.needs if each not in given]
    if missing:
        return "needs " + ", ".join(missing)
    unsayable = [f"--{each}" for each in (*session.without, *conversation.without) if each in given]
    return f"there is no way to say {', '.join(unsayable)} in this dialect" if unsayable else ""


def variables(given: Mapping[str, str], names: RunNames | None = None) -> dict[str, bytes]:
    """The given variables, and unused names of a fixed length, so that vectors can contain lengths."""
    names = names or RunNames()
    all_of_them = {**_USUAL, **names.next(), **given}
    return {name: value.encode() for name, value in all_of_them.items()} | _kimberlite(
        {"tenant": names.tenant, **given}
    )


_USUAL: Final = {"tenant": "default", "namespace": "default", "token": "conformance"}


def _kimberlite(given: Mapping[str, str]) -> dict[str, bytes]:
    """Variables for Kimberlite, where a tenant is a number and a token is optional: each in the three encodings."""
    tenant = int(given["tenant"]) if given["tenant"].isdigit() else 42
    token = given.get("token", "").encode()
    wide = struct.pack("<Q", len(token)) + token
    return {
        "tenant_short": notation.varint(tenant),
        "tenant_wide": struct.pack("<Q", tenant),
        "token_short": b"\1" + notation.varint(len(token)) + token if token else b"\0",
        "token_wide": b"\1" + wide if token else b"\0",
        "token_printed": b"\1\0\0\0" + wide if token else bytes(4),
    }


class Player:
    """One connection, and the state of its conversation."""

    def __init__(self, protocol: str, connection: Connection, variables: dict[str, bytes], seconds: float) -> None:
        self.connection = connection
        self._protocol = protocol
        self._variables = variables
        self._timeout = seconds

    async def run(self, what: str, steps: Sequence[Step]) -> str:
        """Run the steps. Returns the error; empty if all went as expected."""
        for number, step in enumerate(steps, 1):
            where = f"{what} {number}" + (f" ({step.note})" if step.note else "")
            seconds = self._timeout * (SLOW if step.slow else 1)
            try:
                async with asyncio.timeout(seconds + step.wait_ms / 1000):
                    await self._step(step)
            except TimeoutError:
                return f"{where}: {_awaited(step)} did not come within {seconds:g} s"
            except (Unexpected, notation.BadNotation) as error:
                return f"{where}: {error}"
        return ""

    async def _step(self, step: Step) -> None:
        if step.wait_ms:
            await asyncio.sleep(step.wait_ms / 1000)
        if step.again_ms:
            await self._until_answered(step)
            return
        if step.send is not None or step.end:
            await self._send(step)
        if step.accept is not None:
            await self.connection.accept(step.accept)
        if isinstance(step.reply, dict) and "all" in step.reply:
            await self._all(step.reply["all"], step.stream)
        elif step.reply is not None:
            self._compare(step.reply, await self._frame(step.stream))
        if step.events is not None:
            await self._events(step)
        if step.reset is not None:
            self.connection.reset(step.stream, step.reset)
        if step.ended:
            await self.connection.ended(step.stream)
        if step.closed:
            code = await self.connection.wait_closed()
            if code == 0:
                raise Unexpected("the connection was closed with code 0, and that is no error")

    async def _send(self, step: Step) -> None:
        data = self._written(step.send) if step.send is not None else b""
        await self.connection.send(step.stream, data, end=step.end, one_way=step.one_way)

    async def _until_answered(self, step: Step) -> None:
        """Repeat the same request until there is an answer."""
        assert step.reply is not None
        awaited = asyncio.ensure_future(self._frame(step.stream))
        try:
            while not awaited.done():
                await self._send(step)
                await asyncio.wait((awaited,), timeout=step.again_ms / 1000)
        except BaseException:
            awaited.cancel()
            raise
        self._compare(step.reply, awaited.result())

    async def _frame(self, stream: str) -> bytes:
        found = await self.connection.frame(stream)
        if found is None:
            raise Unexpected("the server ended it without a reply")
        return found

    # -- encoding and comparing

    def _written(self, text: str | dict[str, Any]) -> bytes:
        if isinstance(text, str):
            return notation.data(text, self._variables)
        payload = json.dumps(self._filled(text["json"]), separators=(",", ":"), ensure_ascii=False).encode()
        return _JSON_HEADERS[self._protocol](payload, text.get("flags", 0)) + payload

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str):
            return notation.filled(value, self._variables)
        if isinstance(value, dict):
            return {name: self._filled(each) for name, each in value.items()}
        return [self._filled(each) for each in value] if isinstance(value, list) else value

    def _compare(self, expected: str | dict[str, Any], frame: bytes) -> None:
        """Compare a frame with the expected one, and capture variables. Raises Unexpected."""
        if isinstance(expected, str):
            kept = notation.match(notation.pattern(expected, self._variables), frame)
            if isinstance(kept, str):
                raise Unexpected(f"{kept}. The reply was {frame.hex()}")
            self._variables.update(kept)
        elif "any" in expected:
            self._compare_any(expected["any"], frame)
        else:
            self._compare_json(expected["json"], frame)

    def _compare_json(self, expected: Any, frame: bytes) -> None:
        payload = frame[FRAMINGS[self._protocol].header :]
        try:
            said = json.loads(payload)
        except ValueError:
            raise Unexpected(f"a reply in JSON was expected, and {notation.shown(frame)} came") from None
        wrong = _json_difference(self._filled(expected), said)
        if wrong:
            raise Unexpected(f"{wrong}. The reply was {payload.decode(errors='replace')}")

    def _compare_any(self, choices: Sequence[str | dict[str, Any]], frame: bytes) -> str | dict[str, Any]:
        """The choice that matches. Raises Unexpected if none does."""
        problems = []
        for choice in choices:
            try:
                self._compare(choice, frame)
            except Unexpected as error:
                problems.append(str(error))
            else:
                return choice
        raise Unexpected("none of what is allowed: " + "; or ".join(problems))

    async def _all(self, choices: Sequence[str | dict[str, Any]], stream: str) -> None:
        """Expect each of these once, in any order."""
        left = list(choices)
        while left:
            frame = await self._frame(stream)
            left.remove(self._compare_any(left, frame))

    async def _events(self, step: Step) -> None:
        """Expect events. The server may split them into frames in any way: only the payloads count."""
        assert step.events is not None
        awaited = [notation.filled(text, self._variables).encode() for text in step.events]
        found: list[bytes] = []
        while len(found) < len(awaited):
            found += felix_events(await self._frame(step.stream), step.encoding)
        if found != awaited:
            raise Unexpected(f"the events were {found}, and {awaited} expected")


def _awaited(step: Step) -> str:
    if step.accept is not None:
        return "a stream of the server"
    if step.closed:
        return "the end of the connection"
    if step.ended:
        return "the end of the stream"
    return "events" if step.events is not None else "a reply"


# -- JSON

_JSON_HEADERS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "rustlog": lambda payload, _: struct.pack(">I", len(payload)),
    "felix": lambda payload, flags: struct.pack(">4sHHI", b"FLX1", 1, flags, len(payload)),
}

_KINDS: Final[dict[str, Callable[[Any], bool]]] = {
    "$any": lambda _: True,
    "$text": lambda value: isinstance(value, str),
    "$number": lambda value: isinstance(value, int) and not isinstance(value, bool),
}


def _json_difference(expected: Any, actual: Any, path: str = "the reply") -> str:
    """The first difference between a reply and the expected one; empty if there is none. Additional fields are
    ignored."""
    if isinstance(expected, str) and expected in _KINDS:
        return "" if _KINDS[expected](actual) else f"{path} is {actual!r}, {expected} expected"
    if isinstance(expected, str) and expected.startswith("$has "):
        held = isinstance(actual, str) and expected.removeprefix("$has ") in actual
        return "" if held else f"{path} is {actual!r}, without {expected.removeprefix('$has ')!r}"
    if isinstance(expected, dict) and isinstance(actual, dict):
        missing = [name for name in expected if name not in actual]
        if missing:
            return f"{path} has no {missing[0]}"
        pairs = [(expected[name], actual[name], f"{path}.{name}") for name in expected]
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        pairs = [(a, b, f"{path}[{at}]") for at, (a, b) in enumerate(zip(expected, actual, strict=True))]
    else:
        same = expected == actual and isinstance(expected, bool) == isinstance(actual, bool)
        return "" if same else f"{path} is {actual!r}, {expected!r} expected"
    return next(filter(None, (_json_difference(*pair) for pair in pairs)), "")


# -- Felix events, decoded without our codec


def felix_events(frame: bytes, encoding: str) -> list[bytes]:
    """The payloads in a frame of events, in either encoding or only in the required one. Raises Unexpected."""
    (flags,) = struct.unpack_from(">H", frame, 6)
    payload = frame[12:]
    if encoding and (encoding == "binary") != bool(flags):
        raise Unexpected(f"{encoding} events were expected, and a frame with the flags {flags:#06x} came")
    try:
        return _binary_events(flags, payload) if flags else _json_events(payload)
    except (ValueError, KeyError, struct.error, binascii.Error):
        raise Unexpected(f"these are no events: {frame.hex()}") from None


def _json_events(payload: bytes) -> list[bytes]:
    said = json.loads(payload)
    texts = [said["payload"]] if said["type"] == "event" else said["payloads"]
    return [base64.b64decode(text, validate=True) for text in texts]


def _binary_events(flags: int, payload: bytes) -> list[bytes]:
    at = 8 * bool(flags & 0x02) + 8 * bool(flags & 0x20)
    (count,) = struct.unpack_from(">I", payload, at)
    at += 4
    found = []
    for _ in range(count):
        (length,) = struct.unpack_from(">I", payload, at)
        found.append(payload[at + 4 : at + 4 + length])
        at += 4 + length
    return found
