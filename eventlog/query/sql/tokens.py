"""Checks of the tokens of a SQL predicate before parsing.

The parser recurses with the nesting of its input, so nesting is bounded. Engines group some
operators differently, so text that could be grouped in two ways is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eventlog.errors import InvalidInput

MAX_NESTING = 32

_OPEN = {"L_PAREN", "L_BRACKET", "L_BRACE", "CASE"}
_CLOSE = {"R_PAREN", "R_BRACKET", "R_BRACE", "END"}
# Token types that nest without a parenthesis, or precede an operand.
_PREFIXES = {"NOT", "DASH", "PLUS", "TILDA", "CASE", "CAST"}
_COMPARISONS = {"EQ", "NEQ", "LT", "LTE", "GT", "GTE", "NULLSAFE_EQ"}
_RANGES = {"IN", "BETWEEN", "LIKE", "ILIKE"}
_TESTS = {"IS", "ISNULL", "NOTNULL"}


def check_nesting(tokens: Sequence[Any]) -> None:
    """Bound the parser's recursion: open brackets and runs of prefix operators.

    Raises:
        InvalidInput: they are nested deeper than 32 levels.
    """
    depth, run = 0, 0
    for token in tokens:
        kind = token.token_type.name
        if kind in _OPEN:
            depth += 1
        elif kind in _CLOSE:
            depth -= 1
        run = run + 1 if kind in _PREFIXES else 0
        if max(depth, run) > MAX_NESTING:
            raise too_deep()


def too_deep() -> InvalidInput:
    """Return the error for a predicate that is nested too deeply."""
    return InvalidInput(f"the predicate nests deeper than {MAX_NESTING} levels")


@dataclass(slots=True)
class _Level:
    """What one bracket has contained since its last AND, OR or comma."""

    operator: str = ""  # the last operator
    loosest: bool = False  # it is IS, which may follow other operators and itself
    betweens: int = 0  # BETWEENs whose AND has not come yet


def check_grouping(tokens: Sequence[Any]) -> None:
    """Refuse comparisons that are operands of each other without parentheses.

    PostgreSQL and DuckDB read `a = b IS NULL` as `(a = b) IS NULL`, others as `a = (b IS NULL)`.
    The same applies to IN, BETWEEN and LIKE next to a comparison, and to two comparisons.

    Raises:
        InvalidInput: parentheses are needed; the message names the two operators.
    """
    levels = [_Level()]
    for place, token in enumerate(tokens):
        kind = token.token_type.name
        level = levels[-1]
        if kind in _OPEN:
            levels.append(_Level())
        elif kind in _CLOSE:
            levels = levels[:-1] or [_Level()]
        elif kind == "AND" and level.betweens:
            level.betweens -= 1
        elif kind in ("AND", "OR", "COMMA"):
            levels[-1] = _Level()
        elif kind in _COMPARISONS | _RANGES | _TESTS:
            _check_operator(tokens[max(0, place - 2) : place], str(token.text).upper())
            _note(level, kind, str(token.text).upper(), tokens[place + 1 : place + 3])


def _check_operator(before: Sequence[Any], shown: str) -> None:
    """Refuse `like(a, b)`: engines disagree on which of the two is the pattern.

    Args:
        before: the two tokens before the operator, or fewer at the start.
        shown: the operator.
    """
    kinds = [token.token_type.name for token in before]
    if kinds and kinds[-1] == "NOT":
        kinds.pop()
    if not kinds or kinds[-1] in _OPEN | _COMPARISONS | _RANGES | {"AND", "OR", "NOT", "COMMA"}:
        raise InvalidInput(f"write {shown} between its operands in the predicate, as in a = b")


def _note(here: _Level, kind: str, shown: str, following: Sequence[Any]) -> None:
    distinct = any(token.token_type.name == "DISTINCT" for token in following)
    is_test = kind in _TESTS and not distinct
    last = here.operator
    tighter = not last or here.loosest or last in ("IN", "BETWEEN", "LIKE", "ILIKE")
    if last and not (is_test and tighter):
        raise InvalidInput(
            f"engines group {last} next to {shown} in different ways: write parentheses in the "
            "predicate, such as (a = b) IS NULL"
        )
    here.operator, here.loosest = shown, is_test
    here.betweens += kind == "BETWEEN"
