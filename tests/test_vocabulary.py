"""The field's own words, kept: docstrings begin with the thing they describe, and words that nobody would search for
do not come back as names. Read from the source, without running it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.syntax_trees import statements

SOURCE = Path(__file__).parent.parent / "src" / "penstock"

# A docstring names the thing ("The lag of a group"), not a relative clause ("How far a group is behind").
_CLAUSE = r"(What|How|Where|Who|Which|Those|When|Why|That)\b"
RELATIVE = re.compile(_CLAUSE)

# Old word → the one that is used instead. `door` is our one word of art.
REPLACED = {
    "backstage": "rpc",
    "bring_into_being": "ensure",
    "broadcasts": "fanout",
    "Call": "RequestContext, AcceptedRequest",
    "CareJob": "MaintenanceJob",
    "Desk": "QueryCapability, PublishContext",
    "Fate": "Decision",
    "Feed": "PartitionDispatcher",
    "FetchRun": "FetchTask",
    "follower": "tailer, subscriber",
    "Follower": "Tailer, FanoutSubscriber",
    "Guest": "TrackedConnection",
    "intake": "validation",
    "Kept": "StoredValue",
    "ledger": "state_log",
    "Ledger": "StateLog",
    "Lookout": "SpinBudget",
    "LiveRead": "VisibleRead",
    "LiveView": "VisibleRows",
    "offload": "executor",
    "Misfit": "ConversionError, CastFailure",
    "misfits": "mismatches, failures",
    "Outbox": "ReplyQueue",
    "outbox": "replies",
    "Pace": "RateLimit",
    "Place": "the noun of what it is a place of",
    "patiently": "start_with_retries",
    "PollRun": "PollTask",
    "Portion": "RecordChunk, EncodedChunk, ProduceBatch",
    "put_after": "enqueue",
    "Question": "RequestSpec",
    "ReadRun": "FetchTask",
    "regulate": "apply_backpressure",
    "resting": "yielding",
    "Scatter": "PartitionSplitter",
    "Seat": "SubscriberSlot, FanoutSubscriber",
    "skim": "skip_expired, header_scan",
    "Slowly": "OffloadedReply",
    "STRETCH": "MAX_PER_TURN",
    "survey": "read_view",
    "surveys": "read_views",
    "Taking": "Dequeue",
    "told": "acknowledged, reported, announced",
    "unsettled": "pending_commit",
    "winners": "latest_rows",
}
# Only a source that this finds something in can have a problem: few need to be parsed.
SUSPECT = re.compile(rf"""["'\\]\s*{_CLAUSE}|\b_*({"|".join(REPLACED)})\b""")


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, docstring) of the module, its classes and functions."""
    for node in (tree, *statements(tree)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, name) of all that the source names: functions, classes, parameters, variables, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def problems(text: str) -> list[str]:
    if SUSPECT.search(text) is None:
        return []
    tree = ast.parse(text)
    found = [f"{line}: docstring begins {doc.split()[0]!r}" for line, doc in docstrings(tree) if RELATIVE.match(doc)]
    for line, name in names(tree):
        word = name.lstrip("_")
        if word in REPLACED:
            found.append(f"{line}: {name}: say {REPLACED[word]}")
    return found


def test_the_source_keeps_to_the_vocabulary() -> None:
    found = {
        str(path.relative_to(SOURCE)): bad
        for path in sorted(SOURCE.rglob("*.py"))
        if (bad := problems(path.read_text()))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"""What is kept."""', "docstring begins 'What'"),
        ('class A:\n    """Those that wait."""', "docstring begins 'Those'"),
        ('def f():\n    """How many there are."""', "docstring begins 'How'"),
        ("class Outbox: ...", "say ReplyQueue"),
        ("def f(survey): ...", "say read_view"),
        ("class A:\n    def __init__(self):\n        self._ledger = 1", "say state_log"),
    ],
)
def test_a_planted_word_is_found(text: str, said: str) -> None:
    assert any(said in problem for problem in problems(text))


def test_other_words_are_let_through() -> None:
    assert problems('"""Whether it is open."""\nclass Whatever:\n    """The queue."""\n    place = 1') == []
