"""Runs production functions without one guard, for the duration of a test.

A guard is a piece of production code with a comment that names its mutant:

    if action.epoch <= meta.fence:  # against fence-falls

or, if the line is full, with the comment alone on the line before. The mutant with this name
removes the guard, so code may be moved, renamed and formatted freely. The code object of the
function is replaced, so that every importer of the function runs the changed one.
"""

import ast
import builtins
import copy
import dis
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType

ROOT = Path(__file__).parents[2]
# Folders at the root, and the package names of their modules.
PACKAGES = {
    "eventlog": "eventlog",
    "readers": "eventlog.readers",
    "writers": "eventlog.writers",
    "compaction": "eventlog.compaction",
    "pyspark_eventlog": "pyspark_eventlog",
}
_COMMENT = re.compile(r"#\s*against\s+([a-z0-9][a-z0-9, -]*)$")
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Stale(Exception):
    """The mutant does not fit the code any more."""


# A change of the code at a comment: returns the node, or the statements, to use instead.
Change = Callable[[ast.AST], ast.AST | list[ast.stmt]]


def _with_condition(node: ast.AST, condition: ast.expr) -> ast.AST:
    """A node with its condition or value replaced."""
    field = {
        ast.If: "test",
        ast.While: "test",
        ast.ExceptHandler: "type",
        ast.Return: "value",
        ast.Assign: "value",
        ast.AnnAssign: "value",
        ast.AugAssign: "value",
        ast.Expr: "value",
        ast.keyword: "value",
    }.get(type(node))
    if field is None and not isinstance(node, ast.expr):
        raise Stale(f"a {type(node).__name__} has no condition and no value")
    if field is not None:
        setattr(node, field, condition)
        return node
    return condition


def becomes(text: str) -> Change:
    """Replace the condition or value with another expression."""
    return lambda node: _with_condition(node, ast.parse(text, mode="eval").body)


never = becomes("False")
always = becomes("True")


def keep(position: int) -> Change:
    """Keep only one part of a condition with several (`a or b`)."""

    def change(node: ast.AST) -> ast.AST:
        condition = getattr(node, "test", None) or getattr(node, "value", None) or node
        if not isinstance(condition, ast.BoolOp):
            raise Stale("the condition has one part")
        return _with_condition(node, condition.values[position])

    return change


def without(position: int) -> Change:
    """Remove one part of a condition with several (`a or b`)."""

    def change(node: ast.AST) -> ast.AST:
        condition = getattr(node, "test", None) or getattr(node, "value", None) or node
        if not isinstance(condition, ast.BoolOp):
            raise Stale("the condition has one part")
        rest = [part for n, part in enumerate(condition.values) if n != position]
        if len(rest) == len(condition.values):
            raise Stale(f"the condition has {len(rest)} parts")
        return _with_condition(node, rest[0] if len(rest) == 1 else ast.BoolOp(condition.op, rest))

    return change


def skip(node: ast.AST) -> ast.AST:
    """Remove the statement."""
    if not isinstance(node, ast.stmt):
        raise Stale(f"a {type(node).__name__} is not a statement")
    return ast.Pass()


def instead(text: str) -> Change:
    """Replace the statement with others."""
    return lambda _node: ast.parse(text).body


def first(text: str) -> Change:
    """Insert other statements before it."""
    return lambda node: [*ast.parse(text).body, node]  # type: ignore[list-item]


@dataclass(frozen=True)
class Mutant:
    """The production code without one guard.

    Attributes:
        name: unique.
        hazards: the hazards that the guard prevents.
        guard: what is removed, as text.
        changes: the changes, by the name in the comment. More than one if a guard has a second line
            of defence, or two places.
        killers: names of tests, at least one of which must fail.
    """

    name: str
    hazards: str
    guard: str
    changes: Mapping[str, Change]
    killers: tuple[str, ...]


def mutant(
    name: str,
    hazards: str,
    guard: str,
    change: Change,
    *killers: str,
    also: Mapping[str, Change] | None = None,
) -> Mutant:
    """Return a mutant whose guard has its own name in the comment."""
    return Mutant(name, hazards, guard, {name: change, **(also or {})}, killers)


@dataclass(frozen=True)
class Place:
    """The place of a comment: a file below the root, and the line of code that it is about."""

    file: str
    line: int


@cache
def places() -> Mapping[str, Place]:
    """Return the place of every name in a comment.

    Raises:
        Stale: a name occurs in two places.
    """
    by_name: dict[str, Place] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            lines = path.read_text(encoding="utf-8").splitlines()
            for number, line in enumerate(lines, 1):
                comment = _COMMENT.search(line)
                if comment is None:
                    continue
                at = number
                while lines[at - 1].lstrip().startswith("#"):
                    at += 1
                for name in comment[1].replace(" ", "").split(","):
                    if name in by_name:
                        raise Stale(f"{name} occurs at {by_name[name]} and at {path}:{number}")
                    by_name[name] = Place(str(path.relative_to(ROOT)), at)
    return by_name


