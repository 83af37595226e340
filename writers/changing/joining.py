"""`merge` of the rows of a source into a table without a key, by the columns that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from eventlog import Snapshot, Table
from eventlog.arguments import choice, name_list, opened, shown
from eventlog.errors import InvalidInput
from eventlog.format.frames.entry_columns import to_segments
from eventlog.keyed.rule import keyed_of
from eventlog.log.snapshot import plan_scan
from eventlog.model.actions import Update
from eventlog.model.columns.edits import path_text
from eventlog.model.entries import Schema, Segment
from eventlog.model.records import App
from eventlog.model.schema import from_arrow, list_names, to_arrow
from eventlog.query.sql.parsing import qualified
from eventlog.segments.batches import gathered
from eventlog.segments.fragments import POSITION
from eventlog.segments.vectors import VectorReader
from eventlog.staging.incoming.absent_columns import write_defaults
from eventlog.staging.incoming.casting import FieldPath, absent_fields, check_columns, conform
from eventlog.staging.incoming.problems import Problem
from eventlog.staging.incoming.streams import batches, spelled, spelled_names, to_reader
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES
from eventlog.state.scan import SCAN_ORDER
from eventlog.telemetry.signals import traced
from eventlog.writers.batch import evolving, make_app, skipped, stage, types_of
from eventlog.writers.changing.deletes import request_of
from eventlog.writers.changing.finding import (
    Found,
    Hits,
    KeptRows,
    Place,
    Search,
    Selected,
    row_text,
)
from eventlog.writers.changing.landing import RowChange, Staged, land, would_change
from eventlog.writers.changing.updating import (
    NewValues,
    Order,
    StagedOnce,
    new_values,
    with_values,
)

Matched = Literal["update", "delete", "ignore"] | Mapping[str, Any]
SOURCE = "source"  # how expressions call the rows of the source
# No table has such columns: names are printable.
_SOURCE_ROW, _SEGMENT = "\n", "\t"
INSERTS = ("insert", "ignore")
DELETES = ("ignore", "delete")
_FEW = 10_000  # keys that are looked for one by one, and not only by their bounds


@traced("eventlog.merge")
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
    evolve: bool = False,
    dry_run: bool = False,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> RowChange:
    """Merge the rows of a source into the table by the values of some columns; return the version.

    A keyed table is the better choice where all changes come by key: its `upsert` reads nothing and
    conflicts with nothing. Here the rows of the table are read whose values of `on` lie between
    those of the source.

    Rows that others add while it runs are matched, too; where matched rows are ignored, those that
    others delete meanwhile still count as matched.

    Args:
        t: a table without a key.
        source: rows as for `append`; they are held in memory.
        on: names of columns that both have. A row of the table and one of the source match if all
            of them are equal; null equals nothing.
        when_matched: `update` gives the row the values of the source, and keeps those of columns,
            and fields of structs, that it lacks; `delete` deletes it; `ignore` leaves it; or new
            values by column, as for `update`, whose expressions name columns as `source.price`.
        when_not_matched: whether rows of the source that match none are added, with the defaults of
            columns that they lack.
        when_not_matched_by_source: whether rows of the table that match none are deleted; then all
            rows of the table are read.
        app_id: as for `append`.
        app_seq: as for `append`.
        evolve: as for `append`, where `when_matched` is no mapping. Not in a dry run.
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
    merging = merging_of(on, when_matched, when_not_matched, when_not_matched_by_source)
    app = make_app(app_id, app_seq)
    done = merging.begin(t, t.refresh(), app)
    if done is not None:
        return done
    with merging.evolving(t, source, app, evolve=evolve, dry_run=dry_run) as rows:
        return _merge_rows(t, rows, merging, app, memory_bytes=memory_bytes, dry_run=dry_run)


