"""`merge` of the rows of a source into a table without a key, by the columns that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from eventlog.query.expressions import qualified
from pyroaring import BitMap64

from eventlog import Snapshot, Table
from eventlog.arguments import choice, name_list, opened, shown
from eventlog.errors import InvalidInput
from eventlog.format.frames.entry_columns import to_segments
from eventlog.keyed.rule import keyed_of
from eventlog.log.snapshot import plan_scan
from eventlog.model.actions import Add, Update
from eventlog.model.entries import Schema, Segment
from eventlog.model.schema import from_arrow, list_names
from eventlog.segments.fragments import POSITION
from eventlog.segments.vectors import VectorReader
from eventlog.staging.incoming.casting import conform
from eventlog.staging.incoming.problems import Problem
from eventlog.staging.incoming.streams import to_reader
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES
from eventlog.state.scan import SCAN_ORDER
from eventlog.writers.batch import make_app, skipped, stage
from eventlog.writers.changing.deleting import request_of
from eventlog.writers.changing.finding import Found, Place, Search, Selected
from eventlog.writers.changing.landing import Change, Request, land
from eventlog.writers.changing.updating import (
    NewValues,
    Order,
    identity_of,
    new_values,
    with_values,
)

Matched = Literal["update", "delete", "ignore"] | Mapping[str, Any]
SOURCE = "source"  # how expressions call the rows of the source
_ROW = "\n"  # no table has such a column: names are printable
_SOURCE_ROW = "\n\n"
_FEW = 1000  # keys that are looked for one by one, and not by their bounds


def merge(  # noqa: PLR0913 - the public API
    t: Table,
    source: Any,
    on: str | Sequence[str],
    *,
    when_matched: Matched = "update",
    when_not_matched: Literal["insert", "ignore"] = "insert",
    when_not_matched_by_source: Literal["ignore", "delete"] = "ignore",
    app_id: str | None = None,
    app_seq: int | None = None,
    dry_run: bool = False,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Change:
    """Merge the rows of a source into the table by the values of some columns; return the version.

    A keyed table is the better choice where all changes come by key: its `upsert` reads nothing and
    conflicts with nothing. Here the rows of the table are read whose values of `on` lie between
    those of the source.

    The merge takes effect as of the version before its own: rows that others add while it runs are
    matched, too.

    Args:
        t: a table without a key.
        source: rows as for `append`; they are held in memory.
        on: names of columns that both have. A row of the table and one of the source match if all
            of them are equal; null equals nothing.
        when_matched: `update` gives the row the values of the source, and keeps those of columns
            that the source lacks; `delete` deletes it; `ignore` leaves it; or new values by column,
            as for `update`, whose expressions name the source's columns as `source.price`.
        when_not_matched: whether rows of the source that match none are added.
        when_not_matched_by_source: whether rows of the table that match none are deleted; then all
            rows of the table are read.
        app_id: as for `append`.
        app_seq: as for `append`.
        dry_run: commit nothing, and return the numbers of rows and segments.
        memory_bytes: as for `append`, beside the source.

    Returns:
        The version, with the numbers of rows and segments that were touched.

    Raises:
        InvalidInput: the table has a key; a column is missing, or of a type that does not compare;
            or several rows of the source match one row of the table: the message names it.
        CommitConflict: the table changes faster than its rows can be matched.
        CommitUnknown: see `append`.
        DataLoss: a segment or a deletion vector is missing or damaged.
        Unavailable: the store does not answer; nothing was committed.
    """
    opened(t)
    app = make_app(app_id, app_seq)
    choice(when_not_matched, "when_not_matched", ("insert", "ignore"))
    choice(when_not_matched_by_source, "when_not_matched_by_source", ("ignore", "delete"))
    if not isinstance(when_matched, Mapping):
        choice(when_matched, "when_matched", ("update", "delete", "ignore"))
    start = t.refresh()
    if keyed_of(start.layout) is not None:
        raise InvalidInput("a keyed table is merged into by `upsert`, by its key")
    done = skipped(t, start, app)
    if done is not None:
        return Change(done)
    names = [on] if isinstance(on, str) else name_list(on, "on")
    rows = read_source(source, start, names, inserts=when_not_matched == "insert")
    values = _values_of(start.stored_schema, rows, when_matched, names)
    deletes_others = when_not_matched_by_source == "delete"
    where = None if deletes_others else _bounds(rows, names)
    of = request_of(start, "merge", where, "snapshot", app, memory_bytes)
    request = Request(of.operation, of.where, of.span, "search", app, memory_bytes)
    deletes = when_matched == "delete"
    matching = Matching(
        Search(t, where, memory_bytes),
        rows,
        tuple(names),
        values,
        deletes=deletes,
        deletes_others=deletes_others,
        inserts=when_not_matched == "insert",
    )
    if dry_run:
        return matching.tried(start)
    return land(t, request, start, matching, matching.stage)


def read_source(source: Any, head: Snapshot, on: Sequence[str], *, inserts: bool) -> pa.Table:
    """Return the rows of a source; those of the table's columns in the table's types.

    Args:
        source: rows as for `append`.
        head: the table.
        on: the columns to match.
        inserts: whether rows are to be added.

    Raises:
        InvalidInput: a column is missing or does not fit.
    """
    table, given = head.schema, to_reader(source)
    for name in on:
        if name not in table.names or name not in given.schema.names:
            missing_in = "the table" if name not in table.names else "the source"
            raise InvalidInput(
                f"merge on {shown(name)}, which {missing_in} lacks; columns of the table: "
                f"{list_names(head.stored_schema)}"
            )
        kind = table.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind):
            raise InvalidInput(f"merge on {name!r} of type {kind}, whose values are not compared")
    if not on:
        raise InvalidInput("merge needs the columns to match: give on")
    lacking = [f.name for f in table if not f.nullable and f.name not in given.schema.names]
    if inserts and lacking:
        raise InvalidInput(f"the source lacks column {lacking[0]!r}, which new rows need")
    shared = pa.schema([f for f in table if f.name in given.schema.names])
    if not inserts:
        shared = pa.schema([f.with_nullable(True) for f in shared])
    others = pa.schema([f for f in given.schema if f.name not in table.names])
    parts = []
    for batch in given:
        # Without new rows the source needs no event time.
        timed = head.layout.time_column if inserts else ""
        cast = conform(batch, shared, timed)
        if isinstance(cast, Problem):
            raise InvalidInput(
                f"column {cast.column!r}: {cast.count} {cast.why}, for example {cast.example}; "
                "nothing was committed"
            )
        for other in others:
            cast = cast.append_column(other, batch.column(other.name))
        parts.append(cast)
    return pa.concat_tables(parts) if parts else pa.schema([*shared, *others]).empty_table()


@dataclass
class Matching:
    """Matches rows of the table with those of a source: finds what a merge deletes, and adds.

    Attributes:
        search: how the rows of the table are read; its predicate excludes only rows that match
            none.
        source: the rows of the source.
        on: the columns to match.
        values: the new values of matched rows; None: they are not updated.
        deletes: whether matched rows are deleted.
        deletes_others: whether rows that match none are deleted.
        inserts: whether rows of the source that match none are added.
    """

    search: Search
    source: pa.Table
    on: tuple[str, ...]
    values: Mapping[str, NewValues] | None
    deletes: bool
    deletes_others: bool
    inserts: bool
    # For each segment that was read: the positions of its matched rows, and the rows of the source.
    _matches: dict[Place, dict[int, int]] = field(default_factory=dict)
    _keys: pa.Table | None = None
    _staged_for: object = None
    _staged: tuple[Sequence[Add], Update | None] = ((), None)

    def find(
        self,
        snapshot: Snapshot,
        among: Callable[[Segment], bool] = lambda _: True,
        known: Mapping[Place, BitMap64] | None = None,  # noqa: ARG002 - it keeps more itself
    ) -> Found:
        """Return the rows that the merge deletes or replaces; see `Search.find`.

        Raises:
            InvalidInput: several rows of the source match one of the table.
        """
        plan = plan_scan(snapshot, columns=[], where=self.search.where)
        segments = [s for s in to_segments(plan.entries.sort_by(SCAN_ORDER)) if among(s)]
        self._match([s for s in segments if (s.id, s.version) not in self._matches], snapshot)
        vectors = VectorReader(
            self.search.t.store, snapshot.version, segments, snapshot.header.table
        )
        selected, gone = [], {}
        for segment in segments:
            place = segment.id, segment.version
            gone[place] = deleted = vectors.deleted(segment)
            wanted = BitMap64() if self._keeps_matched() else BitMap64(self._matches[place])
            if self.deletes_others:
                others = BitMap64(range(segment.rows)) - BitMap64(self._matches[place])
                wanted |= others
            wanted -= deleted
            if wanted:
                whole = len(wanted) == segment.live_rows
                selected.append(Selected(segment, None if whole else wanted))
        self._gone = gone
        return Found(snapshot, tuple(selected))

    def stage(self, found: Found) -> tuple[Sequence[Add], Update | None]:
        """Return the staged segments of new and updated rows, and the action of the update."""
        key = identity_of(found), self._inserted().to_pylist() if self.inserts else ()
        if key != self._staged_for:
            self._staged, self._staged_for = self._stage(found), key
        return self._staged

    def tried(self, snapshot: Snapshot) -> Change:
        """Return what the merge would do, committing nothing."""
        found = self.find(snapshot)
        whole = sum(one.positions is None for one in found.selected)
        updated = 0 if self.values is None else sum(len(m) for m in self._live_matches())
        added = updated + (len(self._inserted()) if self.inserts else 0)
        return Change(
            snapshot.version,
            deleted=found.rows,
            added=added,
            dropped=whole,
            changed=len(found.selected) - whole,
        )

    def _keeps_matched(self) -> bool:
        return self.values is None and not self.deletes

    def _live_matches(self) -> Iterator[BitMap64]:
        """Yield for each segment the positions of its matched rows that are not deleted."""
        for place, gone in self._gone.items():
            yield BitMap64(self._matches[place]) - gone

    def _inserted(self) -> pa.Array:
        """Return the numbers of the source's rows that match no row."""
        matched = BitMap64()
        for place, gone in self._gone.items():
            found = self._matches[place]
            matched |= BitMap64([found[p] for p in BitMap64(found) - gone])
        every = BitMap64(range(self.source.num_rows))
        return pa.array(list(every - matched), pa.int64())

    def _match(self, segments: Sequence[Segment], snapshot: Snapshot) -> None:
        """Join the rows of segments with the source."""
        if self._keys is None:
            numbers = pa.array(range(self.source.num_rows), pa.int64())
            keys = self.source.select(list(self.on)).append_column(_SOURCE_ROW, numbers)
            self._keys = keys.drop_null()
        for segment in segments:
            self._matches[segment.id, segment.version] = {}
        schema = pa.schema([*(snapshot.schema.field(name) for name in self.on), POSITION])
        wanted = Found(snapshot, tuple(Selected(s, None) for s in segments))
        for segment, batch in self.search.rows(wanted, schema):
            table = pa.Table.from_batches([batch])
            joined = table.join(self._keys, list(self.on), join_type="inner")
            found = self._matches[segment.id, segment.version]
            positions = joined.column(POSITION.name).to_pylist()
            numbers = joined.column(_SOURCE_ROW).to_pylist()
            for position, number in zip(positions, numbers, strict=True):
                if found.setdefault(position, number) != number:
                    key = self.source.select(list(self.on)).slice(number, 1).to_pylist()[0]
                    raise InvalidInput(
                        f"several rows of the source match one row of the table: those of "
                        f"{shown(key)}. Leave one of them in the source; nothing was committed"
                    )

    def _stage(self, found: Found) -> tuple[Sequence[Add], Update | None]:
        head = found.snapshot
        order = Order(head.layout.time_column, head.layout.granularity)
        counts = [0, 0]

        def rows() -> Iterator[pa.RecordBatch]:
            if self.values is not None:
                for table in self._updated(found, self.values):
                    order.watch(table)
                    counts[0] += table.num_rows
                    yield from table.to_batches()
            if self.inserts:
                new = _filled(self.source.take(self._inserted()), head.schema)
                counts[1] += new.num_rows
                yield from new.to_batches()

        reader = pa.RecordBatchReader.from_batches(head.schema, rows())
        adds = stage(self.search.t, head, reader, self.search.memory_bytes, as_given=True)
        updated, inserted = counts
        if not updated:
            return adds, None
        paired = order.kept and not inserted and updated == found.rows
        return adds, Update(updated, paired=paired)

    def _updated(self, found: Found, values: Mapping[str, NewValues]) -> Iterator[pa.Table]:
        """Yield the new forms of the matched rows."""
        schema = found.snapshot.schema
        renamed = self.source.rename_columns(
            [qualified(SOURCE, n) for n in self.source.column_names]
        )
        for segment, batch in self.search.rows(found, pa.schema([*schema, POSITION])):
            place = segment.id, segment.version
            matches, gone = self._matches[place], self._gone[place]
            positions = batch.column(batch.schema.get_field_index(POSITION.name)).to_pylist()
            here = [n for n, p in enumerate(positions) if p in matches and p not in gone]
            if not here:
                continue
            rows = pa.Table.from_batches([batch]).take(pa.array(here))
            beside = renamed.take(pa.array([matches[positions[n]] for n in here]))
            for name in beside.column_names:
                rows = rows.append_column(name, beside.column(name))
            yield with_values(rows, values, schema)


