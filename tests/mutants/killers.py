"""Finds the tests that mutants name, in whatever file they are."""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tests() -> Mapping[str, tuple[str, ...]]:
    """Return the node ids of pytest by name: `test_x`, `TestClass::test_x`, `test_file.py`."""
    by_name: dict[str, tuple[str, ...]] = {}

    def enter(name: str, node_id: str) -> None:
        by_name[name] = (*by_name.get(name, ()), node_id)

    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        file = path.relative_to(ROOT).as_posix()
        enter(path.name, file)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, Function):
                enter(node.name, f"{file}::{node.name}")
            elif isinstance(node, ast.ClassDef):
                for method in node.body:
                    if isinstance(method, Function):
                        name = f"{node.name}::{method.name}"
                        enter(name, f"{file}::{name}")
    return by_name


def node_ids(names: tuple[str, ...]) -> list[str]:
    """Return the pytest node ids of the tests with these names.

    Raises:
        LookupError: no test has one of the names, or several have.
    """
    ids = []
    for name in names:
        matches = tests().get(name, ())
        if len(matches) != 1:
            raise LookupError(f"{len(matches)} tests are called {name}: {', '.join(matches)}")
        ids.append(matches[0])
    return ids
