"""What an erasure looks for: rows, and values of them in statistics and names. No I/O.

Rows are those that the predicate selects, as they are stored: in a keyed table also rows that later
ones hide, and all rows of the keys that are erased. Statistics and names have no rows: of them the
values count, by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eventlog import Snapshot
from eventlog.keyed.rule import DELETE, OP, keyed_of
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Column, Schema
from eventlog.model.schema import to_arrow
from eventlog.model.stats import TEXT_LIMIT, has_text_bounds, upper_text
from eventlog.query import conditions as c
from eventlog.query.predicate import Predicate, SqlPredicate, Where, parse_predicate
from eventlog.segments.batches import passing

_LEAST_TEXT = 4  # characters of a text that is looked for within longer ones
_MOST_COLUMNS = 6  # whose bounds are tried with those of the others
_PLACE = "\N{NULL}row"
# A text after `==` in the text of an Arrow expression, or on its own line in a list.
_COMPARED = re.compile(r'(?:== |\n\s*)"((?:[^"\\]|\\.)*)"')
_ESCAPED, _ESCAPES = re.compile(r"\\(.)"), {"n": "\n", "r": "\r", "t": "\t"}
# The fields of objects of the log that have texts of users, with all that is below them.
_OF_USERS = frozenset(
    {
        "app", "apps", "claims", "expression", "group", "info", "initial", "name", "new", "old",
        "owner", "pins", "properties", "published", "replicas", "write", "writer",
    }
)  # fmt: skip
# Fields whose texts are names of columns, or bytes that are decoded otherwise.
_NOT_OF_USERS = frozenset({"bitmap", "columns", "features", "parquet", "stats"})


@dataclass(frozen=True, slots=True)
class Matches:
    """How many of some rows are sought.

    Attributes:
        rows: the number of sought rows.
        tombstones: how many of them are deletes of a keyed table, which have the key alone.
        keys: the keys of the sought rows of a keyed table that are no deletes.
    """

    rows: int
    tombstones: int = 0
    keys: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Sought:
    """The rows that an erasure looks for.

    Attributes:
        predicate: selects them.
        schema: the columns of the table, by whose ids files are read.
        time_column: the name of the table's time column; None: it has none.
        key: the names of the key columns; () for a table without a key.
        keys: keys that are erased; None: none are known.
        texts: the texts that the predicate names as a value of a column: those of SQL, and those
            that the text of an Arrow expression shows.
    """

    predicate: Predicate
    schema: Schema
    time_column: str | None
    key: tuple[str, ...] = ()
    keys: pa.Table | None = None
    texts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, head: Snapshot, where: Where) -> Sought:
        """Return what a predicate over the columns of a version seeks.

        Raises:
            InvalidInput: the predicate is wrong.
        """
        predicate = parse_predicate(where, head.stored_schema)
        rule = head.merge_rule if keyed_of(head.layout) is not None else None
        if isinstance(predicate, SqlPredicate):
            named = _texts(predicate.condition)
        else:
            named = _texts_of_expression(str(where))  # against texts-of-an-expression-not-sought
        key = () if rule is None else tuple(rule.key)
        time_column = head.layout.time_column
        return cls(predicate, head.stored_schema, time_column, key, texts=frozenset(named))

    @property
    def keyed(self) -> bool:
        """Whether the table has a key."""
        return bool(self.key)

    @property
    def names_keys(self) -> bool:
        """Whether the predicate reads key columns alone, so that deletes of keys can pass it."""
        return self.predicate.columns() <= {*self.key}

    def with_keys(self, keys: pa.Table | None) -> Sought:
        """Return what is sought where all rows of some keys are, beside those of the predicate."""
        return replace(self, keys=keys)

    @property
    def fields(self) -> pa.Schema:
        """The columns that decide, as they are read: each may be null, or absent in a file."""
        names = self.predicate.columns() | {*self.key}
        fields = [f.with_nullable(True) for f in to_arrow(self.schema) if f.name in names]
        return pa.schema([*fields, *([pa.field(OP, pa.string())] if self.keyed else [])])

    def matches(self, rows: pa.Table) -> Matches:
        """Return how many rows are sought.

        Args:
            rows: with the columns of `fields`.

        Raises:
            pa.ArrowException: the predicate fails on a row.
        """
        if not rows.num_rows:
            return Matches(0)
        selected = passing(rows, self.predicate.to_arrow())
        if not self.keyed:
            return Matches(int(pc.sum(selected, min_count=0).as_py()))
        deletes = pc.fill_null(pc.equal(rows.column(OP), DELETE), False).combine_chunks()
        if not self.names_keys:  # the other columns of a delete mean nothing
            selected = pc.and_(selected, pc.invert(deletes))
        found = rows.filter(pc.and_(selected, pc.invert(deletes))).select(self.key)
        if self.keys is not None:
            selected = pc.or_(selected, self._of_keys(rows, self.keys))
        tombstones = pc.sum(pc.and_(selected, deletes), min_count=0).as_py()
        return Matches(int(pc.sum(selected, min_count=0).as_py()), int(tombstones), found)

    def _of_keys(self, rows: pa.Table, keys: pa.Table) -> pa.Array:
        """Return for each row whether its key is one of some."""
        numbered = rows.select(self.key).append_column(_PLACE, pa.array(range(rows.num_rows)))
        found = numbered.join(keys, [*self.key], join_type="left semi", use_threads=False)
        wanted = found.column(_PLACE).combine_chunks()
        return pc.is_in(pa.array(range(rows.num_rows)), value_set=wanted)

    def text_columns(self) -> list[Column]:
        """Return the text columns that the predicate reads."""
        named = self.predicate.columns()
        return [x for x in self.schema.columns if x.name in named and has_text_bounds(x.type)]

    def passing_values(self, column: Column, values: Sequence[str]) -> list[str]:
        """Return those of some values of a text column that the predicate selects by themselves.

        Where it reads other columns besides, these are the texts that it names.
        """
        if self.predicate.columns() != {column.name}:
            return [value for value in values if value in self.texts]
        rows = pa.table({column.name: pa.array(values, pa.string())})
        passed = rows.filter(passing(rows, self.predicate.to_arrow()))
        return [str(value) for value in passed[column.name].to_pylist()]

    def passing_bounds(self, entries: pa.Table) -> list[bool]:
        """Return for each entry whether bounds of it may be values of a sought row.

        A bound is a value of a row, or the beginning of one. So each combination of the bounds of
        the columns that the predicate reads is tried as if it were a row. An entry that has bounds
        of none of these columns has no value of theirs.

        Args:
            entries: with `chunk_start`, `chunk_end`, `rows`, and `min_<id>` and `max_<id>`.
        """
        bounded = [column for column in self._read() if f"min_{column.id}" in entries.column_names]
        none = pa.array([False] * entries.num_rows, pa.bool_())
        if not bounded or not entries.num_rows:
            return [False] * entries.num_rows
        some = none
        for column in bounded:
            some = pc.or_(some, _valid(entries.column(f"min_{column.id}")))
        if len(bounded) > _MOST_COLUMNS:
            passes = self.predicate.prune(entries, self.time_column)
            return list(pc.and_(passes, some).to_pylist())
        passed = none
        for ends in product(("min", "max"), repeat=len(bounded)):
            points = _points(entries, dict(zip(bounded, ends, strict=True)))
            passed = pc.or_(passed, self.predicate.prune(points, self.time_column))
        return list(pc.and_(passed, some).to_pylist())

    def column_ids(self) -> set[int]:
        """Return the ids of the columns that the predicate reads."""
        return {column.id for column in self._read()}

    def _read(self) -> list[Column]:
        named = self.predicate.columns()
        return [x for x in self.schema.columns if x.name in named and isinstance(x.type, str)]

    def named_in(self, document: Any) -> int:
        """Return how many texts of users, in an object of the log, name a sought text.

        Args:
            document: the values of its JSON.
        """
        return sum(map(self.is_named, _user_texts(document, inside=False))) if self.texts else 0

    def is_named(self, text: str) -> bool:
        """Return whether a text is a sought one, or has one of at least four characters in it."""
        if text in self.texts:
            return True
        return any(len(one) >= _LEAST_TEXT and one in text for one in self.texts)


def bounds_table(entries: Iterable[Any]) -> pa.Table:
    """Return the bounds of entries as a table for `Sought.passing_bounds`.

    Args:
        entries: with `chunk`, `rows` and `stats`; or with `start`, `end`, `rows` and `stats`.
    """
    entries = list(entries)
    spans = [_span(entry) for entry in entries]
    columns: dict[str, Any] = {
        "chunk_start": pa.array([start for start, _ in spans], pa.int64()),
        "chunk_end": pa.array([end for _, end in spans], pa.int64()),
        "rows": pa.array([entry.rows for entry in entries], pa.int64()),
    }
    bounds: dict[int, dict[int, tuple[Any, Any]]] = {}
    for at, entry in enumerate(entries):
        for stat in entry.stats:
            bounds.setdefault(stat.column, {})[at] = stat.min, stat.max
    for number, known in bounds.items():
        for end, stem in enumerate(("min", "max")):
            values = [known[at][end] if at in known else None for at in range(len(entries))]
            columns[f"{stem}_{number}"] = _one_kind(values)
    return pa.table(columns)


def _one_kind(values: list[Any]) -> pa.Array:
    """Return bounds as an array: those of a column of one log are all ints or all texts."""
    texts = any(isinstance(value, str) for value in values)
    return pa.array(values, pa.string() if texts else pa.int64())


def _span(entry: Any) -> tuple[int, int]:
    if hasattr(entry, "chunk"):
        chunk = parse_chunk(entry.chunk)
        return chunk.start, chunk.end
    return parse_chunk(entry.first.partition("/")[0]).start, entry.end


def _valid(values: pa.ChunkedArray) -> pa.Array:
    return pc.is_valid(values).combine_chunks()


def _points(entries: pa.Table, ends: Mapping[Column, str]) -> pa.Table:
    """Return entries of which each has one of its bounds as the only value of a column."""
    columns = {name: entries.column(name) for name in ("chunk_start", "chunk_end", "rows")}
    for column, end in ends.items():
        bounds = entries.column(f"{end}_{column.id}")
        low = high = bounds
        if pa.types.is_string(bounds.type):
            pairs = [_text_span(bound, end) for bound in bounds.to_pylist()]
            low = pa.array([pair[0] for pair in pairs], pa.string())
            high = pa.array([pair[1] for pair in pairs], pa.string())
        columns[f"min_{column.id}"], columns[f"max_{column.id}"] = low, high
    return pa.table(columns)


def _text_span(bound: str | None, end: str) -> tuple[str | None, str | None]:
    """Return the least and the greatest text that a bound may stand for."""
    if bound is None or len(bound) < TEXT_LIMIT:
        return bound, bound
    if end == "min":
        return bound, upper_text(bound + " ")
    return bound[:-1], bound


def _texts(condition: c.Condition) -> Iterator[str]:
    """Yield the texts that a condition names, except under NOT."""
    match condition:
        case c.And(parts) | c.Or(parts):
            for part in parts:
                yield from _texts(part)
        case c.Is(part, _):
            yield from _texts(part)
        case c.Compare(column, "=", value) if has_text_bounds(column.type):
            yield str(value.as_py())
        case c.In(column, values) if has_text_bounds(column.type):
            yield from (str(value.as_py()) for value in values)


def _texts_of_expression(shown: str) -> Iterator[str]:
    """Yield the texts with which an Arrow expression compares, as far as its own text shows them.

    Of a long list Arrow shows the first and the last ones.
    """
    for match in _COMPARED.finditer(shown):
        yield _ESCAPED.sub(lambda escaped: _ESCAPES.get(escaped[1], escaped[1]), match[1])


def _user_texts(document: Any, *, inside: bool) -> Iterator[str]:
    """Yield the texts, and names of members, of those fields that users fill."""
    if isinstance(document, str):
        if inside:
            yield document
    elif isinstance(document, list):
        for part in document:
            yield from _user_texts(part, inside=inside)
    elif isinstance(document, dict):
        for name, part in document.items():
            if inside:
                yield name
            if name not in _NOT_OF_USERS:
                yield from _user_texts(part, inside=inside or name in _OF_USERS)