def _merge_rows(
    t: Table,
    source: Any,
    merging: Merging,
    app: App | None,
    *,
    memory_bytes: int,
    dry_run: bool,
) -> RowChange:
    """Merge rows that have no other columns than the table. Raises: as `merge`."""
    start = t.session.head()
    merging = merging.spelled(start)
    reader = to_reader(source, types_of(start))
    given = spelled(reader.schema, start.schema.names)
    rows = read_source(reader, start, merging.on, inserts=merging.inserts)
    values = values_of(start.stored_schema, given, rows.schema, merging)
    search = merging.search(t, rows, memory_bytes, dry_run=dry_run)
    return Matching(search, merging, values, rows).land(start, app, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class Merging:
    """What a merge does with rows.

    Attributes:
        on: the columns to match.
        when_matched: see `merge`.
        inserts: whether rows of the source that match none are added.
        deletes_others: whether rows of the table that match none are deleted.

    Raises:
        InvalidInput: `when_matched` is none of its forms, or there is no column to match.
    """

    on: list[str]
    when_matched: Matched
    inserts: bool
    deletes_others: bool

    def __post_init__(self) -> None:
        if not isinstance(self.when_matched, Mapping):
            choice(self.when_matched, "when_matched", ("update", "delete", "ignore"))
        if not self.on:
            raise InvalidInput("merge needs the columns to match: give on")
        if len(set(self.on)) < len(self.on):
            twice = next(name for name in self.on if self.on.count(name) > 1)
            raise InvalidInput(f"merge on {shown(twice)}, which is given twice: give it once")

    def begin(self, t: Table, start: Snapshot, app: App | None) -> RowChange | None:
        """Return the change if the app's unit of work is done already.

        Raises:
            InvalidInput: the table has a key.
        """
        if keyed_of(start.layout) is not None:
            raise InvalidInput("a keyed table is merged into by `upsert`, by its key")
        done = skipped(t, start, app)
        return None if done is None else RowChange(done)

    def search(self, t: Table, source: pa.Table, memory_bytes: int, *, dry_run: bool) -> Search:
        """Return a search for the rows of the table that may match those of a source."""
        if self.deletes_others:
            return Search(t, None, memory_bytes)
        # Rows between the bounds of many keys are too many to be kept; those of a few keys match.
        few = all(len(pc.unique(source.column(name))) <= _FEW for name in self.on)
        updates = self.when_matched not in ("delete", "ignore")
        keeps = few and updates and not dry_run
        return Search(t, _bounds(source, self.on), memory_bytes, keeps=keeps)

    def check_evolving(self) -> None:
        """Check that the columns of the source can become columns of the table first.

        Raises:
            InvalidInput: new values are given by column.
        """
        if isinstance(self.when_matched, Mapping):
            raise InvalidInput(
                "evolve adds the columns of the source: where new values are given by column, add "
                "the columns first, by Table.add_columns"
            )

    def evolving(
        self, t: Table, source: Any, app: App | None, *, evolve: bool, dry_run: bool
    ) -> AbstractContextManager[Any]:
        """See `eventlog.writers.batch.evolving`. Raises: also as `check_evolving`."""
        if evolve:
            self.check_evolving()
        wanted = self.inserts
        return evolving(t, source, app, evolve=evolve, dry_run=dry_run, complete=wanted)

    def spelled(self, head: Snapshot) -> Merging:
        """Return the same with the columns to match as the table spells them."""
        return replace(self, on=spelled_names(self.on, head.schema.names))


def merging_of(
    on: str | Sequence[str],
    when_matched: Matched,
    when_not_matched: str,
    when_not_matched_by_source: str,
) -> Merging:
    """Return what a merge does, from the arguments of `merge`.

    Raises:
        InvalidInput: one is wrong.
    """
    inserts = choice(when_not_matched, "when_not_matched", INSERTS) == "insert"
    others = choice(when_not_matched_by_source, "when_not_matched_by_source", DELETES)
    names = [on] if isinstance(on, str) else name_list(on, "on")
    return Merging(names, when_matched, inserts=inserts, deletes_others=others == "delete")


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
    table, reader = head.schema, to_reader(source, types_of(head))
    given = spelled(reader.schema, table.names)
    check_source(given, head, on, inserts=inserts)
    time_column = head.layout.time_column
    shared = pa.schema([f for f in table if f.name in given.names])
    if not inserts:
        shared = pa.schema([f.with_nullable(True) for f in shared])
    others = pa.schema([f for f in given if f.name not in table.names])
    parts = []
    for batch in batches(reader, pa.schema([*shared, *others]), time_column):
        # Without new rows the source needs no event time.
        cast = conform(batch, shared, time_column, time_required=inserts)
        if isinstance(cast, Problem):
            raise InvalidInput(
                f"column {cast.column!r}: {cast.count} {cast.why}, for example {cast.example}; "
                "nothing was committed"
            )
        for other in others:
            cast = cast.append_column(other, batch.column(other.name))
        parts.append(cast)
    return pa.concat_tables(parts) if parts else pa.schema([*shared, *others]).empty_table()


def check_source(given: pa.Schema, head: Snapshot, on: Sequence[str], *, inserts: bool) -> None:
    """Check the columns of a source.

    Args:
        given: the columns.
        head: the table.
        on: the columns to match.
        inserts: whether rows are to be added.

    Raises:
        InvalidInput: a column is missing or of a type that does not fit, or its values are not
            compared.
    """
    table = head.schema
    for name in on:
        if name not in table.names or name not in given.names:
            missing_in = "the table" if name not in table.names else "the source"
            raise InvalidInput(
                f"merge on {shown(name)}, which {missing_in} lacks; columns of the table: "
                f"{list_names(head.stored_schema)}"
            )
        kind = table.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind):
            raise InvalidInput(f"merge on {name!r} of type {kind}, whose values are not compared")
    needed = [f.name for f in table if not f.nullable or f.name == head.layout.time_column]
    lacking = [name for name in needed if name not in given.names]
    if inserts and lacking:
        raise InvalidInput(
            f"the source lacks column {lacking[0]!r}, which new rows need: add it, or give "
            "when_not_matched='ignore'"
        )
    shared = pa.schema([f for f in table if f.name in given.names])
    ours = pa.schema([f for f in given if f.name in table.names])
    check_columns(ours, shared, head.layout.time_column)


