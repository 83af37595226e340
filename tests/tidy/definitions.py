"""The tests that are there, read from their files without importing any."""

import ast
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def functions(file: str) -> dict[str, Function]:
    """Return the functions and methods of a file below `tests/`, by name; none where it is none."""
    path = TESTS / file
    if not path.is_file():
        return {}
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name: node for node in nodes if isinstance(node, Function)}


@cache
def arguments() -> dict[str, set[str]]:
    """Return the arguments of every test, by its name; of several of one name those of each."""
    found: dict[str, set[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for name, node in functions(str(path.relative_to(TESTS))).items():
            found.setdefault(name, set()).update(a.arg for a in node.args.args)
    return found


@cache
def asserts_something(file: str, name: str) -> bool:
    """Tell whether a file defines a function of that name that asserts, or expects an error."""
    function = functions(file).get(name)
    nodes = ast.walk(function) if function is not None else ()
    return any(isinstance(node, ast.Assert | ast.With) for node in nodes)
