"""Which stored rows of a keyed table a version shows, as deletion vectors of its segments.

Under the merge rules `last` and `first` each row that a reader sees is one stored row. So a version
is its stored rows less the hidden ones: rows that later ones replace, rows of deleted keys, and the
deletes themselves. The merge of readers decides which these are: it is run over the key columns,
and the place of each row takes the part of its values.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from eventlog.format import codec, keys
from eventlog.format.deletion_vectors import encode_bitmap
from eventlog.format.frames import entry_columns
from eventlog.keyed.rule import MergeRule
from eventlog.keyed.slice_pruning import is_plain, rows_needed
from eventlog.keyed.slices import Run, grouped, readable_runs
from eventlog.log.snapshot import Snapshot
from eventlog.model.entries import Schema, Segment, Vector, deleted_rows
from eventlog.model.schema import to_arrow
from eventlog.publishing.versions import Exchange, VersionStep
from eventlog.segments.fragments import POSITION, Reading
from eventlog.store.parallel import Executors
from eventlog.store.port import ObjectStore

_ROW_BITS = 40  # of a place: the position in the segment; above them stands the segment's number


@dataclass(frozen=True, slots=True)
class ChunkSlices:
    """The slices of one time chunk at one version, as a reader of all its rows reads them.

    Attributes:
        chunk: the time chunk.
        plain: the segments all rows of which are shown.
        merged: groups of runs of slices that share no segment, of which rows are merged.
        unread: the segments no row of which is shown, as their places alone tell.
    """

    chunk: str
    plain: tuple[Segment, ...]
    merged: tuple[tuple[Run, ...], ...]
    unread: tuple[Segment, ...]

    @property
    def segments(self) -> list[Segment]:
        """The segments of which rows may be hidden, each once."""
        return run_segments(run for runs in self.merged for run in runs)

    @property
    def name(self) -> str:
        """A text that is equal where the same rows of the same segments are hidden."""
        return "/".join(["slices", self.chunk, *map(name_of_runs, self.merged)])


def chunk_slices(segments: Sequence[Segment], rule: MergeRule) -> ChunkSlices:
    """Return the slices of one time chunk.

    Args:
        segments: its live segments, at least one.
        rule: the table's merge rule.

    Raises:
        Corrupt: a segment has no place in the slices.
    """
    plain: list[Segment] = []
    merged: list[tuple[Run, ...]] = []
    for group in grouped(rows_needed(readable_runs(segments, rule))):
        if all(map(is_plain, group)):
            plain += {s.id: s for run in group for s in run.segments}.values()
        else:
            merged.append(tuple(group))
    read = {s.id for s in plain} | {s.id for g in merged for run in g for s in run.segments}
    unread = tuple([s for s in segments if s.id not in read])
    return ChunkSlices(segments[0].chunk, tuple(plain), tuple(merged), unread)


def shows_stored_rows(rule: MergeRule) -> bool:
    """Return whether each row that readers are shown is one that is stored, whatever is merged."""
    return rule.kind in ("last", "first")


def published_schema(snapshot: Snapshot) -> Schema:
    """Return the columns of a version as engines are shown them.

    In a keyed table all but those of the key may be null: deletes, which are stored beside the
    rows, have nothing else, and engines check what they read before they leave out hidden rows.
    """
    schema, rule = snapshot.stored_schema, snapshot.merge_rule
    if rule is None:  # against columns-that-deletes-lack
        return schema
    columns = [
        msgspec.structs.replace(column, nullable=column.nullable or column.name not in rule.key)
        for column in schema.columns
    ]
    return msgspec.structs.replace(schema, columns=tuple(columns))


def rule_of_keys(snapshot: Snapshot) -> MergeRule:
    """Return the merge rule of a version of a keyed table."""
    rule = snapshot.merge_rule
    assert rule is not None  # noqa: S101
    return rule


def name_of_runs(runs: Iterable[Run]) -> str:
    """Return a text that is equal where runs have the same segments in the same places."""
    named = [
        [run.splits, run.first, run.last, *(f"{p.kind} {p.segment.id}" for p in run.placed)]
        for run in runs
    ]
    return codec.sha256(repr(named).encode())


class ShownRows:
    """The segments of versions of one table, with vectors of the rows that are not shown.

    Those of a table without a key are as its log has them. What was found out of a time chunk is
    kept until the chunk is looked at in another state.

    Args:
        store: of the table.
        executors: merge what `merge_ahead` is given; None: this process does.
    """

    def __init__(self, store: ObjectStore, executors: Executors | None = None) -> None:
        self._store, self._executors = store, executors
        self._slices: dict[str, tuple[object, ChunkSlices]] = {}
        self._hidden: dict[str, dict[str, Mapping[str, Vector]]] = {}
        self._ahead: dict[str, Mapping[str, Vector]] = {}  # by the name of a group of runs

    def entries(self, snapshot: Snapshot) -> pa.Table:
        """Return the entries of the segments that show rows at a version, in columns.

        Raises:
            Corrupt: the log does not add up.
            DataLoss: a segment is missing or damaged.
            Unavailable: the store does not answer.
        """
        if snapshot.merge_rule is None:
            return snapshot.entries()
        chunks = [*self.slices(snapshot)]
        self.merge_ahead((snapshot, chunk) for chunk in chunks)
        shown = [s for chunk in chunks for s in self._shown(snapshot, chunk)]
        return entry_columns.from_segments(shown)

    def step(self, step: VersionStep) -> VersionStep:
        """Return the step between the segments that show rows before it and after it.

        Raises: as `entries`.
        """
        if step.after.merge_rule is None:
            return step
        changed = sorted({e.chunk for x in step.exchanges for e in (x.before, x.after) if e})
        sides = {
            chunk: [
                (snapshot, chunk_slices(live, rule_of_keys(snapshot)))
                if live and snapshot is not None
                else None
                for snapshot, live in zip((step.before, step.after), both, strict=True)
            ]
            for chunk, both in _both(step, changed).items()
        }
        self.merge_ahead(side for both in sides.values() for side in both if side)
        exchanges: list[Exchange] = []
        for chunk, both in sides.items():
            rows_changed = any(
                x.rows_changed for x in step.exchanges for e in (x.before, x.after)
                if e and e.chunk == chunk
            )  # fmt: skip
            states = [
                {keys.key_of(s): s for s in (self._shown(*side) if side else ())} for side in both
            ]
            for key in states[0].keys() | states[1].keys():
                entries = states[0].get(key), states[1].get(key)
                exchanges.append(Exchange(key, *entries, rows_changed))
        return replace(step, exchanges=tuple(sorted(exchanges, key=lambda x: x.key)))

    def slices(self, snapshot: Snapshot) -> Iterator[ChunkSlices]:
        """Yield the slices of each time chunk of a version of a keyed table.

        Raises:
            Corrupt: the log does not add up.
        """
        rule, entries = rule_of_keys(snapshot), snapshot.entries()
        columns = [entries.column(name).to_pylist() for name in ("chunk_start", "chunk_end")]
        hashes = entries.column("hash").to_pylist()
        rows: dict[str, list[int]] = {}
        for row, chunk in enumerate(entry_columns.chunk_names(*columns)):
            rows.setdefault(chunk, []).append(row)
        for chunk in sorted(rows):
            state = rule.splits, frozenset(hashes[row] for row in rows[chunk])
            known = self._slices.get(chunk)
            if known is None or known[0] != state:
                live = entry_columns.to_segments(entries.take(rows[chunk]))
                known = self._slices[chunk] = (state, chunk_slices(live, rule))
            yield known[1]

    def merge_ahead(self, wanted: Iterable[tuple[Snapshot, ChunkSlices]]) -> None:
        """Have the executors merge what `with_vectors` of these needs. Without any: do nothing.

        What was merged ahead before, and is not known by its time chunk, is forgotten.

        Raises: as `entries`.
        """
        if self._executors is None:
            return
        groups: dict[str, _Group] = {}
        merges: dict[int, KeyMerge] = {}
        for snapshot, slices in wanted:
            merge = merges.setdefault(snapshot.version, KeyMerge.of(self._store, snapshot))
            known = self._hidden.get(slices.chunk, {})
            groups |= {
                name: (merge, runs)
                for name, runs in ((name_of_runs(runs), runs) for runs in slices.merged)
                if name not in known
            }
        found = self._executors(merged_groups, [*groups.values()], _group_bytes)
        self._ahead = dict(zip(groups, found, strict=True))

    def with_vectors(self, snapshot: Snapshot, slices: ChunkSlices) -> list[Segment]:
        """Return the segments that have hidden rows, of those that are merged, with vectors.

        A vector may have all rows of its segment.

        Raises: as `entries`.
        """
        known = self._hidden.get(slices.chunk, {}) | self._ahead
        merge = KeyMerge.of(self._store, snapshot)
        named = {name_of_runs(runs): runs for runs in slices.merged}
        found = self._hidden[slices.chunk] = {
            name: known[name] if name in known else merge.vectors(runs)
            for name, runs in named.items()
        }
        vectors = {id_: vector for some in found.values() for id_, vector in some.items()}
        return [
            msgspec.structs.replace(segment, vector=vectors[segment.id])
            for segment in slices.segments
            if segment.id in vectors
        ]

    def _shown(self, snapshot: Snapshot, slices: ChunkSlices) -> list[Segment]:
        changed = {segment.id: segment for segment in self.with_vectors(snapshot, slices)}
        merged = [changed.get(segment.id, segment) for segment in slices.segments]
        shown = [s for s in merged if deleted_rows(s.vector) < s.rows]
        return [*slices.plain, *shown]


@dataclass(frozen=True, slots=True)
class KeyMerge:
    """Finds the rows that one version of a keyed table does not show. Can be pickled.

    Attributes:
        store: of the table.
        version: the version, for error messages.
        table: the id of the table.
        columns: the table's columns at that version.
        rule: the merge rule.
    """

    store: ObjectStore
    version: int
    table: str
    columns: Schema
    rule: MergeRule

    @classmethod
    def of(cls, store: ObjectStore, snapshot: Snapshot) -> KeyMerge:
        """Return that of a version."""
        rule, columns = rule_of_keys(snapshot), snapshot.stored_schema
        return cls(store, snapshot.version, snapshot.header.table, columns, rule)

    def vectors(self, runs: Sequence[Run]) -> Mapping[str, Vector]:
        """Return the vectors of the segments of a group of runs, by id: one merge of its keys.

        Raises:
            DataLoss: a segment is missing or damaged.
            Unavailable: the store does not answer.
        """
        from eventlog.readers.keyed import SliceReader  # noqa: PLC0415 - readers stand above

        segments = run_segments(runs)
        starts = {s.id: number << _ROW_BITS for number, s in enumerate(segments)}
        reading = PlaceReading(
            store=self.store,
            version=self.version,
            columns=self.columns,
            table_schema=to_arrow(self.columns).append(POSITION),
            schema=pa.schema([POSITION]),
            table=self.table,
            starts=starts,
        )
        shown = BitMap64()
        for batch in SliceReader(reading, self.rule).batches(runs):
            shown |= _places_in(batch)
        vectors = {}
        for segment in segments:
            start = starts[segment.id]
            hidden = BitMap64(range(start, start + segment.rows)) - shown
            if hidden:
                positions = BitMap64(array("Q", (place - start for place in hidden)))
                vectors[segment.id] = Vector(len(positions), encode_bitmap(positions))
        return vectors


def run_segments(runs: Iterable[Run]) -> list[Segment]:
    """Return the segments of runs, each once."""
    return [*{s.id: s for run in runs for s in run.segments}.values()]


_Group = tuple[KeyMerge, tuple[Run, ...]]


def merged_groups(groups: Iterable[_Group]) -> Iterator[Mapping[str, Vector]]:
    """Yield the vectors of each group of runs, as a task of an executor returns them.

    Raises: as `KeyMerge.vectors`.
    """
    for merge, runs in groups:
        yield merge.vectors(runs)


def _group_bytes(group: _Group) -> int:
    return sum(segment.bytes for segment in run_segments(group[1]))


@dataclass(frozen=True, slots=True)
class PlaceReading(Reading):
    """Reads rows with their places in `POSITION`: numbers that differ between all rows.

    Attributes:
        starts: by the id of a segment the place of its first row.
    """

    starts: Mapping[str, int] = field(default_factory=dict)

    def batches(
        self, segments: Iterable[Segment], only: Mapping[str, BitMap64] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as `Reading.batches` does."""
        stored = pa.schema([one for one in self.table_schema if one.name != POSITION.name])
        reading = replace(self, table_schema=stored)
        for segment, batch in reading.located(segments, only or {}):
            at = batch.schema.get_field_index(POSITION.name)
            places = pc.add(batch.column(at), self.starts[segment.id])
            yield batch.set_column(at, batch.schema.field(at), places)


def _places_in(batch: pa.RecordBatch) -> BitMap64:
    column = batch.column(POSITION.name)
    numbers = array("Q")
    numbers.frombytes(memoryview(column.buffers()[1])[8 * column.offset :][: 8 * len(column)])
    return BitMap64(numbers)


def _both(
    step: VersionStep, chunks: Sequence[str]
) -> dict[str, tuple[list[Segment], list[Segment]]]:
    """Return the live segments of chunks before a step and after it."""
    after = {s.id: s for s in step.after.segments(chunks=chunks)} if chunks else {}
    before = dict(after)
    for exchange in step.exchanges:
        for entry in (exchange.after, exchange.before):
            if entry is not None:
                before.pop(entry.id, None)
    for exchange in step.exchanges:
        if exchange.before is not None:
            before[exchange.before.id] = exchange.before
    return {
        chunk: (
            [s for s in before.values() if s.chunk == chunk],
            [s for s in after.values() if s.chunk == chunk],
        )
        for chunk in chunks
    }
