"""Tests rows against the checks of a table: false for no row, and computed for every row.

No I/O. A check is text in the language of expressions (`eventlog.query.value_expressions`), whose
columns stand by id in the schema (FORMAT.md R7.13), so that they may be renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eventlog import limits
from eventlog.arguments import shown
from eventlog.errors import InvalidInput
from eventlog.model.columns.named_checks import checks_of
from eventlog.model.entries import Check, CheckColumn, Schema
from eventlog.model.schema import check_field_name
from eventlog.query.sql.parsing import renamed_columns
from eventlog.query.value_expressions import (
    EXAMPLES,
    FAILURES,
    GUARD,
    ValueExpression,
    parse_value,
)


def new_check(name: Any, text: Any, schema: Schema) -> Check:
    """Return a check that the next schema has.

    Args:
        name: its name.
        text: its expression, over columns of the schema.
        schema: the schema before.

    Raises:
        InvalidInput: the name or the expression is not possible.
    """
    if not isinstance(name, str):
        raise InvalidInput(f"the name of a check must be text, not {shown(name)}")
    check_field_name(name, "a check")
    if not isinstance(text, str) or len(text) > limits.CHECK_CHARACTERS:
        raise InvalidInput(
            f"the expression of a check is text of at most {limits.CHECK_CHARACTERS} characters"
        )
    reads = parse_value(text, schema, "bool").columns()
    if not reads:
        raise InvalidInput(f"check {name!r} names no column: {text[:200]!r}")
    columns = (CheckColumn(c.id, c.name) for c in schema.columns if c.name in reads)
    ordered = tuple(sorted(columns, key=lambda column: column.id))
    return Check(name, text, ordered, schema.id + 1)


def check_text(check: Check, schema: Schema) -> str:
    """Return the expression of a check with the names that the columns have in a schema."""
    names = {column.id: column.name for column in schema.columns}
    changed = {c.name: names[c.id] for c in check.columns if names[c.id] != c.name}
    return renamed_columns(check.expression, changed) if changed else check.expression


def check_texts(schema: Schema) -> dict[str, str]:
    """Return the expressions of a schema's checks by name; see `check_text`."""
    return {check.name: check_text(check, schema) for check in checks_of(schema)}


@dataclass
class _Tested:
    """A check, and the rows so far that break it."""

    check: Check
    expression: ValueExpression
    false: int = 0
    failing: int = 0
    examples: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def look_at(self, rows: pa.Table) -> None:
        for batch, values, fails in self.expression.outcomes(rows):
            # Null is no breach, as in SQL.
            wrong = pc.and_not(pc.equal(values, False).fill_null(False), fails)
            self.false += self._note(batch, wrong, self.examples)
            self.failing += self._note(batch, fails, self.failed)

    def _note(self, rows: pa.Table, mask: pa.ChunkedArray, examples: list[str]) -> int:
        """Return how many rows are in a mask, and take examples of them as long as these lack."""
        count: int = pc.sum(mask, min_count=0).as_py()
        if count and len(examples) < EXAMPLES:
            examples += self.expression.shown_rows(rows, mask, EXAMPLES - len(examples))
        return count

    def sentences(self) -> Iterable[str]:
        name, text = self.check.name, self.expression.text[:200]
        if self.false:
            examples = ", ".join(self.examples)
            count = _rows(self.false)
            yield f"check {name!r} ({text}) is false for {count}, for example {examples}"
        if self.failing:
            examples = ", ".join(self.failed)
            failing = f"check {name!r} ({text}) fails for {_rows(self.failing)}, {FAILURES}"
            yield f"{failing}: {examples}. {GUARD}"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


class RowChecks:
    """Tests rows against checks of a schema, and counts those that break one.

    Args:
        schema: the columns of the rows.
        checks: the checks.
        tested: returns those of the rows that are to be tested; None: all are.

    Raises:
        InvalidInput: an expression is none of the language.
    """

    def __init__(
        self,
        schema: Schema,
        checks: Sequence[Check],
        tested: Callable[[pa.Table], pa.Table] | None = None,
    ) -> None:
        self._only, self._tested = tested, list[_Tested]()
        for check in checks:
            try:
                text = check_text(check, schema)
                self._tested.append(_Tested(check, parse_value(text, schema, "bool")))
            except InvalidInput as error:
                raise InvalidInput(
                    f"check {check.name!r} of the table cannot be computed: {error.message}"
                ) from None

    def columns(self) -> frozenset[str]:
        """Return the names of the columns that the checks read."""
        return frozenset().union(*(one.expression.columns() for one in self._tested))

    @property
    def broken(self) -> bool:
        """Whether a row so far breaks a check."""
        return any(one.false or one.failing for one in self._tested)

    def look_at(self, rows: pa.Table) -> None:
        """Test rows.

        Args:
            rows: with the columns that the checks read, in the types of the schema.
        """
        if not self._tested:
            return
        some = rows if self._only is None else self._only(rows)
        for one in self._tested:
            one.look_at(some)

    def problem(self) -> str | None:
        """Return which checks are broken, by how many rows and examples of them; None: none is."""
        return "; ".join(s for one in self._tested for s in one.sentences()) or None

    def refuse(self, advice: str) -> None:
        """Refuse rows that break a check.

        Args:
            advice: ends the message.

        Raises:
            InvalidInput: a row does.
        """
        if problem := self.problem():  # against rows-that-break-a-check
            raise InvalidInput(f"{problem}; {advice}")
