"""Topic patterns: `+` is one level, `#` at the end is all further ones, `/` separates levels.

`a/#` also matches `a`. The server does not support patterns: a consumer lists the topics and matches them itself.
"""

from __future__ import annotations


def is_pattern(topic: str) -> bool:
    return any(level in ("+", "#") for level in topic.split("/"))


def check(pattern: str) -> None:
    """Raises ValueError if a `#` is not at the end."""
    if "#" in pattern.split("/")[:-1]:
        raise ValueError(f"# must be the last level of a pattern: {pattern!r}")


def matches(pattern: str, topic: str) -> bool:
    wanted, levels = pattern.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(one in ("+", level) for one, level in zip(wanted, levels, strict=True))
