from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.doors.reply_queue import ReplyQueue
from penstock.log.engine import CommitGroup, GroupState


class Client:
    """The bytes that arrive at the other side."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.progress = 0
        self.replies = ReplyQueue(self.sent.append, self._progress)

    def _progress(self) -> None:
        self.progress += 1


def sorry(error: Exception) -> bytes:
    return f"<{error}>".encode()


def test_replies_that_are_ready_leave_as_one() -> None:
    client = Client()
    client.replies.enqueue(b"a")
    client.replies.enqueue(b"b")
    assert client.sent == []
    assert not client.replies.empty and not client.replies.blocked
    client.replies.flush()
    client.replies.flush()
    assert client.sent == [b"ab"]
    assert client.replies.empty


def test_a_reply_waits_for_its_group_and_others_wait_behind_it() -> None:
    client, group = Client(), CommitGroup()
    client.replies.enqueue(b"a")
    client.replies.enqueue(b"b", group, sorry)
    client.replies.enqueue(b"c")
    client.replies.flush()
    assert client.sent == [b"a"]
    assert client.replies.blocked
    group.finish()
    assert client.sent == [b"a", b"bc"]
    assert client.progress == 1
    assert client.replies.empty and not client.replies.blocked


def test_if_the_group_fails_each_reply_is_replaced() -> None:
    client, group = Client(), CommitGroup()
    client.replies.enqueue(b"a", group, sorry)
    client.replies.enqueue(b"b", group, sorry)
    client.replies.enqueue(b"c")
    group.finish(OSError("full"))
    assert client.sent == [b"<full><full>c"]
    assert client.replies.held_bytes == 0


def test_if_the_group_fails_the_only_reply_is_replaced() -> None:
    client, group = Client(), CommitGroup()
    client.replies.enqueue(b"a", group, sorry, 1000)
    group.finish(OSError("full"))
    assert client.sent == [b"<full>"]
    assert client.replies.held_bytes == 0


def test_groups_that_are_done_are_not_waited_for() -> None:
    client, good, bad = Client(), CommitGroup(), CommitGroup()
    good.finish()
    bad.finish(OSError("full"))
    client.replies.enqueue(b"a", good, sorry)
    client.replies.enqueue(b"b", bad, sorry)
    client.replies.enqueue(b"c", None, sorry)
    client.replies.flush()
    assert client.sent == [b"a<full>c"]
    assert client.progress == 0


def test_one_callback_for_each_group_however_many_replies() -> None:
    client, first, second = Client(), CommitGroup(), CommitGroup()
    for group in (first, first, second, first, second):
        client.replies.enqueue(b"x", group, sorry)
    assert len(first._callbacks) == len(second._callbacks) == 1
    first.finish()
    assert client.sent == [b"xx"]
    second.finish()
    assert client.sent == [b"xx", b"xxx"]


def test_held_bytes_count_replies_and_what_they_hold() -> None:
    client, group = Client(), CommitGroup()
    client.replies.enqueue(b"1234", group, sorry, holds=1000)
    client.replies.enqueue(b"12")
    assert client.replies.held_bytes == 1006
    group.finish()
    assert client.replies.held_bytes == 0
    client.replies.enqueue(b"12")
    assert client.replies.held_bytes == 2
    client.replies.flush()
    assert client.replies.held_bytes == 0


def test_after_discard_nothing_is_sent_and_nothing_is_held() -> None:
    client, group = Client(), CommitGroup()
    client.replies.enqueue(b"a", group, sorry, holds=5)
    client.replies.discard()
    client.replies.enqueue(b"b")
    client.replies.enqueue(b"c", CommitGroup(), sorry)
    group.finish()
    client.replies.flush()
    assert (client.sent, client.progress, client.replies.held_bytes) == ([], 0, 0)
    assert client.replies.empty


kinds = st.sampled_from(["ready", "group 0", "group 1", "group 2", "flush"])


@given(st.lists(kinds, max_size=30), st.permutations(range(3)), st.sets(st.integers(0, 2)))
def test_whatever_gets_ready_when_the_order_of_replies_is_that_of_requests(
    wanted: list[str], order: list[int], failing: set[int]
) -> None:
    client, groups = Client(), [CommitGroup() for _ in range(3)]
    expected = []
    for number, kind in enumerate(wanted):
        data = f"{number};".encode()
        if kind == "ready":
            client.replies.enqueue(data)
        elif kind == "flush":
            client.replies.flush()
            continue
        else:
            client.replies.enqueue(data, groups[int(kind[-1])], lambda _, data=data: b"!" + data)  # type: ignore[misc]
            if int(kind[-1]) in failing:
                data = b"!" + data
        expected.append(data)
    for index in order:
        groups[index].finish(OSError() if index in failing else None)
    client.replies.flush()
    assert b"".join(client.sent) == b"".join(expected)
    assert client.replies.held_bytes == 0
    assert all(group.state is not GroupState.OPEN for group in groups)


def test_where_nothing_is_said_nothing_is_sent() -> None:
    sent: list[bytes] = []
    replies = ReplyQueue(sent.append)
    group = CommitGroup()
    replies.enqueue(b"", group, None, holds=10)
    replies.enqueue(b"", group, None)
    assert replies.held_bytes == 10
    group.finish()
    assert (sent, replies.empty, replies.held_bytes) == ([], True, 0)
