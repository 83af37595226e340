"""Predicates: `where` as SQL text or a pyarrow expression, for pruning and for filtering.

Both kinds answer the same questions: which segments may contain rows that pass, which contain only
such rows, which interval of event time is concerned, and how rows are filtered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.model.chunks import MAX_MS, MIN_MS
from eventlog.model.columns.column_types import arrow_type
from eventlog.model.entries import Column, Schema
from eventlog.model.records import Piece
from eventlog.model.schema import to_arrow
from eventlog.query import conditions, expression_pruning, pruning
from eventlog.query.conditions import Condition
from eventlog.query.engine_filters import EngineFilter
from eventlog.query.pruning import Bounds
from eventlog.query.sql.parsing import parse_sql

Where: TypeAlias = "str | pc.Expression"

# A predicate with more parts, or more bytes in Arrow's serialized form, does not prune leaves: that
# would cost as much per leaf as all of the leaf's entries. Its time interval is still used.
_MANY_PARTS = 256
_MANY_BYTES = 256 * 1024
MAX_EXPRESSION_BYTES = 64 * 2**20


class Predicate(Protocol):
    """The interface of a predicate. Entries have the columns of `format.frames.entry_columns`.

    `time_column` is the name of the table's time column, which the chunks of entries bound; None:
    the table has none.
    """

    @property
    def schema(self) -> Schema:
        """The table's schema."""
        ...

    def to_arrow(self) -> pc.Expression:
        """Return the filter over rows of the table's Arrow schema."""
        ...

    def columns(self) -> frozenset[str]:
        """Return the names of the columns that it reads, or a superset."""
        ...

    def interval(self, time_column: str) -> tuple[int, int]:
        """Return a half-open interval in ms UTC that contains every row that passes."""
        ...

    def prune(self, entries: pa.Table, time_column: str | None) -> pa.BooleanArray:
        """Return for each entry whether it may contain a row that passes; no false negatives."""
        ...

    def leaf_may_match(self, leaf: Piece, time_column: str | None) -> bool:
        """Return whether a leaf or stem may contain a segment that `prune` would keep."""
        ...

    def covered(self, entries: pa.Table, time_column: str | None) -> pa.BooleanArray:
        """Return for each entry whether every row of it is known to pass."""
        ...

    def covers(self, entries: pa.Table, time_column: str | None) -> bool:
        """Return whether every row of every entry is known to pass."""
        ...


def parse_predicate(where: Where | EngineFilter, schema: Schema) -> Predicate:
    """Return the predicate over rows of `schema`.

    Args:
        where: one SQL boolean expression of at most 64 KiB, or a pyarrow expression of at most
            64 MiB in Arrow's serialized form (8 million integers to look up). Arrow itself crashes
            the process if about 10,000 calls are nested. Or the filter of an engine.
        schema: the table's schema.

    Raises:
        InvalidInput: it is neither, or is too large, or does not fit the schema; the message names
            the wrong part.
    """
    if isinstance(where, str):
        condition = parse_sql(where, schema)
        expression_pruning.check_filter(conditions.to_expression(condition), schema)
        return SqlPredicate(schema, condition)
    if isinstance(where, pc.Expression):
        size = expression_pruning.expression_bytes(where)
        if size > MAX_EXPRESSION_BYTES:
            raise InvalidInput(
                f"the predicate has {size} bytes, more than {MAX_EXPRESSION_BYTES}: join the rows "
                "with a table of the values instead"
            )
        expression_pruning.check_filter(where, schema)
        mentioned = expression_pruning.mentioned(where, schema)
        safe = expression_pruning.trusted(where, (arrow_type(column.type) for column in mentioned))
        trusted = tuple(column for column, is_safe in zip(mentioned, safe, strict=True) if is_safe)
        return ArrowPredicate(schema, where, mentioned, trusted, size > _MANY_BYTES)
    if isinstance(where, EngineFilter):
        pruning = parse_predicate(where.pruning(), schema)
        return replace(cast("ArrowPredicate", pruning), row_filter=where.rows(to_arrow(schema)))
    raise InvalidInput(f"where is SQL text or a pyarrow expression, not a {type(where).__name__}")


