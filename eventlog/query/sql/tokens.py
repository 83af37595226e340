"""Checks of the tokens of a SQL expression before parsing.

The parser recurses with the nesting of its input, so nesting is bounded. Engines group some
operators differently, so text that could be grouped in two ways is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eventlog.errors import InvalidInput
from eventlog.query.sql.functions import UNITS

MAX_NESTING = 32

_OPEN = {"L_PAREN", "L_BRACKET", "L_BRACE", "CASE"}
_CLOSE = {"R_PAREN", "R_BRACKET", "R_BRACE", "END"}
# Token types that nest without a parenthesis, or precede an operand.
_PREFIXES = {"NOT", "DASH", "PLUS", "TILDA", "CASE", "CAST"}
_COMPARISONS = {"EQ", "NEQ", "LT", "LTE", "GT", "GTE", "NULLSAFE_EQ"}
_RANGES = {"IN", "BETWEEN", "LIKE", "ILIKE"}
_TESTS = {"IS", "ISNULL", "NOTNULL"}
_SEPARATORS = {"AND", "OR", "COMMA", "WHEN", "THEN", "ELSE"}
# The types of a CAST as text. Others have two meanings, such as INT8: of 8 bits, or of 8 bytes.
_TYPES = {
    "BOOLEAN", "BOOL", "TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "REAL", "FLOAT", "DOUBLE",
    "DECIMAL", "NUMERIC", "VARCHAR", "TEXT", "STRING", "DATE", "TIMESTAMP", "TIMESTAMPTZ",
    "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "DATETIME",
}  # fmt: skip
# Functions of which the parser makes a CAST to text.
_HIDDEN_CASTS = {"DATE_TO_DATE_STR", "TIME_TO_TIME_STR", "TS_OR_DS_TO_DATE_STR"}


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


def check_spelling(tokens: Sequence[Any]) -> None:
    """Refuse what the parser reads in another way than it is written.

    Raises:
        InvalidInput: a CAST has a type by a name with several meanings, or is written as a function
            of the parser's own, or the unit of DATE_TRUNC is not in quotes, where the parser takes
            a column `s` for seconds.
    """
    for place, token in enumerate(tokens):
        text, following = str(token.text).upper(), tokens[place + 1 : place + 3]
        if token.token_type.name in ("ALIAS", "DCOLON") and following:
            kind = str(following[0].text)
            if kind.upper() not in _TYPES:  # against type-with-two-meanings
                raise InvalidInput(
                    f"CAST to {kind[:80]!r}: write BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, REAL, "
                    "DOUBLE, DECIMAL(38,9) or the like, STRING, DATE, TIMESTAMP or TIMESTAMP_NTZ"
                )
        if text in _HIDDEN_CASTS and following and following[0].token_type.name == "L_PAREN":
            raise InvalidInput(f"expressions do not support {text}: write CAST(… AS STRING)")
        if text == "DATE_TRUNC" and len(following) == 2:
            unit = following[1]
            if following[0].token_type.name == "L_PAREN" and (
                unit.token_type.name != "STRING" or str(unit.text).lower() not in UNITS
            ):
                raise InvalidInput(
                    f"the unit of DATE_TRUNC is one of {', '.join(UNITS)} in single quotes, not "
                    f"{str(unit.text)[:80]!r}"
                )


def too_deep() -> InvalidInput:
    """Return the error for an expression that is nested too deeply."""
    return InvalidInput(f"the expression nests deeper than {MAX_NESTING} levels")


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
        elif kind in _SEPARATORS:
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
    if not kinds or kinds[-1] in _OPEN | _COMPARISONS | _RANGES | _SEPARATORS | {"NOT"}:
        raise InvalidInput(f"write {shown} between its operands in the expression, as in a = b")


def _note(here: _Level, kind: str, shown: str, following: Sequence[Any]) -> None:
    distinct = any(token.token_type.name == "DISTINCT" for token in following)
    is_test = kind in _TESTS and not distinct
    last = here.operator
    tighter = not last or here.loosest or last in ("IN", "BETWEEN", "LIKE", "ILIKE")
    if last and not (is_test and tighter):
        raise InvalidInput(
            f"engines group {last} next to {shown} in different ways: write parentheses in the "
            "expression, such as (a = b) IS NULL"
        )
    here.operator, here.loosest = shown, is_test
    here.betweens += kind == "BETWEEN"
