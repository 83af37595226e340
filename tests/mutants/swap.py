"""Production functions without one guard, for as long as a test needs it.

A guard is a piece of production code with a comment that names what it stands against:

    if action.epoch <= meta.fence:  # against fence-falls

or, where the line is full, with the comment alone on the line before. The name is that of the
mutant that takes the guard away, so that code may be moved, renamed and formatted freely. The code
object of the function is exchanged: whoever imported the function runs the changed one.
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
# Folders at the root, and what their modules are called.
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
    """The code is no longer what the mutant changes."""


# What becomes of the code at a comment: a statement, a keyword or an expression in its place.
Change = Callable[[ast.AST], ast.AST | list[ast.stmt]]


def _with_condition(node: ast.AST, condition: ast.expr) -> ast.AST:
    """The part of a node that decides or that has the value, exchanged."""
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
    """The condition or value becomes another expression."""
    return lambda node: _with_condition(node, ast.parse(text, mode="eval").body)


never = becomes("False")
always = becomes("True")


def keep(position: int) -> Change:
    """Of a condition in several parts (`a or b`) this one stays, alone."""

    def change(node: ast.AST) -> ast.AST:
        condition = getattr(node, "test", None) or getattr(node, "value", None) or node
        if not isinstance(condition, ast.BoolOp):
            raise Stale("the condition has one part")
        return _with_condition(node, condition.values[position])

    return change


def without(position: int) -> Change:
    """Of a condition in several parts (`a or b`) this one is not there."""

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
    """The statement is not there."""
    if not isinstance(node, ast.stmt):
        raise Stale(f"a {type(node).__name__} is no statement")
    return ast.Pass()


def instead(text: str) -> Change:
    """The statement becomes others."""
    return lambda _node: ast.parse(text).body


def first(text: str) -> Change:
    """Other statements run before it."""
    return lambda node: [*ast.parse(text).body, node]  # type: ignore[list-item]


@dataclass(frozen=True)
class Mutant:
    """The production code without one guard.

    Attributes:
        name: unique.
        hazards: what the guard stands against.
        guard: what is removed, in words.
        changes: by the name in the comment. More than one where a guard has a second line of
            defence, or two places.
        killers: names of tests: at least one fails.
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
    """Where a comment stands: a file below the root, and the line of the code that it is about."""

    file: str
    line: int


@cache
def places() -> Mapping[str, Place]:
    """Return the place of every name in a comment.

    Raises:
        Stale: a name stands in two places.
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
                        raise Stale(f"{name} stands at {by_name[name]} and at {path}:{number}")
                    by_name[name] = Place(str(path.relative_to(ROOT)), at)
    return by_name


def place_of(name: str) -> Place:
    """Return where the comment with a name stands.

    Raises:
        Stale: nowhere.
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
    """Return the function in which a line is, and the names that lead to it."""
    for child in getattr(node, "body", ()):
        if isinstance(child, ast.stmt) and child.lineno <= line <= (child.end_lineno or 0):
            if isinstance(child, ast.ClassDef):
                return _around(child, line, (*path, child.name))
            if isinstance(child, Function):
                return child, (*path, child.name)
    raise Stale(f"line {line} is in no function")


def function_at(place: Place) -> FunctionType:
    """Return the function itself, behind properties, class methods and caches."""
    _, names = _around(_tree(place.file)[1], place.line)
    folder, _, inside = place.file.removesuffix(".py").replace("/", ".").partition(".")
    owner: object = importlib.import_module(f"{PACKAGES[folder]}.{inside}")
    for name in names:
        owner = inspect.getattr_static(owner, name)
    owner = getattr(owner, "fget", None) or getattr(owner, "__func__", None) or owner
    return inspect.unwrap(owner)  # type: ignore[arg-type,return-value]


class _Exchange(ast.NodeTransformer):
    """Makes changes at lines: each at the outermost node that begins the line, or its `if`."""

    def __init__(self, lines: list[str], changes: Mapping[int, list[Change]]):
        self._lines, self._changes, self.made = lines, dict(changes), 0

    def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        if line in self._changes and self._lines[line - 1][:column].strip() in {"", "if"}:
            changes = self._changes.pop(line)  # first: what it consists of may begin here too
            after: ast.AST | list[ast.stmt] = self.generic_visit(node)
            for change in changes:
                after = change(after)  # type: ignore[arg-type]
                self.made += 1
            return after
        return self.generic_visit(node)


def changed(changes: list[tuple[str, Change]]) -> FunctionType:
    """Return a function after all changes in it, made but not put in place.

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
        raise Stale(f"{names}: the function knows no {', '.join(sorted(unknown))}")
    return after


def _globals_of(code: CodeType) -> set[str]:
    """Return the names that code, and the functions in it, look for outside."""
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    read = {
        i.argval for i in dis.get_instructions(code) if i.opname in {"LOAD_GLOBAL", "LOAD_NAME"}
    }
    return read.union(*map(_globals_of, inner))


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Run the production code with the mutant's changes.

    Raises:
        Stale: the code is no longer what it changes.
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
