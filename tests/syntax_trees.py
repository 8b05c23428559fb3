"""Statements of parsed sources. `ast.walk` visits every expression too, which takes ten times as long."""

from __future__ import annotations

import ast
from collections.abc import Iterator

BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Every statement, however deep it stands in others."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        for block in BLOCKS:
            waiting.extend(getattr(node, block, ()))
