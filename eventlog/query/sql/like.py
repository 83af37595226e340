"""LIKE patterns: to conditions that can be pruned by statistics, else to a regular expression.

`%` matches any text, `_` any one character; the pattern must match the entire text.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.model.entries import Column
from eventlog.query.conditions import And, Compare, Condition, Const, Fixed, Opaque, Prefix
from eventlog.query.sql.literals import Value
from eventlog.query.sql.values import Operand, Term, to_term

_ANY, _ONE = object(), object()


def like(subject: Operand, pattern: Value, escape: Value, *, any_case: bool) -> Condition:
    """Return `subject LIKE pattern [ESCAPE escape]`, or ILIKE.

    ILIKE compares both sides in lower case.

    Args:
        subject: the value to match.
        pattern: the pattern.
        escape: the escape character; None: there is none.
        any_case: ILIKE.

    Raises:
        InvalidInput: the subject or the pattern is not text, or the escape is not one character.
    """
    term = to_term(subject)
    if term.type not in ("string", None):
        raise InvalidInput(f"LIKE needs text, not {term.type}")
    if pattern is None or term.type is None:
        return Const(None)
    if not isinstance(pattern, str):
        raise InvalidInput("the pattern of LIKE must be a text literal")
    if escape is not None and not (isinstance(escape, str) and len(escape) == 1):
        raise InvalidInput("ESCAPE must be exactly one character")
    parts = _parts(pattern, escape)
    if any_case:
        parts = [_lower(part) if isinstance(part, str) else part for part in parts]
        term = replace(term, expression=pc.utf8_lower(term.expression))
    if isinstance(subject, Column) and not any_case:
        return _of_column(subject, parts)
    return _matching(term, parts)


def _of_column(column: Column, parts: list[object]) -> Condition:
    head = parts[0] if parts and isinstance(parts[0], str) else ""
    if len(parts) == (1 if head else 0):
        return Compare(column, "=", pa.scalar(head, pa.string()))
    if parts == [_ANY]:
        return Fixed(column, value=True)
    if not head:
        return _matching(to_term(column), parts)
    prefix = Prefix(column, head)
    if parts[1:] == [_ANY]:
        return prefix
    return And((prefix, _matching(to_term(column), parts)))


def _matching(term: Term, parts: list[object]) -> Condition:
    regex = "".join(
        ".*" if part is _ANY else "." if part is _ONE else _quoted(str(part)) for part in parts
    )
    matches = pc.match_substring_regex(term.expression, rf"\A(?s:{regex})\z")
    return Opaque(matches, term.names, term.fails)


def _parts(pattern: str, escape: str | None) -> list[object]:
    """Return texts and wildcards in order, with neighbouring texts joined."""
    parts: list[object] = []
    characters = iter(pattern)
    for character in characters:
        part: object = character
        if character == escape:
            part = next(characters, None)
            if part is None:
                raise InvalidInput("the LIKE pattern ends with its escape character")
        elif character in "%_":
            part = _ANY if character == "%" else _ONE
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += part
        elif not (part is _ANY and parts and parts[-1] is _ANY):
            parts.append(part)
    return parts


def _lower(text: str) -> str:
    return str(pc.utf8_lower(pa.scalar(text)).as_py())


def _quoted(text: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else f"\\x{{{ord(c):X}}}" for c in text)
