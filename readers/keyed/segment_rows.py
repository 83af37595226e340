"""The rows of the segments of slices, in the buckets in which each of them counts.

Imports eventlog only. Small segments are read together, and tables of their rows are large enough
to look keys up in.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.keyed import key_lookup
from eventlog.keyed.log_rows import log_schema, row_buckets
from eventlog.keyed.placement import Placed
from eventlog.keyed.rule import MergeRule
from eventlog.keyed.slices import Run, buckets_in, segments_of
from eventlog.model import stats
from eventlog.model.entries import Schema
from eventlog.readers.keyed.cuts import UNIT_ROWS
from eventlog.segments.fragments import Reading

AT = ""  # a column with the version or the number of each row; no column of a table is called so
_FEW_KEYS = 1000  # that are worth a filter


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """Reads rows of segments as they are stored: bases, logs and late rows.

    Attributes:
        reading: how segments are read; its own filter and schema are not used.
        rule: the merge rule.
        columns: the columns to read, in the table's order.
        piece_bytes: bytes of Arrow data up to which batches of rows are joined.
    """

    reading: Reading
    rule: MergeRule
    columns: Sequence[str]
    piece_bytes: int

    @property
    def schema(self) -> pa.Schema:
        """The schema of rows of bases."""
        return pa.schema([self.reading.table_schema.field(name) for name in self.columns])

    @property
    def log_schema(self) -> pa.Schema:
        """The schema of rows of logs, which may be deletes."""
        return log_schema(self.schema, self.rule)

    def pieces(
        self, runs: Sequence[Run], wanted: pc.Expression | None = None
    ) -> Iterator[tuple[Placed, pa.Table]]:
        """Yield the rows of the bases of runs, with their segments, in the order of buckets.

        Args:
            runs: the runs.
            wanted: only rows that pass this filter, each with any of the bases; None: all rows.

        Raises: as `Reading.batches`.
        """
        bases = sorted(segments_of(runs, "base"), key=lambda base: base.first)
        reading = self._plain(self.schema, wanted)
        for buckets, some in alike(bases, runs):
            batches = reading.batches(base.segment for base in some)
            known = some if wanted is None else None
            for base, rows in _by_segment(batches, some[0], known, self.piece_bytes):
                yield base, self._of_buckets(rows, buckets)

    def above(
        self,
        placed: Sequence[Placed],
        runs: Sequence[Run],
        *,
        keys: pa.Table | None = None,
        after: int | None = None,
        wanted: pc.Expression | None = None,
        numbered: bool = False,
    ) -> Iterator[pa.Table]:
        """Yield the rows of logs or of late segments, in the given order.

        Args:
            placed: the segments, which count in some of the runs.
            runs: the runs.
            keys: only rows of these keys, if given.
            after: if given, there is a column `AT`: the version that the segment of a row begins
                with, or this version, if it is later.
            wanted: only rows that pass this filter, if given.
            numbered: whether there is a column `AT` with the number of each row among all rows of
                the segments, from 0 on.

        Raises: as `Reading.batches`.
        """
        seen = 0
        if keys is not None and sum(one.segment.rows for one in placed) > UNIT_ROWS:
            wanted = having(keys)  # fewer rows are filtered faster all at once
        reading = self._plain(self.log_schema, wanted)
        for buckets, some in alike(placed, runs, mixed=True):
            counts = [(max(one.low, after or 0), one.segment.rows) for one in some]
            batches = reading.batches(one.segment for one in some)
            for rows in _joined(batches, self.piece_bytes):
                if after is not None and reading.filter is None:
                    rows = at(rows, _first_of(counts, rows.num_rows))  # noqa: PLW2901
                elif after is not None:  # rows that are looked up are all older
                    rows = at(rows, [(after, rows.num_rows)])  # noqa: PLW2901
                elif numbered:
                    numbers = pc.add(key_lookup.row_numbers(rows.num_rows), seen)
                    seen += rows.num_rows
                    rows = rows.append_column(AT, numbers)  # noqa: PLW2901
                rows = self._of_buckets(rows, buckets)  # noqa: PLW2901
                if keys is not None:
                    rows = rows.filter(key_lookup.among(rows, keys, self.rule.key))  # noqa: PLW2901
                if rows.num_rows:
                    yield rows

    def stored(self, placed: Sequence[Placed]) -> Iterator[pa.Table]:
        """Yield all rows of logs, as they are numbered by `above`, with the columns of `schema`.

        Without `_op` nobody sees which of them may lack values: who knows their numbers has read
        them with it.

        Raises: as `Reading.batches`.
        """
        fields = [field.with_nullable(True) for field in self.schema]
        reading = replace(self._plain(pa.schema(fields), None), required=frozenset())
        yield from _joined(reading.batches(one.segment for one in placed), self.piece_bytes)

    def _plain(self, schema: pa.Schema, wanted: pc.Expression | None) -> Reading:
        """Return how segments are read as they are; only rows that pass, if a filter is given."""
        fields = {field.name: field for field in self.reading.table_schema} | {
            field.name: field for field in schema
        }
        return replace(
            self.reading,
            table_schema=pa.schema(list(fields.values())),
            schema=schema,
            filter=wanted,
            filter_columns=frozenset() if wanted is None else frozenset(self.rule.key),
            required=self.rule.merged_by,
        )

    def _of_buckets(self, rows: pa.Table, buckets: frozenset[int] | None) -> pa.Table:
        """Return the rows in some buckets; None: in all."""
        if buckets is None or not rows.num_rows:
            return rows
        chosen = pa.array(sorted(buckets), pa.int32())
        return rows.filter(pc.is_in(row_buckets(rows, self.rule), value_set=chosen))


def alike(
    placed: Sequence[Placed], runs: Sequence[Run], *, mixed: bool = False
) -> Iterator[tuple[frozenset[int] | None, list[Placed]]]:
    """Yield the segments in groups that are read together, with the buckets whose rows count.

    Many segments that are read together are read ahead.

    Args:
        placed: segments of the runs; their order is kept.
        runs: runs of one part.
        mixed: whether rows of segments that count in all their buckets may be filtered by bucket,
            too, so that they can be read together with the others.

    Returns:
        The buckets; None: all rows count.
    """
    if not placed:
        return
    chosen = _effective_buckets(placed, runs)
    everywhere = frozenset(b for run in runs for b in range(run.first, run.last + 1))
    # The buckets of one segment alone do not apply to the rows of others.
    if mixed and {*chosen} == {None, everywhere}:
        chosen = [everywhere] * len(placed)
    for buckets, group in groupby(zip(chosen, placed, strict=True), key=lambda pair: pair[0]):
        yield buckets, [one for _, one in group]


def _effective_buckets(
    placed: Sequence[Placed], runs: Sequence[Run]
) -> list[frozenset[int] | None]:
    """Return for each segment the buckets of the runs in which it counts; None: all of its own.

    For one that counts wherever the runs meet its buckets, they are those of all runs.
    """
    every = sorted(b for run in runs for b in range(run.first, run.last + 1))
    together = frozenset(every)
    counts: dict[str, int] = {}
    for run in runs:
        for one in run.placed:
            meets = max(0, min(run.last, one.last) - max(run.first, one.first) + 1)
            counts[one.segment.id] = counts.get(one.segment.id, 0) + meets
    buckets: list[frozenset[int] | None] = []
    for one in placed:
        own = counts.get(one.segment.id, 0)
        if own == one.last - one.first + 1:
            buckets.append(None)
        elif own == bisect_right(every, one.last) - bisect_left(every, one.first):
            buckets.append(together)
        else:
            buckets.append(frozenset(buckets_in(one, runs)))
    return buckets


def of_keys(runs: Sequence[Run], keys: pa.Table, rule: MergeRule) -> list[Run]:
    """Return the runs that have a bucket of one of these keys."""
    buckets = sorted(set(row_buckets(keys, rule).to_pylist()))
    return [r for r in runs if bisect_left(buckets, r.first) < bisect_right(buckets, r.last)]


def having(keys: pa.Table) -> pc.Expression | None:
    """Return a filter that all rows with these keys pass; None if they are too many for one.

    It leaves out row groups by their statistics.
    """
    if not 0 < keys.num_rows <= _FEW_KEYS:
        return None
    wanted = pc.scalar(True)
    for name in keys.column_names:
        wanted &= pc.field(name).isin(pc.unique(keys.column(name)))
    return wanted


def replaces_all(above: pa.Table, runs: Iterable[Run], rule: MergeRule, columns: Schema) -> bool:
    """Return whether no row of a base is shown if a row above it has its key.

    That is so under `last` if those above come later and, as the statistics of bases show, are of
    no smaller order. Then a scan need not read the order of the rows of bases.

    Args:
        above: all rows above the bases, with the order column if there is one.
        runs: the runs.
        rule: the merge rule.
        columns: the table's columns.
    """
    if rule.kind != "last":
        return False
    if rule.order is None:
        return True
    order = next(column for column in columns.columns if column.name == rule.order)
    least = pc.min(above.column(rule.order))  # one without an order hides all rows before it
    if not least.is_valid:
        return True
    low = stats.encode(least, order.type)
    if not isinstance(low, int):  # bounds of text are cut
        return False
    highest = [
        next((of.max for of in base.segment.stats if of.column == order.id), None)
        for base in segments_of(runs, "base")
    ]
    # against newer-base-rows-dropped
    return all(isinstance(high, int) and high <= low for high in highest)


def at(rows: pa.Table, versions: Sequence[tuple[int, int]]) -> pa.Table:
    """Return rows with the column `AT`, given versions with how many rows have each."""
    runs = [pa.repeat(pa.scalar(version, pa.int64()), count) for version, count in versions]
    return rows.append_column(AT, pa.concat_arrays([pa.nulls(0, pa.int64()), *runs]))


def in_order_of_versions(rows: pa.Table) -> pa.Table:
    """Return rows in the order of `AT`; those of a key and a version stay in theirs."""
    versions = key_lookup.in_one_piece(rows.column(AT))
    falls = pc.less(versions.slice(1), versions.slice(0, max(0, len(versions) - 1)))
    return rows.take(pc.sort_indices(versions)) if pc.any(falls).as_py() else rows  # stable


def _joined(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.Table]:
    """Yield rows in tables of about so many bytes."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= most_bytes:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _by_segment(
    batches: Iterable[pa.RecordBatch],
    first: Placed,
    placed: Sequence[Placed] | None,
    most_bytes: int,
) -> Iterator[tuple[Placed, pa.Table]]:
    """Yield the rows of each segment, in tables of about so many bytes.

    Args:
        batches: rows of segments, in order; each batch is of one segment.
        first: the first of the segments.
        placed: all of them, if the batches have all their rows; if None, all rows come with the
            first one.
        most_bytes: bytes up to which batches are joined.
    """
    waiting: list[pa.RecordBatch] = []
    size = 0
    source = iter([one for one in placed or () if one.segment.rows])
    current, left = first, 0
    for batch in batches:
        if placed is not None and not left:
            current = next(source)
            left = current.segment.rows
        left -= batch.num_rows
        waiting.append(batch)
        size += batch.nbytes
        if not left or size >= most_bytes:
            yield current, pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield current, pa.Table.from_batches(waiting)


def _first_of(counts: list[tuple[int, int]], rows: int) -> list[tuple[int, int]]:
    """Take the first `rows` rows from a list of versions, with how many rows have each."""
    first: list[tuple[int, int]] = []
    while rows:
        version, count = counts.pop(0)
        some = min(count, rows)
        first.append((version, some))
        rows -= some
        if some < count:
            counts.insert(0, (version, count - some))
    return first