@dataclass
class TableMatching(ABC):
    """Matches rows of the table with those of a source: finds what a merge deletes, and adds.

    Attributes:
        search: how the rows of the table are read; its predicate excludes only rows that match
            none.
        merging: what the merge does.
        values: the new values of matched rows; None: they are not updated.
    """

    search: Search
    merging: Merging
    values: Mapping[str, NewValues] | None
    # For each segment that was read: the positions of its matched rows; in memory each with the row
    # of the source.
    matches: dict[Place, Iterable[int]] = field(default_factory=dict, init=False)
    # The rows that were matched, where the search keeps them.
    hits: dict[Place, Hits] = field(default_factory=dict, init=False)
    gone: dict[Place, BitMap64] = field(default_factory=dict, init=False)
    segments: list[Segment] = field(default_factory=list, init=False)
    _once: StagedOnce = field(default_factory=StagedOnce, init=False)

    @abstractmethod
    def match(self, segments: Sequence[Segment], snapshot: Snapshot) -> None:
        """Enter the matched rows of these segments in `matches`.

        Raises:
            InvalidInput: several rows of the source match one of the table.
        """

    @abstractmethod
    def staged(self, found: Found) -> Staged:
        """Stage new and updated rows; return their segments, and the action of the update."""

    @abstractmethod
    def to_insert(self) -> object:
        """Return a value that is equal as long as the same rows of the source match none."""

    @abstractmethod
    def inserted(self) -> int:
        """Return the number of rows to add that match none."""

    def land(self, start: Snapshot, app: App | None, *, dry_run: bool) -> RowChange:
        """Commit the merge, or return what it would do. Raises: as `merge`."""
        if dry_run:
            return self._tried(start)
        of = request_of(
            start, "merge", self.search.where, "snapshot", app, self.search.memory_bytes
        )
        request = replace(of, arrivals="search")
        return land(self.search.t, request, start, self, self.stage)

    def find(
        self,
        snapshot: Snapshot,
        among: Callable[[Segment], bool] = lambda _: True,
        known: Mapping[Place, Hits] | None = None,  # noqa: ARG002 - it keeps more itself
    ) -> Found:
        """Return the rows that the merge deletes or replaces; see `Search.find`.

        Raises:
            InvalidInput: several rows of the source match one of the table.
        """
        plan = plan_scan(snapshot, columns=[], where=self.search.where)
        segments = [s for s in to_segments(plan.entries.sort_by(SCAN_ORDER)) if among(s)]
        self.match([s for s in segments if (s.id, s.version) not in self.matches], snapshot)
        store, table = self.search.t.store, snapshot.header.table
        vectors = VectorReader(store, snapshot.version, segments, table)
        self.segments, self.gone = segments, {}
        selected = []
        for segment in segments:
            place = segment.id, segment.version
            self.gone[place] = vectors.deleted(segment)
            matched = BitMap64(self.matches[place])
            changes = self.values is not None or self.merging.when_matched == "delete"
            wanted = matched if changes else BitMap64()
            if self.merging.deletes_others:
                wanted |= BitMap64(range(segment.rows)) - matched
            wanted -= self.gone[place]
            if wanted:
                whole = len(wanted) == segment.live_rows
                selected.append(Selected(segment, None if whole else wanted))
        places = [(s.id, s.version) for s in segments]
        self.hits = {place: self.hits[place] for place in places if place in self.hits}
        searched = {p: self.hits[p].without(self.gone[p]) for p in places if p in self.hits}
        return Found(snapshot, tuple(selected), searched, vectors)

    def stage(self, found: Found) -> Staged:
        """Return the staged segments of new and updated rows, and the action of the update."""
        return self._once.get(found, self.to_insert(), self.staged)

    def live_matches(self) -> int:
        """Return the number of matched rows that are not deleted."""
        found = self.gone.items()
        return sum(len(BitMap64(self.matches[place]) - gone) for place, gone in found)

    def _tried(self, snapshot: Snapshot) -> RowChange:
        found = self.find(snapshot)
        updated = 0 if self.values is None else self.live_matches()
        inserted = self.inserted() if self.merging.inserts else 0
        return would_change(found, updated=updated, inserted=inserted)