def place_of(name: str) -> Place:
    """Return the place of the comment with a name.

    Raises:
        Stale: there is no such comment.
    """
    if name not in places():
        raise Stale(f"no comment `# against {name}` in the code")
    return places()[name]


@cache
def _tree(file: str) -> tuple[list[str], ast.Module]:
    text = (ROOT / file).read_text(encoding="utf-8")
    return text.splitlines(), ast.parse(text)


def _around(
    node: ast.AST, line: int, path: tuple[str, ...] = ()
) -> tuple[Function, tuple[str, ...]]:
    """Return the function that contains a line, and its qualified name."""
    for child in getattr(node, "body", ()):
        if isinstance(child, ast.stmt) and child.lineno <= line <= (child.end_lineno or 0):
            if isinstance(child, ast.ClassDef):
                return _around(child, line, (*path, child.name))
            if isinstance(child, Function):
                return child, (*path, child.name)
    raise Stale(f"line {line} is in no function")


def function_at(place: Place) -> FunctionType:
    """Return the function itself, without properties, class methods and caches around it."""
    _, names = _around(_tree(place.file)[1], place.line)
    folder, _, inside = place.file.removesuffix(".py").replace("/", ".").partition(".")
    name = f"{PACKAGES[folder]}.{inside}".removesuffix(".__init__")
    owner: object = importlib.import_module(name)
    for name in names:
        owner = inspect.getattr_static(owner, name)
    for inner in ("fget", "func", "__func__"):  # of properties, those that are cached, and methods
        owner = getattr(owner, inner, None) or owner
    return inspect.unwrap(owner)  # type: ignore[arg-type,return-value]


class _Exchange(ast.NodeTransformer):
    """Applies changes at lines: each at the outermost node that starts at the line, or its `if`."""

    def __init__(self, lines: list[str], changes: Mapping[int, list[Change]]):
        self._lines, self._changes, self.made = lines, dict(changes), 0

    def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        if line in self._changes and self._lines[line - 1][:column].strip() in {"", "if"}:
            changes = self._changes.pop(line)  # before its children, which may start here too
            after: ast.AST | list[ast.stmt] = self.generic_visit(node)
            for change in changes:
                after = change(after)  # type: ignore[arg-type]
                self.made += 1
            return after
        return self.generic_visit(node)


def changed(changes: list[tuple[str, Change]]) -> FunctionType:
    """Return a function with all changes applied, without installing it.

    Raises:
        Stale: one of them does not fit the code.
    """
    at = [place_of(name) for name, _ in changes]
    names = ", ".join(name for name, _ in changes)
    function = function_at(at[0])
    lines, tree = _tree(at[0].file)
    node = copy.deepcopy(_around(tree, at[0].line)[0])
    node.decorator_list = []
    before = ast.dump(node)
    by_line: dict[int, list[Change]] = {}
    for place, (_, change) in zip(at, changes, strict=True):
        by_line.setdefault(place.line, []).append(change)
    exchange = _Exchange(lines, by_line)
    exchange.generic_visit(node)
    if exchange.made != len(changes):
        raise Stale(f"{names}: no statement or argument begins at its line")
    if ast.dump(node) == before:
        raise Stale(f"{names}: does the same as before")
    future = ast.parse("from __future__ import annotations").body
    module = ast.fix_missing_locations(ast.Module([*future, node], []))
    made: dict[str, FunctionType] = {}
    exec(compile(module, function.__code__.co_filename, "exec"), function.__globals__, made)
    after = made[function.__name__]
    if after.__code__.co_freevars != function.__code__.co_freevars:
        raise Stale(f"{names}: uses names from around the function")
    unknown = _globals_of(after.__code__) - set(function.__globals__) - set(dir(builtins))
    if unknown:
        raise Stale(f"{names}: the function has no {', '.join(sorted(unknown))}")
    return after


def _globals_of(code: CodeType) -> set[str]:
    """Return the global names that code, and the functions in it, use."""
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    read = {
        i.argval for i in dis.get_instructions(code) if i.opname in {"LOAD_GLOBAL", "LOAD_NAME"}
    }
    return read.union(*map(_globals_of, inner))


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Run the production code with the mutant's changes.

    Raises:
        Stale: the mutant does not fit the code any more.
    """
    by_function: dict[FunctionType, list[tuple[str, Change]]] = {}
    for name, change in mutant.changes.items():
        by_function.setdefault(function_at(place_of(name)), []).append((name, change))
    after = [(function, changed(changes)) for function, changes in by_function.items()]
    before = [(function, function.__code__) for function, _ in after]
    for function, new in after:
        function.__code__ = new.__code__
    try:
        yield
    finally:
        for function, code in before:
            function.__code__ = code
