"""The existing tests, parsed from their files without importing them."""

import ast
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def functions(file: str) -> dict[str, Function]:
    """Return the functions and methods of a file below `tests/`, by name; none if it is missing."""
    path = TESTS / file
    if not path.is_file():
        return {}
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name: node for node in nodes if isinstance(node, Function)}
