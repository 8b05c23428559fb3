"""Mermaid's diagrams as SVG, so that the site needs no script for them.

Only what our documents use: sequences with participants, messages, replies and `alt … else … end`, and flowcharts that
are one chain from left to right. Anything else is an error, which fails the build.
"""

from __future__ import annotations

import re
from typing import Final

from scripts.pictures.canvas import Canvas

COLUMN: Final = 200
ROW: Final = 40
TOP: Final = 84
MARGIN: Final = 110

STEP: Final = 190
_NODE: Final = re.compile(r'\w+\["?([^"\]]+)"?\]')
_PARTICIPANT: Final = re.compile(r"participant (\w+)(?: as (.+))?$")
_MESSAGE: Final = re.compile(r"(\w+)(-?->>)(\w+): (.+)$")
_BRANCH: Final = re.compile(r"(alt|else|end)\b ?(.*)$")


class UnknownLine(ValueError):
    """A line that this cannot draw."""


def diagram_svg(source: str) -> str:
    kind, *lines = [line.strip() for line in source.strip().splitlines() if line.strip()]
    if kind == "sequenceDiagram":
        return sequence_svg(lines)
    if kind == "flowchart LR" and len(lines) == 1:
        return chain_svg(lines[0])
    raise UnknownLine(f"a diagram that is not drawn here: make a picture of it, in scripts/pictures: {kind}")


def chain_svg(line: str) -> str:
    nodes = [_NODE.fullmatch(node.strip()) for node in line.split("-->")]
    titles = [node[1] for node in nodes if node is not None]
    if len(titles) != len(nodes):
        raise UnknownLine(line)
    canvas = Canvas(STEP * len(titles) + 8, 84, "Steps from left to right")
    for number, title in enumerate(titles):
        first, *rest = title.split(", ", 1)
        canvas.box(12 + STEP * number, 16, STEP - 28, 52, first, *rest)
        if number:
            canvas.arrow((STEP * number - 15, 42), (STEP * number + 10, 42))
    return canvas.svg()


def sequence_svg(lines: list[str]) -> str:
    names = {found[1]: found[2] or found[1] for line in lines if (found := _PARTICIPANT.match(line))}
    steps = [line for line in lines if not _PARTICIPANT.match(line)]
    width, height = 2 * MARGIN + COLUMN * (len(names) - 1), TOP + ROW * (len(steps) + 1)
    canvas = Canvas(width, height, "Sequence diagram")
    at = {name: MARGIN + COLUMN * number for number, name in enumerate(names)}
    for name, title in names.items():
        canvas.line(at[name], 54, height - 16)
        *folder, file = title.rsplit("/", 1)
        canvas.box(at[name] - 95, 14, 190, 42, file, *([folder[0] + "/"] if folder else []), kind="door")
    for number, line in enumerate(steps):
        _step(canvas, at, line, TOP + ROW * number + 14, width)
    return canvas.svg()


def _step(canvas: Canvas, at: dict[str, int], line: str, y: float, width: int) -> None:
    if branch := _BRANCH.match(line):
        if branch[1] != "end":
            canvas.text(16, y, f"[{branch[2]}]", "small")
        canvas.rule(12, width - 12, y + 8)
        return
    message = _MESSAGE.match(line)
    if message is None:
        raise UnknownLine(line)
    start, arrow, end, text = message.groups()
    if start == end:
        canvas.text(at[start] + 10, y + 4, text, "small")
        return
    kind = "reply" if arrow == "-->>" else "line"
    canvas.text((at[start] + at[end]) / 2, y - 6, text, "small", "middle")
    canvas.arrow((at[start], y), (at[end], y), kind=kind, dashed=kind == "reply")
