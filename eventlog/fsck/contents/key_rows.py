"""The check of the keys of one segment of a keyed table: buckets, order, statistics, time chunk.

Reads the key columns, the order column, the event time and `_op`, a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.format import keys
from eventlog.fsck.contents.row_check import (
    CONSEQUENCES,
    MISSED,
    REWRITE,
    WRONG_BUCKET,
    WRONG_CHUNK,
    Statistics,
    as_text,
    buckets_within,
    outside_chunk,
)
from eventlog.fsck.findings import Findings
from eventlog.keyed.placement import slice_of
from eventlog.keyed.rule import OP, MergeRule, stored_rule
from eventlog.model.columns.named_layout import named_layout
from eventlog.model.entries import Column, Schema, Segment
from eventlog.model.records import Meta
from eventlog.model.schema import to_arrow
from eventlog.quantities import count_text
from eventlog.segments.fragments import Reading
from eventlog.store.port import ObjectStore

EXAMPLES = 3  # keys that a finding names
_AHEAD_BYTES = 16 * 2**20  # of decoded rows


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The parts of a table that the check reads.

    Attributes:
        store: of the table.
        table: the columns of the table.
        rule: its merge rule.
        columns: the columns that are read, without `_op`, by name.
        schema: their Arrow fields, and `_op`.
        time: the name of the event-time column; None: the table has none.
    """

    store: ObjectStore
    table: Schema
    rule: MergeRule
    columns: Mapping[str, Column]
    schema: pa.Schema
    time: str | None

    @classmethod
    def of(cls, store: ObjectStore, meta: Meta) -> KeyColumns | None:
        """Return those of a table; None if it has no key.

        Raises:
            Corrupt: its layout, schema and properties do not fit together.
        """
        layout, schema = meta.layout, meta.schema
        if layout is None or schema is None:
            return None
        rule = stored_rule(layout, schema)
        if rule is None:
            return None
        time_column = named_layout(layout, schema).time_column
        others = [name for name in (rule.order, time_column) if name is not None]
        named = dict.fromkeys([*rule.key, *others])
        kinds = to_arrow(schema)
        fields = [kinds.field(name).with_nullable(True) for name in named]
        columns = {column.name: column for column in schema.columns if column.name in named}
        row_schema = pa.schema([*fields, pa.field(OP, pa.string())])
        return cls(store, schema, rule, columns, row_schema, time_column)

    def read(self, segment: Segment, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield some of the columns of a segment, or all.

        Raises:
            Corrupt: its object differs from its entry, or does not decode.
            NotFound: its object is missing.
            Unavailable: the store does not answer.
        """
        schema = pa.schema([f for f in self.schema if names is None or f.name in names])
        reading = Reading(
            self.store, segment.version, self.table, schema, schema, ahead_bytes=_AHEAD_BYTES
        )
        return (pa.Table.from_batches([rows]) for rows in reading.batches([segment]))


@dataclass(slots=True)
class SeenKeys:
    """The results of reading the keys of one segment.

    Attributes:
        key_bytes: of its keys, as Arrow holds them.
        ascending: whether its keys ascend, and none occurs twice.
    """

    key_bytes: int = 0
    ascending: bool = True


def check_segment(columns: KeyColumns, segment: Segment, findings: Findings) -> SeenKeys:
    """Read the keys of a segment, and report what is wrong with them.

    Raises:
        Corrupt: its object is missing or damaged.
        Unavailable: the store does not answer.
    """
    return _Segment(columns, segment, findings).seen()


_OUT_OF_ORDER = "out of the order of bucket and key"
_CONSEQUENCES = CONSEQUENCES | {_OUT_OF_ORDER: f": look-ups by key may miss them; {REWRITE}"}


class _Segment:
    """The check of one segment by itself."""

    def __init__(self, columns: KeyColumns, segment: Segment, findings: Findings) -> None:
        self._columns, self._segment, self._findings = columns, segment, findings
        self._place = slice_of(segment)
        self._key = columns.rule.key
        self._seen = SeenKeys()
        self._counts: dict[str, int] = {}
        self._examples: dict[str, list[str]] = {}
        self._before: pa.Table | None = None  # the last row that was read
        self._statistics = Statistics(columns.columns.values())

    def seen(self) -> SeenKeys:
        """Read the segment, report what is wrong with its keys, and return a summary of them."""
        rule = self._columns.rule
        for rows in self._columns.read(self._segment):
            if not rows.num_rows:
                continue
            self._statistics.look_at(rows)
            if self._columns.time is not None:
                times = rows.column(self._columns.time)
                self._note(WRONG_CHUNK, rows, outside_chunk(times, self._segment))
            complete = complete_keys(rows, rule.key)
            self._note("without a value in a key column", rows, pc.invert(complete))
            rows = rows.filter(complete)  # noqa: PLW2901
            place = self._place
            # Its rows stand in the order of the buckets that the table had when it was written.
            buckets = buckets_within(rows, rule, place)
            outside = pc.or_(pc.less(buckets, place.first), pc.greater(buckets, place.last))
            self._note(WRONG_BUCKET, rows, outside)
            self._look_at_order(rows, buckets)
            self._seen.key_bytes += sum(rows.column(name).nbytes for name in rule.key)
        self._report()
        return self._seen

    def _look_at_order(self, rows: pa.Table, buckets: pa.Array) -> None:
        names = ["bucket", *(f"k{n}" for n in range(len(self._key)))]
        found = pa.table([buckets, *(rows.column(n) for n in self._key)], names)
        joined = found if self._before is None else pa.concat_tables([self._before, found])
        joined = joined.combine_chunks()
        self._before = found.slice(max(0, found.num_rows - 1)) if found.num_rows else self._before
        if joined.num_rows < 2:
            return
        falls = pa.repeat(pa.scalar(False), joined.num_rows - 1)
        same = pa.repeat(pa.scalar(True), joined.num_rows - 1)
        for name in names:
            column = joined.column(name)
            one, other = column.slice(0, len(column) - 1), column.slice(1)
            falls = pc.or_(falls, pc.and_(same, pc.greater(one, other)))
            same = pc.and_(same, pc.equal(one, other))
        self._seen.ascending &= not pc.any(pc.or_(falls, same)).as_py()
        self._note(_OUT_OF_ORDER, joined.slice(1).select(names[1:]), falls)

    def _note(self, what: str, rows: pa.Table, mask: pa.Array) -> None:
        """Count the rows in the mask, and keep the keys of the first few."""
        count = pc.sum(mask).as_py() or 0
        if not count:
            return
        self._counts[what] = self._counts.get(what, 0) + count
        examples = self._examples.setdefault(what, [])
        columns = range(len(self._key)) if OP not in rows.column_names else self._key
        hit = rows.filter(mask).slice(0, EXAMPLES - len(examples))
        examples += [
            key_text(self._key, [hit.column(c)[row] for c in columns])
            for row in range(hit.num_rows)
        ]

    def _report(self) -> None:
        place, segment = self._place, self._segment
        where = f"bucket {place.first}"
        if place.last != place.first:
            where = f"buckets {place.first} to {place.last}"
        what = f"the {place.kind} of {where} of chunk {segment.chunk}"
        for problem, count in self._counts.items():
            examples = "; ".join(self._examples[problem])
            text = f"{what} has {count_text(count, 'row')} {problem}, for example {examples}"
            self._error(text + _CONSEQUENCES.get(problem, ""))
        for name, wrong in self._statistics.problems(segment.stats):
            self._error(f"the statistics of column {name!r} of {what} {wrong}: {MISSED}; {REWRITE}")

    def _error(self, message: str) -> None:
        segment = self._segment
        self._findings.add("error", message, keys.key_of(segment), segment.version)


def complete_keys(rows: pa.Table, key: Sequence[str]) -> pa.Array:
    """Return which rows have a value in each key column."""
    mask = pa.repeat(pa.scalar(True), rows.num_rows)
    for name in key:
        mask = pc.and_(mask, pc.is_valid(rows.column(name)))
    return mask


def key_text(key: Sequence[str], values: Sequence[pa.Scalar]) -> str:
    """Return a key as text: id=7, day=2013-01-07."""
    named = zip(key, values, strict=True)
    return ", ".join(f"{name}={as_text(value):.60}" for name, value in named)