@dataclass
class Matching(TableMatching):
    """Matches the rows of a source that is held in memory.

    Attributes:
        source: the rows of the source.
    """

    source: pa.Table
    _keys: pa.Table | None = field(default=None, init=False)

    def to_insert(self) -> object:
        """See `TableMatching.to_insert`."""
        return self._unmatched() if self.merging.inserts else None

    def inserted(self) -> int:
        """See `TableMatching.inserted`."""
        return len(self._unmatched())

    def match(self, segments: Sequence[Segment], snapshot: Snapshot) -> None:
        """See `TableMatching.match`."""
        on = self.merging.on
        if self._keys is None:
            numbers = pa.array(range(self.source.num_rows), pa.int64())
            self._keys = self.source.select(on).append_column(_SOURCE_ROW, numbers).drop_null()
        found: dict[Place, dict[int, int]] = {(s.id, s.version): {} for s in segments}
        places, rows = list(found), KeptRows()
        numbers = {place: number for number, place in enumerate(places)}
        vectors = VectorReader(
            self.search.t.store, snapshot.version, segments, snapshot.header.table
        )

        def keys() -> Iterator[pa.RecordBatch]:
            for segment, batch, keep in self.search.passing(
                snapshot, segments, vectors, columns=on, room=self.search.room(self.hits)
            ):
                rows.add(segment, batch, keep=keep)
                number = pa.scalar(numbers[segment.id, segment.version], pa.int64())
                columns = [*batch.select([*on, POSITION.name]).columns]
                columns.append(pa.repeat(number, batch.num_rows))
                yield pa.record_batch(columns, [*on, POSITION.name, _SEGMENT])

        for table in gathered(keys(), self.search.memory_bytes // 8):
            joined = table.join(self._keys, on, join_type="inner")
            names = (_SEGMENT, POSITION.name, _SOURCE_ROW)
            columns = [joined.column(name).to_pylist() for name in names]
            for at, position, number in zip(*columns, strict=True):
                if found[places[at]].setdefault(position, number) != number:
                    key = self.source.select(on).slice(number, 1).to_pylist()[0]
                    raise several_match(row_text(key))
        self.matches.update(found)
        for place, matches in found.items():
            self.hits[place] = rows.hits(place, BitMap64(matches))

    def staged(self, found: Found) -> Staged:
        """See `TableMatching.staged`."""
        head = found.snapshot
        order = Order(head.layout.time_column, head.layout.granularity)
        inserted = 0

        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal inserted
            if self.values is not None:
                for table in self._updated(found, self.values):
                    order.watch(table)
                    yield from table.to_batches()
            if self.merging.inserts:
                numbers = pa.array(list(self._unmatched()), pa.int64())
                new = as_table_rows(self.source.take(numbers), head.stored_schema)
                inserted = new.num_rows
                yield from new.to_batches()

        reader = pa.RecordBatchReader.from_batches(head.schema, rows())
        adds = stage(self.search.t, head, reader, self.search.memory_bytes, as_given=True)
        if not order.rows:
            return adds, None
        paired = order.kept and not inserted and order.rows == found.rows
        return adds, Update(order.rows, paired=paired)

    def _unmatched(self) -> BitMap64:
        """Return the numbers of the source's rows that match no row."""
        every = BitMap64(range(self.source.num_rows))
        for place, gone in self.gone.items():
            found = self._source_rows(place)
            every -= BitMap64([found[p] for p in BitMap64(found) - gone])
        return every

    def _source_rows(self, place: Place) -> dict[int, int]:
        return cast("dict[int, int]", self.matches[place])

    def _updated(self, found: Found, values: Mapping[str, NewValues]) -> Iterator[pa.Table]:
        """Yield the new forms of the matched rows."""
        schema = found.snapshot.schema
        names = [qualified(SOURCE, name) for name in self.source.column_names]
        renamed = self.source.rename_columns(names)
        for rows in gathered(self._numbered(found), self.search.memory_bytes // 8):
            beside = renamed.take(rows.column(_SOURCE_ROW))
            columns = [*rows.select(schema.names).columns, *beside.columns]
            both = pa.table(columns, [*schema.names, *beside.column_names])
            yield with_values(both, values, schema)

    def _numbered(self, found: Found) -> Iterator[pa.RecordBatch]:
        """Yield the matched rows of the table, each with the number of the source's row."""
        schema = found.snapshot.schema
        for segment, batch in self.search.rows(found, pa.schema([*schema, POSITION])):
            place = segment.id, segment.version
            matches, gone = self._source_rows(place), self.gone[place]
            positions = batch.column(len(schema)).to_pylist()
            here = [n for n, p in enumerate(positions) if p in matches and p not in gone]
            numbers = pa.array([matches[positions[n]] for n in here], pa.int64())
            rows = batch if len(here) == len(positions) else batch.take(pa.array(here, pa.int64()))
            yield pa.record_batch([*rows.columns[:-1], numbers], [*schema.names, _SOURCE_ROW])


def several_match(key: str) -> InvalidInput:
    """Return the error for a row of the table that several rows of the source match."""
    return InvalidInput(
        "several rows of the source match one row of the table: those with "
        f"{key}. Leave one of them in the source; nothing was committed"
    )


def values_of(
    schema: Schema, given: pa.Schema, source: pa.Schema, merging: Merging
) -> Mapping[str, NewValues] | None:
    """Return the new values of matched rows; None if they are not updated.

    Args:
        schema: of the table.
        given: of the source, as it was given.
        source: of the source, in the table's types.
        merging: what the merge does.

    Raises:
        InvalidInput: a column or an expression is wrong; or a struct whose fields cannot keep their
            values lacks some.
    """
    when_matched = merging.when_matched
    lacking = absent_fields(given, to_arrow(schema))
    if isinstance(when_matched, Mapping):
        values = new_values(schema, when_matched, {SOURCE: from_arrow(source)})
        _check_whole_values(values, lacking, to_arrow(schema))
        return values
    if when_matched != "update":
        return None
    names = {column.name for column in schema.columns}
    unknown = [name for name in source.names if name not in names]
    if unknown:
        raise InvalidInput(
            f"the table has no column {shown(unknown[0])}: leave it out, or give the new values by "
            "column"
        )
    for path in lacking:
        if not _in_structs(source.field(path[0]).type, path[1:]):  # against elements-lose-fields
            raise _lacks_field(path)
    kinds = {path[0]: given.field(path[0]).type for path in lacking}
    changed = [name for name in source.names if name not in merging.on]
    return {name: _FromSource(name, kinds.get(name)) for name in changed} or None


def _check_whole_values(
    values: Mapping[str, NewValues], lacking: Sequence[FieldPath], table: pa.Schema
) -> None:
    """Check that values which can be structs read no column of the source that lacks fields."""
    for name, value in values.items():
        for path in lacking if pa.types.is_nested(table.field(name).type) else ():
            if qualified(SOURCE, path[0]) in value.columns():
                raise _lacks_field(path)


def _lacks_field(path: FieldPath) -> InvalidInput:
    return InvalidInput(
        f"the source lacks {path_text(path)}, so values in the rows that it updates would be lost: "
        "give the field, as null if that is meant"
    )


def _in_structs(kind: pa.DataType, names: Sequence[str]) -> bool:
    """Return whether names lead to a field by structs only, of which each row has one."""
    for name in names:
        if not pa.types.is_struct(kind):
            return False
        kind = kind.field(name).type
    return True


@dataclass(frozen=True, slots=True)
class _FromSource:
    """The value that the row of the source has.

    Attributes:
        name: of the column.
        given: the type in which the source has structs that lack fields: these keep their values;
            None: it lacks none.
    """

    name: str
    given: pa.DataType | None

    def columns(self) -> frozenset[str]:
        """See `NewValues.columns`."""
        source = qualified(SOURCE, self.name)
        return frozenset({source} if self.given is None else {source, self.name})

    def evaluate(self, table: pa.Table) -> pa.ChunkedArray:
        """See `NewValues.evaluate`."""
        values = table.column(qualified(SOURCE, self.name))
        if self.given is None:
            return values
        before = table.column(self.name).combine_chunks()
        return pa.chunked_array([_keeping(before, values.combine_chunks(), self.given)])


def _keeping(before: pa.Array, values: pa.Array, given: pa.DataType) -> pa.Array:
    """Return structs with the fields of others that their own type lacked. Null ones stay null.

    Args:
        before: the structs that are replaced.
        values: the structs, in the type of these.
        given: the type in which the structs came.
    """
    if pa.types.is_dictionary(given):
        given = given.value_type
    if not (pa.types.is_struct(given) and pa.types.is_struct(values.type)):
        return values
    kinds = {f.name: f.type for f in given}
    fields = []
    for at, f in enumerate(values.type):
        old, new = pc.struct_field(before, at), pc.struct_field(values, at)
        fields.append(_keeping(old, new, kinds[f.name]) if f.name in kinds else old)
    return pa.StructArray.from_arrays(fields, fields=list(values.type), mask=pc.is_null(values))


def _bounds(source: pa.Table, on: Sequence[str]) -> pc.Expression:
    """Return a filter that excludes only rows that match none of the source."""
    parts = []
    for name in on:
        values = source.column(name)
        # Bounds, too: by more than 50 values Arrow prunes no segment.
        ends = pc.min_max(values)
        parts.append((pc.field(name) >= ends["min"]) & (pc.field(name) <= ends["max"]))
        distinct = pc.unique(values).drop_null()
        if len(distinct) <= _FEW:
            parts.append(pc.field(name).isin(distinct))
    whole = parts[0]
    for part in parts[1:]:
        whole &= part
    return whole


def as_table_rows(rows: pa.Table, schema: Schema) -> pa.Table:
    """Return rows of the source as rows of the table.

    Columns that they lack have their defaults (FORMAT.md R7.12), or are null.
    """
    defaults = write_defaults(schema)

    def column(f: pa.Field) -> pa.ChunkedArray | pa.Array:
        if f.name in rows.column_names:
            return rows.column(f.name)
        if f.name in defaults:  # against merged-rows-without-defaults
            return pa.repeat(defaults[f.name], rows.num_rows)
        return pa.nulls(rows.num_rows, f.type)

    wanted = to_arrow(schema)
    return pa.Table.from_arrays([column(f) for f in wanted], schema=wanted)