def _values_of(
    schema: Schema, source: pa.Table, when_matched: Matched, on: Sequence[str]
) -> Mapping[str, NewValues] | None:
    """Return the new values of matched rows; None if they are not updated.

    Raises:
        InvalidInput: a column or an expression is wrong.
    """
    if isinstance(when_matched, Mapping):
        return new_values(schema, when_matched, {SOURCE: from_arrow(source.schema)})
    if when_matched != "update":
        return None
    names = {column.name for column in schema.columns}
    unknown = [name for name in source.column_names if name not in names]
    if unknown:
        raise InvalidInput(
            f"the table has no column {shown(unknown[0])}: leave it out, or give the new values by "
            "column"
        )
    changed = [name for name in source.column_names if name not in on]
    return {name: _FromSource(qualified(SOURCE, name)) for name in changed}


@dataclass(frozen=True, slots=True)
class _FromSource:
    """The value that the row of the source has."""

    name: str

    def columns(self) -> frozenset[str]:
        """See `NewValues.columns`."""
        return frozenset({self.name})

    def evaluate(self, table: pa.Table) -> pa.ChunkedArray:
        """See `NewValues.evaluate`."""
        return table.column(self.name)


def _bounds(source: pa.Table, on: Sequence[str]) -> pc.Expression:
    """Return a filter that excludes only rows that match none of the source."""
    parts = []
    for name in on:
        values = source.column(name)
        distinct = pc.unique(values).drop_null() if len(values) else values.slice(0, 0)
        if len(distinct) <= _FEW:
            parts.append(pc.field(name).isin(distinct))
        else:
            ends = pc.min_max(values)
            parts.append((pc.field(name) >= ends["min"]) & (pc.field(name) <= ends["max"]))
    whole = parts[0]
    for part in parts[1:]:
        whole &= part
    return whole


def _filled(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of the source as rows of the table; columns that they lack are null."""
    columns = [
        rows.column(f.name) if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type)
        for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
