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
    value_text,
)

_CONTEXT = 4  # columns that an example shows beside those of the check


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
    """Return the expression of a check with the names that the columns have in a schema.

    Raises:
        InvalidInput: sqlglot is not installed, and a column has another name.
    """
    names = {column.id: column.name for column in schema.columns}
    changed = {c.name: names[c.id] for c in check.columns if names[c.id] != c.name}
    return renamed_columns(check.expression, changed) if changed else check.expression


def check_texts(schema: Schema) -> dict[str, str]:
    """Return the expressions of a schema's checks by name; see `check_text`."""
    return {check.name: check_text(check, schema) for check in checks_of(schema)}


@dataclass
class _Broken:
    """Rows that break a check in one way: their number, examples, and the ends of their times."""

    count: int = 0
    examples: list[str] = field(default_factory=list)
    times: pa.Array | None = None

    def note(
        self, expression: ValueExpression, rows: pa.Table, mask: pa.ChunkedArray, beside: pa.Table
    ) -> None:
        """Count the rows of a mask, and take examples of them as long as these lack.

        Args:
            expression: that of the check.
            rows: what it reads.
            mask: which of the rows break the check.
            beside: the other columns to show; the first one is the event time.
        """
        count = pc.sum(mask, min_count=0).as_py()
        self.count += count
        if count and len(self.examples) < EXAMPLES:
            most = EXAMPLES - len(self.examples)
            self.examples += expression.shown_rows(rows, mask, most, beside)
        if count and beside.num_columns:
            times = pc.drop_null(beside.column(0).filter(mask)).combine_chunks()
            ends = times if self.times is None else pa.concat_arrays([self.times, times])
            ends = ends.take(pc.array_sort_indices(ends))
            self.times = pa.concat_arrays([ends[:1], ends[-1:]])

    def __str__(self) -> str:
        if self.count == 1:
            return "1 row"
        if self.times is None or not len(self.times):
            return f"{self.count} rows"
        first, last = map(value_text, self.times)
        span = first if first == last else f"{first} to {last}"
        return f"{self.count} rows (times: {span})"


@dataclass
class _Tested:
    """A check, and the rows so far that break it."""

    check: Check
    expression: ValueExpression
    context: Sequence[str]
    false: _Broken = field(default_factory=_Broken)
    failing: _Broken = field(default_factory=_Broken)

    def look_at(self, rows: pa.Table) -> None:
        start = 0
        beside = rows.select([name for name in self.context if name in rows.column_names])
        for batch, values, fails in self.expression.outcomes(rows):
            # Null is no breach, as in SQL.
            wrong = pc.and_not(pc.equal(values, False).fill_null(False), fails)
            others = beside.slice(start, batch.num_rows)
            for broken, mask in ((self.false, wrong), (self.failing, fails)):
                broken.note(self.expression, batch, mask, others)
            start += batch.num_rows

    def sentences(self) -> Iterable[str]:
        name, text = self.check.name, self.expression.text[:200]
        if self.false.count:
            examples = ", ".join(self.false.examples)
            yield f"check {name!r} ({text}) is false for {self.false}, for example {examples}"
        if self.failing.count:
            examples = ", ".join(self.failing.examples)
            failing = f"check {name!r} ({text}) fails for {self.failing}, {FAILURES}"
            yield f"{failing}: {examples}. {GUARD}"


def context_of(schema: Schema, time_column: str, key: Sequence[str] = ()) -> list[str]:
    """Return the columns by which people find a row: its time, and its key or the first others.

    Args:
        schema: of the table.
        time_column: the table's.
        key: the columns of the table's key, if it has one.
    """
    names = [*key] or [c.name for c in schema.columns if isinstance(c.type, str)]
    return list(dict.fromkeys([time_column, *names]))[:_CONTEXT]


class RowChecks:
    """Tests rows against checks of a schema, and counts those that break one.

    Args:
        schema: the columns of the rows.
        checks: the checks.
        tested: returns those of the rows that are to be tested; None: all are.
        context: columns whose values examples show first, where the rows have them (`context_of`).

    Raises:
        InvalidInput: an expression is none of the language; or sqlglot is not installed.
    """

    def __init__(
        self,
        schema: Schema,
        checks: Sequence[Check],
        tested: Callable[[pa.Table], pa.Table] | None = None,
        context: Sequence[str] = (),
    ) -> None:
        self._only, self._tested = tested, list[_Tested]()
        for check in checks:
            try:
                text = check_text(check, schema)
                self._tested.append(_Tested(check, parse_value(text, schema, "bool"), context))
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
        return any(one.false.count or one.failing.count for one in self._tested)

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
