"""Predicates: `where` as SQL text or a pyarrow expression, for pruning and for filtering.

Pure layer. Both kinds answer the same questions: which segments may hold rows that pass, which hold
nothing else, which interval of the event time is concerned, and how rows are filtered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.model.chunks import MAX_MS, MIN_MS
from eventlog.model.records import Column, Leaf, Schema
from eventlog.model.schema import arrow_type
from eventlog.query import conditions, guarantees, pruning
from eventlog.query.conditions import Condition
from eventlog.query.pruning import Bounds
from eventlog.query.sql.parsing import parse_sql

Where: TypeAlias = "str | pc.Expression"

# A predicate of more parts, or of more bytes in Arrow's own form, is not asked about leaves: each
# would cost as much as all of their entries together. Its interval of time still holds.
_MANY_PARTS = 256
_MANY_BYTES = 256 * 1024
MAX_EXPRESSION_BYTES = 64 * 2**20


class Predicate(Protocol):
    """What a predicate can be asked. Entries are tables in the columns of `format.segments`."""

    def to_arrow(self) -> pc.Expression:
        """Return the filter over rows of the table's Arrow schema."""
        ...

    def columns(self) -> frozenset[str]:
        """Return the names of the columns that it reads, or a superset."""
        ...

    def interval(self, time_column: str) -> tuple[int, int]:
        """Return a half-open interval in ms UTC that holds every row that passes."""
        ...

    def prune(self, entries: pa.Table, time_column: str) -> pa.BooleanArray:
        """Say for each entry whether it may hold a row that passes; never wrongly no."""
        ...

    def leaf_may_match(self, leaf: Leaf, time_column: str) -> bool:
        """Say whether a key frame's leaf may hold a segment that `prune` would keep."""
        ...

    def covers(self, entries: pa.Table, time_column: str) -> bool:
        """Say whether every row of every entry is known to pass."""
        ...


def parse(where: Where, schema: Schema) -> Predicate:
    """Return the predicate over rows of `schema`.

    Args:
        where: one SQL boolean expression of at most 64 KiB, or a pyarrow expression of at most
            64 MiB in Arrow's own form (8 million integers to look up). Arrow itself ends the
            process where some 10,000 calls are nested in each other.
        schema: the table's schema.

    Raises:
        InvalidInput: it is neither, or too large, or does not fit the schema; the message names the
            part.
    """
    if isinstance(where, str):
        condition = parse_sql(where, schema)
        guarantees.check_filter(conditions.to_arrow(condition), schema)
        return SqlPredicate(schema, condition)
    if isinstance(where, pc.Expression):
        size = guarantees.expression_bytes(where)
        if size > MAX_EXPRESSION_BYTES:
            raise InvalidInput(
                f"the predicate takes {size} bytes, more than {MAX_EXPRESSION_BYTES}: "
                "join the rows with a table of the values instead"
            )
        guarantees.check_filter(where, schema)
        mentioned = guarantees.mentioned(where, schema)
        safe = guarantees.trusted(where, (arrow_type(column.type) for column in mentioned))
        trusted = tuple(column for column, is_safe in zip(mentioned, safe, strict=True) if is_safe)
        return ArrowPredicate(schema, where, mentioned, trusted, size > _MANY_BYTES)
    raise InvalidInput(f"where is SQL text or a pyarrow expression, not a {type(where).__name__}")


@dataclass(frozen=True, slots=True)
class SqlPredicate:
    """A predicate that was SQL text. See `Predicate`."""

    schema: Schema
    condition: Condition

    def to_arrow(self) -> pc.Expression:
        """See `Predicate.to_arrow`."""
        return conditions.to_arrow(self.condition)

    def columns(self) -> frozenset[str]:
        """See `Predicate.columns`: exactly those."""
        return conditions.names(self.condition)

    def interval(self, time_column: str) -> tuple[int, int]:
        """See `Predicate.interval`."""
        column = _column(self.schema, time_column)
        return pruning.to_interval(pruning.span(self.condition, column), column)

    def prune(self, entries: pa.Table, time_column: str) -> pa.BooleanArray:
        """See `Predicate.prune`."""
        mask = pruning.may_be(self.condition, True, Bounds(entries, time_column))
        return pruning.to_array(mask, entries.num_rows)

    def leaf_may_match(self, leaf: Leaf, time_column: str) -> bool:
        """See `Predicate.leaf_may_match`; always where there are very many parts."""
        if conditions.size(self.condition) > _MANY_PARTS:
            return True
        mask = pruning.may_be(self.condition, True, Bounds.of_leaf(leaf, time_column))
        return bool(pruning.to_array(mask, 1)[0].as_py())

    def covers(self, entries: pa.Table, time_column: str) -> bool:
        """See `Predicate.covers`."""
        mask = pruning.must_be_true(self.condition, Bounds(entries, time_column))
        found = pc.all(pruning.to_array(mask, entries.num_rows), min_count=0)
        return bool(found.as_py())


@dataclass(frozen=True, slots=True)
class ArrowPredicate:
    """A predicate that was a pyarrow expression. See `Predicate`.

    Attributes:
        schema: the table's.
        expression: the filter.
        mentioned: the columns that it reads, or a superset.
        trusted: those of them by whose bounds it may be refuted.
        large: whether it is too large to be asked about each leaf.
    """

    schema: Schema
    expression: pc.Expression
    mentioned: tuple[Column, ...]
    trusted: tuple[Column, ...]
    large: bool

    def to_arrow(self) -> pc.Expression:
        """See `Predicate.to_arrow`."""
        return self.expression

    def columns(self) -> frozenset[str]:
        """See `Predicate.columns`: a superset."""
        return frozenset(column.name for column in self.mentioned)

    def interval(self, time_column: str) -> tuple[int, int]:
        """See `Predicate.interval`."""
        column = _column(self.schema, time_column)
        if column not in self.trusted:
            return MIN_MS, MAX_MS
        return pruning.to_interval(guarantees.span(self.expression, self.schema, column), column)

    def prune(self, entries: pa.Table, time_column: str) -> pa.BooleanArray:
        """See `Predicate.prune`."""
        bounds = Bounds(entries, time_column)
        return guarantees.may_match(self.expression, self.schema, self.trusted, bounds)

    def leaf_may_match(self, leaf: Leaf, time_column: str) -> bool:
        """See `Predicate.leaf_may_match`; always where the expression is very large."""
        if self.large:
            return True
        bounds = Bounds.of_leaf(leaf, time_column)
        found = guarantees.may_match(self.expression, self.schema, self.trusted, bounds)
        return bool(found[0].as_py())

    def covers(self, entries: pa.Table, time_column: str) -> bool:  # noqa: ARG002
        """See `Predicate.covers`: known only where there is nothing."""
        return bool(entries.num_rows == 0)


def _column(schema: Schema, name: str) -> Column:
    found: Sequence[Column] = [column for column in schema.columns if column.name == name]
    if not found:
        raise InvalidInput(f"no column {name!r}")
    return found[0]