@dataclass(frozen=True, slots=True)
class SqlPredicate:
    """A predicate from SQL text. See `Predicate`."""

    schema: Schema
    condition: Condition

    def to_arrow(self) -> pc.Expression:
        """See `Predicate.to_arrow`."""
        return conditions.to_filter(self.condition)

    def columns(self) -> frozenset[str]:
        """See `Predicate.columns`; the exact set."""
        return conditions.columns_read(self.condition)

    def interval(self, time_column: str) -> tuple[int, int]:
        """See `Predicate.interval`."""
        column = _column(self.schema, time_column)
        return pruning.to_interval(pruning.condition_span(self.condition, column), column)

    def prune(self, entries: pa.Table, time_column: str | None) -> pa.BooleanArray:
        """See `Predicate.prune`."""
        mask = pruning.may_be(self.condition, True, Bounds(entries, time_column))
        return pruning.mask_to_array(mask, entries.num_rows)

    def leaf_may_match(self, leaf: Piece, time_column: str | None) -> bool:
        """See `Predicate.leaf_may_match`; always true if there are very many parts."""
        if conditions.size(self.condition) > _MANY_PARTS:
            return True
        mask = pruning.may_be(self.condition, True, Bounds.of_leaf(leaf, time_column))
        return bool(pruning.mask_to_array(mask, 1)[0].as_py())

    def covered(self, entries: pa.Table, time_column: str | None) -> pa.BooleanArray:
        """See `Predicate.covered`."""
        mask = pruning.must_be_true(self.condition, Bounds(entries, time_column))
        return pruning.mask_to_array(mask, entries.num_rows)

    def covers(self, entries: pa.Table, time_column: str | None) -> bool:
        """See `Predicate.covers`."""
        return bool(pc.all(self.covered(entries, time_column), min_count=0).as_py())


@dataclass(frozen=True, slots=True)
class ArrowPredicate:
    """A predicate from a pyarrow expression. See `Predicate`.

    Attributes:
        schema: the table's.
        expression: the filter, for pruning.
        mentioned: the columns that it reads, or a superset.
        trusted: the mentioned columns whose bounds may be used to prune.
        large: whether it is too large to prune leaves.
        row_filter: the filter of rows, where it is another one than that for pruning.
    """

    schema: Schema
    expression: pc.Expression
    mentioned: tuple[Column, ...]
    trusted: tuple[Column, ...]
    large: bool
    row_filter: pc.Expression | None = None

    def to_arrow(self) -> pc.Expression:
        """See `Predicate.to_arrow`."""
        return self.expression if self.row_filter is None else self.row_filter

    def columns(self) -> frozenset[str]:
        """See `Predicate.columns`; a superset."""
        return frozenset(column.name for column in self.mentioned)

    def interval(self, time_column: str) -> tuple[int, int]:
        """See `Predicate.interval`."""
        column = _column(self.schema, time_column)
        if column not in self.trusted:
            return MIN_MS, MAX_MS
        return pruning.to_interval(
            expression_pruning.expression_span(self.expression, self.schema, column), column
        )

    def prune(self, entries: pa.Table, time_column: str | None) -> pa.BooleanArray:
        """See `Predicate.prune`."""
        bounds = Bounds(entries, time_column)
        return expression_pruning.may_match(self.expression, self.schema, self.trusted, bounds)

    def leaf_may_match(self, leaf: Piece, time_column: str | None) -> bool:
        """See `Predicate.leaf_may_match`; always true if the expression is very large."""
        if self.large:
            return True
        bounds = Bounds.of_leaf(leaf, time_column)
        mask = expression_pruning.may_match(self.expression, self.schema, self.trusted, bounds)
        return bool(mask[0].as_py())

    def covered(self, entries: pa.Table, time_column: str | None) -> pa.BooleanArray:  # noqa: ARG002
        """See `Predicate.covered`; never known."""
        return pa.repeat(pa.scalar(False), entries.num_rows)

    def covers(self, entries: pa.Table, time_column: str | None) -> bool:  # noqa: ARG002
        """See `Predicate.covers`; never known unless there are no entries."""
        return bool(entries.num_rows == 0)


def _column(schema: Schema, name: str) -> Column:
    named: Sequence[Column] = [column for column in schema.columns if column.name == name]
    if not named:
        raise InvalidInput(f"the table has no column {name!r}")
    return named[0]
