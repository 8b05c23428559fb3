"""The list of modules that `make compiled` compiles fits the source, as far as that can be told without compiling."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.syntax_trees import statements

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "penstock"


def _compiled() -> frozenset[str]:
    """The names of the modules. The script is not imported: a compiler need not be there."""
    for node in ast.parse((ROOT / "scripts" / "compile.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "HOT":
            return frozenset(f"penstock.{name.replace('/', '.')}" for name in ast.literal_eval(node.value))
    raise AssertionError("scripts/compile.py has no list")


def _module(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)


def _bases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Classes that inherit from what a module of ours has, and that module."""
    imported: dict[str, tuple[str, str]] = {}
    for node in statements(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            imported |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
    for node in statements(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for base in node.bases:
            plain = base.value if isinstance(base, ast.Subscript) else base
            if isinstance(plain, ast.Name) and plain.id in imported:
                yield node.name, imported[plain.id][0]
            elif isinstance(plain, ast.Attribute) and isinstance(plain.value, ast.Name) and plain.value.id in imported:
                yield node.name, ".".join(imported[plain.value.id])


def test_every_compiled_module_exists() -> None:
    assert _compiled() <= {_module(path) for path in SOURCE.rglob("*.py")}


def test_no_class_inherits_from_a_compiled_one_without_being_compiled() -> None:
    compiled, found = _compiled(), []
    for path in SOURCE.rglob("*.py"):
        if (module := _module(path)) not in compiled:
            found += [f"{module}.{name}" for name, base in _bases(ast.parse(path.read_text())) if base in compiled]
    assert found == []
