"""Production functions with a piece of their text replaced, for as long as a test needs it.

The code object of the function is exchanged, so that whoever imported the function runs the new
text too. A piece that is not there exactly once is an error: the mutant is then out of date.
"""

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType


class Stale(Exception):
    """The code is no longer what the mutant changes."""


@dataclass(frozen=True)
class Edit:
    """One change: `old` is `new` in the function `where` (`module:name`, `module:Class.name`)."""

    where: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """The production code without one guard.

    Attributes:
        name: unique.
        hazards: what the guard stands against.
        guard: what is removed, in words.
        edits: how. More than one where a guard has a second line of defence, or two places.
        killers: tests, as pytest names them from the root: at least one fails.
    """

    name: str
    hazards: str
    guard: str
    edits: tuple[Edit, ...]
    killers: tuple[str, ...]


def function_of(edit: Edit) -> FunctionType:
    """Return the function itself, behind properties, class methods and caches."""
    module, _, path = edit.where.partition(":")
    found = importlib.import_module(module)
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    found = getattr(found, "fget", None) or getattr(found, "__func__", None) or found
    return inspect.unwrap(found)


def changed(edits: list[Edit]) -> FunctionType:
    """Return the function after all edits of it, made but not put in place.

    Raises:
        Stale: one of them does not fit the code.
    """
    function = function_of(edits[0])
    text = textwrap.dedent(inspect.getsource(function))
    text = text[text.index("def ") :]
    for edit in edits:
        if text.count(edit.old) != 1:
            raise Stale(f"{edit.where} has {edit.old!r} {text.count(edit.old)} times, not once")
        text = text.replace(edit.old, edit.new)
    made: dict[str, FunctionType] = {}
    source = f"from __future__ import annotations\n{text}"
    exec(compile(source, function.__code__.co_filename, "exec"), function.__globals__, made)
    after = made[function.__name__]
    if after.__code__.co_freevars != function.__code__.co_freevars:
        raise Stale(f"{edits[0].where} uses names from around it")
    if after.__code__.co_code == function.__code__.co_code and (
        after.__code__.co_consts == function.__code__.co_consts
    ):
        raise Stale(f"{edits[0].where} does the same as before")
    return after


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Run the production code with the mutant's changes.

    Raises:
        Stale: the code is no longer what it changes.
    """
    by_place: dict[str, list[Edit]] = {}
    for edit in mutant.edits:
        by_place.setdefault(edit.where, []).append(edit)
    after = [(function_of(edits[0]), changed(edits)) for edits in by_place.values()]
    before = [(function, function.__code__) for function, _ in after]
    for function, new in after:
        function.__code__ = new.__code__
    try:
        yield
    finally:
        for function, code in before:
            function.__code__ = code
