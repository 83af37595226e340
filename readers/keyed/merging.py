"""Reads keyed tables: rows of one key are merged, in memory bounded by the rows above the bases.

Imports eventlog only. A base streams through: rows whose keys nothing above it mentions pass as
they are. The others are merged with what the logs say (`eventlog.staging.merging`).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.format.buckets import buckets_of
from eventlog.model.records import Segment
from eventlog.readers.batches import counted, filtered
from eventlog.readers.fragments import Reading
from eventlog.readers.keyed.groups import above_bytes, alike, grouped, of_keys, parts
from eventlog.staging import merging
from eventlog.state.keyed.pruning import is_plain
from eventlog.state.keyed.rule import OP, MergeRule
from eventlog.state.keyed.slices import Run, applied, reach, slice_of, span

AT = ""  # no column of a table has this name
# What an expression calls, as it prints itself, and what of that has a value for all arguments.
_CALLED = re.compile(r"(\w+)\(")
_TOTAL = frozenset(
    ("coalesce", "decimal128", "if_else", "invert", "is_in", "is_null", "is_valid", "starts_with")
)
_FEW_KEYS = 1000  # that are worth a filter
_FEW_BASES = 4  # that a look-up reads
_SAMPLES = 256  # keys for each share of a bucket
_JOINED_BYTES = 32 * 2**20
# Rows of bases that are looked through at once, and rows that are merged at once: enough for what a
# step costs by itself, and few enough for the processor's caches.
_UNIT_ROWS = _MERGED_ROWS = 64 * 1024
# Rows above the bases may take this many times what is read ahead, in Arrow, which is about so many
# times their stored size; merging holds them several times.
_EXPANDED, _HELD = 4, 8


@dataclass(frozen=True, slots=True)
class Slices:
    """How runs of slices become batches. Can be pickled.

    Attributes:
        reading: how their segments are read; its filter is that of the result.
        rule: the merge rule.
    """

    reading: Reading
    rule: MergeRule

    def at(self, version: int) -> Slices:
        """Return the same for runs of another version."""
        return replace(self, reading=replace(self.reading, version=version))

    def batches(self, runs: Sequence[Run]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these runs, one a key, in the schema of `reading`.

        The order is that of the bases, then that of keys that were added since.

        Raises: as `Reading.batches`.
        """
        for plain, groups in groupby(grouped(runs), lambda group: all(map(is_plain, group))):
            if plain:  # all that follow each other at once: they are read ahead
                bases = {s.id: s for group in groups for run in group for s in run.base}
                yield from self.reading.batches(bases.values())
            else:
                for group in groups:
                    # Shared logs are read once for each part, so that memory has a bound.
                    most = _EXPANDED * self.reading.ahead_bytes // _HELD
                    for part in parts(group, most):
                        for share in self._shares(part, most):
                            yield from self._merged(part, share)

    def written(self, runs: Sequence[Run], after: int) -> pa.Table:
        """Return the rows of those keys that were written after a version, before the merge.

        Args:
            runs: runs of one part (`readers.keyed.groups.parts`).
            after: the version.

        Returns:
            The columns of `reading` and those that a merge of them needs, `_op`, and `AT`: the
            version of a row; `after` if it is older. The rows are in commit order.

        Raises: as `Reading.batches`.
        """
        columns = self._columns()
        schema = self._log_schema(columns)
        logs = _ordered(runs, ("log",))
        new = [s for s in logs if span(s)[0] > after]
        written = self._read(new, runs, schema, versions=True)
        touched = merging.distinct(written, self.rule.key)
        runs = of_keys(runs, touched, self.rule)
        early = [s for s in _ordered(runs, ("late", "log")) if span(s)[0] <= after]
        before = self._read(early, runs, schema, among=touched)
        late = self._read(_ordered(runs, ("late",)), runs, schema, among=touched)
        known = merging.distinct(late, self.rule.key)
        parts = []
        for rows in self._hits(runs, columns, touched):
            hit = rows.filter(merging.among(rows, touched, self.rule.key))
            hit = hit.filter(pc.invert(merging.among(hit, known, self.rule.key)))
            parts.append(_as_log(hit, schema))
        known_before = pa.concat_tables([*parts, before])
        known_before = _at(known_before, [(after, known_before.num_rows)])
        return pa.concat_tables([known_before, written]).combine_chunks()

    def known(self, runs: Sequence[Run], after: int) -> pa.Table:
        """Return the merged rows of the keys that were written after a version.

        Args:
            runs: runs of one part.
            after: the version.

        Raises: as `Reading.batches`.
        """
        rows = self._one_a_key(self.written(runs, after).drop_columns([AT]), runs)
        return rows.select(self.reading.schema.names).cast(self.reading.schema)

    def merged(self, runs: Sequence[Run]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these runs, which need not take in all buckets of their segments.

        Raises: as `Reading.batches`.
        """
        yield from self._merged([run for run in runs if run.segments])

    def _columns(self) -> list[str]:
        """Return the columns to read, in the table's order."""
        reading = self.reading
        wanted = self.rule.needed([*reading.schema.names, *sorted(reading.filter_columns)])
        return [name for name in reading.table_schema.names if name in wanted]

    def _shares(self, runs: Sequence[Run], most: int) -> Iterator[pc.Expression | None]:
        """Yield filters of key ranges in turn, so that the rows above have a bound in each.

        A bucket whose logs are too large is read range by range. Row groups are sorted by key, so
        each is read about once if the first column of the key cuts the rows well.
        """
        count = int(-(-above_bytes(runs) // max(1, most)))
        if count < 2:
            yield None
            return
        sample = self._sample(runs, count * _SAMPLES)
        best: tuple[str, list[pa.Scalar]] = self.rule.key[0], []
        for name in self.rule.key:
            cuts = _cuts(sample.column(name), count)
            if len(cuts) > 1.5 * len(best[1]):  # the first column is the one that rows stand by
                best = name, cuts
        column = pc.field(best[0])
        low: pa.Scalar | None = None
        for high in [*best[1], None]:
            share = pc.scalar(True)
            if low is not None:
                share &= column > low
            if high is not None:
                share &= column <= high
            yield share
            low = high

    def _sample(self, runs: Sequence[Run], count: int) -> pa.Table:
        """Return about so many keys of the logs of some buckets."""
        logs = _ordered(runs, ("log", "late"))
        apart = max(1, sum(s.rows for s in logs) // count)
        schema = self._log_schema(self.rule.key).remove(len(self.rule.key))
        parts = [pa.Table.from_batches([], schema)]
        for batch in self._plain(schema).batches(logs):
            picked = pa.array(range(0, batch.num_rows, apart), pa.int64())
            parts.append(pa.Table.from_batches([batch]).take(picked))
        return pa.concat_tables(parts)

    def _merged(
        self, runs: Sequence[Run], share: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        rule = self.rule
        columns = self._columns()
        schema = self._log_schema(columns)
        wanted = share if share is not None else self._of_keys(runs)
        # Rows that a filter leaves out are not counted, so nobody knows where a segment ends.
        units = _units(runs, rule) if wanted is None else [(0, rule.buckets - 1)]
        above = self._read(_ordered(runs, ("log",)), runs, schema, wanted=wanted)
        late = self._read(_ordered(runs, ("late",)), runs, schema, wanted=wanted)
        above, late = _split(above, units, rule), _split(late, units, rule)
        pieces = groupby(
            self._pieces(runs, columns, wanted), lambda piece: _unit_of(piece[0], units, rule)
        )
        number, bases = next(pieces, (None, None))
        waiting: list[pa.Table] = []
        for unit in range(len(units)):
            mine: Iterable[pa.Table] = ()
            if bases is not None and number == unit:
                mine = (rows for _, rows in bases)
            yield from self._of_unit(above[unit], late[unit], mine, waiting)
            if mine:
                number, bases = next(pieces, (None, None))
            if unit == len(units) - 1 or sum(map(len, waiting)) >= _MERGED_ROWS:
                yield from self._shown(waiting, runs)
                waiting = []

    def _of_keys(self, runs: Sequence[Run]) -> pc.Expression | None:
        """Return the filter of a look-up, which is applied before the merge, too.

        It reads no other columns than those of the key, which a merge does not change, and does not
        fail on rows that a merge removes. Row groups are then left out by their statistics.
        """
        reading = self.reading
        keys_only = reading.filter_columns <= set(self.rule.key)
        few = len(_ordered(runs, ("base",))) <= _FEW_BASES
        return reading.filter if keys_only and few and _never_fails(reading.filter) else None

    def _of_unit(
        self, above: pa.Table, late: pa.Table, bases: Iterable[pa.Table], waiting: list[pa.Table]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that nothing is applied to; add the others to `waiting`, to be merged.

        Args:
            above: the rows of logs in some buckets, in commit order.
            late: the late rows.
            bases: the rows of bases.
            waiting: gets all rows of the keys that logs have, in commit order.
        """
        key = self.rule.key
        if not above.num_rows:  # late rows count only where there are rows above
            for rows in bases:
                yield from self._wanted(rows)
            return
        touched = merging.distinct(above, key)
        late = late.filter(merging.among(late, touched, key))
        known = merging.distinct(late, key)
        for rows in bases:
            touches = merging.among(rows, touched, key)
            free = rows.filter(pc.invert(touches))
            if free.num_rows:
                yield from self._wanted(free)
            hit = rows.filter(touches)
            if known.num_rows:
                hit = hit.filter(pc.invert(merging.among(hit, known, key)))
            if hit.num_rows:
                waiting.append(_as_log(hit, above.schema))
        waiting += [late, above]

    def located(self, error: merging.SumOverflow, runs: Sequence[Run]) -> InvalidInput:
        """Return the error of a sum in these runs, with where it is and what to do.

        A `version` that it has already stands; else it is that which is read.
        """
        bucket = buckets_of(error.keys, self.rule.key, self.rule.buckets, self.rule.splits)[0]
        version = self.reading.version if error.version is None else error.version
        return InvalidInput(
            f"{error.message} at version {version} (chunk {runs[0].chunk}, bucket {bucket}): "
            "upsert a row of this key that takes a part back, and read a later version; or read "
            "null in place of such sums: `overflow='null'`, in the shell `--overflow null`",
            table=self.reading.store.uri,
            version=version,
        )

    def _one_a_key(self, rows: pa.Table, runs: Sequence[Run]) -> pa.Table:
        try:
            return merging.shown(rows, self.rule)
        except merging.SumOverflow as error:
            raise self.located(error, runs) from None

    def _shown(self, parts: Sequence[pa.Table], runs: Sequence[Run]) -> Iterator[pa.RecordBatch]:
        """Yield the merged rows of some keys, given all their rows."""
        if not any(map(len, parts)):
            return
        merged = self._one_a_key(pa.concat_tables(parts), runs)
        fields = [self.reading.table_schema.field(name) for name in merged.column_names]
        yield from self._wanted(merged.cast(pa.schema(fields)))

    def _log_schema(self, columns: Sequence[str]) -> pa.Schema:
        """Return the schema of rows of logs, which may be deletes."""
        fields = [self.reading.table_schema.field(name) for name in columns]
        relaxed = [f.with_nullable(f.nullable or f.name not in self.rule.key) for f in fields]
        return pa.schema([*relaxed, pa.field(OP, pa.string())])

    def _hits(
        self, runs: Sequence[Run], columns: Sequence[str], keys: pa.Table
    ) -> Iterator[pa.Table]:
        """Yield rows of bases, of the buckets in which these count: all that have these keys."""
        wanted = _having(keys)
        if wanted is None:
            yield from (rows for _, rows in self._pieces(runs, columns))
            return
        schema = pa.schema([self.reading.table_schema.field(name) for name in columns])
        reading = self._plain(schema, wanted)
        for chosen, few in alike(_ordered(runs, ("base",)), runs):
            rows = pa.Table.from_batches(reading.batches(few), schema)
            yield self._of_buckets(rows, chosen)

    def _pieces(
        self, runs: Sequence[Run], columns: Sequence[str], wanted: pc.Expression | None = None
    ) -> Iterator[tuple[Segment, pa.Table]]:
        """Yield the rows of bases, of the buckets in which these count, with their segments.

        In the order of buckets. With a filter, only rows that pass, each with any segment.
        """
        schema = pa.schema([self.reading.table_schema.field(name) for name in columns])
        reading = self._plain(schema, wanted)
        bases = sorted(_ordered(runs, ("base",)), key=lambda s: reach(s, self.rule.splits)[0])
        for chosen, few in alike(bases, runs):
            known = few if wanted is None else None
            for segment, rows in _joined(reading.batches(few), few[0], known):
                yield segment, self._of_buckets(rows, chosen)

    def _read(
        self,
        segments: Sequence[Segment],
        runs: Sequence[Run],
        schema: pa.Schema,
        among: pa.Table | None = None,
        *,
        versions: bool = False,
        wanted: pc.Expression | None = None,
    ) -> pa.Table:
        """Return the rows of segments, in the given order; of keys in `among`, if given.

        With `wanted` only rows that pass. With `versions` they have a column `AT`: the version that
        their segment begins with.
        """
        parts = [pa.Table.from_batches([], schema)]
        if versions:
            parts = [_at(parts[0], [])]
        if among is not None and sum(s.rows for s in segments) > _UNIT_ROWS:
            wanted = _having(among)  # fewer rows are filtered faster all at once
        reading = self._plain(schema, wanted)
        for chosen, few in alike(segments, runs, mixed=True):
            rows = pa.Table.from_batches(reading.batches(few), schema)
            if versions:
                rows = _at(rows, [(span(s)[0], s.rows) for s in few])
            rows = self._of_buckets(rows, chosen)
            if among is not None:
                rows = rows.filter(merging.among(rows, among, self.rule.key))
            parts.append(rows)
        return pa.concat_tables(parts).combine_chunks()

    def _plain(self, schema: pa.Schema, wanted: pc.Expression | None = None) -> Reading:
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
        )

    def _of_buckets(self, rows: pa.Table, chosen: frozenset[int] | None) -> pa.Table:
        """Return the rows in some buckets; None: in all."""
        if chosen is None or not rows.num_rows:
            return rows
        buckets = buckets_of(rows, self.rule.key, self.rule.buckets, self.rule.splits)
        return rows.filter(pc.is_in(buckets, value_set=pa.array(sorted(chosen), pa.int32())))

    def _wanted(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the rows that pass, with exactly the schema of the result."""
        reading = self.reading
        if reading.filter is not None:
            try:
                rows = filtered(rows, reading.filter)
            except (pa.ArrowException, ValueError) as error:
                why = str(error).split("\n", 1)[0][:300]
                raise InvalidInput(
                    f"the predicate fails on the rows: {why}", table=reading.store.uri
                ) from error
        if not rows.num_rows:
            return
        if not reading.schema.names:
            yield counted(rows.num_rows)
            return
        rows = rows.select(reading.schema.names).cast(reading.schema)
        yield from rows.to_batches(max_chunksize=reading.batch_rows)


def _cuts(column: pa.ChunkedArray, count: int) -> list[pa.Scalar]:
    """Return different values that cut the values into so many parts of about one size, or less."""
    ordered = column.take(pc.sort_indices(column))
    places = [len(ordered) * n // count for n in range(1, count)]
    found = pc.unique(ordered.take(pa.array(places, pa.int64())))
    last = ordered[-1] if len(ordered) else None
    return [value for value in found if value != last]


def _ordered(runs: Sequence[Run], kinds: Sequence[str]) -> list[Segment]:
    """Return the segments of some kinds, each once, in the order in which they are applied."""
    found = {s.id: s for run in runs for s in run.segments if slice_of(s).kind in kinds}
    return sorted(found.values(), key=applied)


def _never_fails(wanted: pc.Expression | None) -> bool:
    """Return whether a filter can be told to have no function that fails on some values.

    Text that looks like a call of one counts as one.
    """
    return set(_CALLED.findall(str(wanted))) <= _TOTAL


def _having(keys: pa.Table) -> pc.Expression | None:
    """Return a filter that all rows with these keys pass; None if they are too many for one.

    It leaves out row groups by their statistics.
    """
    if not 0 < keys.num_rows <= _FEW_KEYS:
        return None
    wanted = pc.scalar(True)
    for name in keys.column_names:
        wanted &= pc.field(name).isin(pc.unique(keys.column(name)))
    return wanted


def _at(rows: pa.Table, versions: Sequence[tuple[int, int]]) -> pa.Table:
    """Return rows with a column of versions, given with how many rows have each."""
    runs = [pa.repeat(pa.scalar(version, pa.int64()), count) for version, count in versions]
    return rows.append_column(AT, pa.concat_arrays([pa.nulls(0, pa.int64()), *runs]))


def _as_log(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of a base as upserts."""
    nothing = pa.nulls(rows.num_rows, pa.string())
    return rows.append_column(OP, nothing).cast(schema)


def _joined(
    batches: Iterable[pa.RecordBatch], first: Segment, segments: Sequence[Segment] | None
) -> Iterator[tuple[Segment, pa.Table]]:
    """Yield the rows of each segment, in tables that are large enough to look keys up in.

    Args:
        batches: rows of segments, in order; each batch is of one segment.
        first: the first of the segments.
        segments: all of them, if the batches have all their rows; if None, all rows are told to be
            of the first one.
    """
    waiting: list[pa.RecordBatch] = []
    size = 0
    source = iter([s for s in segments or () if s.rows])
    segment, left = first, 0
    for batch in batches:
        if segments is not None and not left:
            segment = next(source)
            left = segment.rows
        left -= batch.num_rows
        waiting.append(batch)
        size += batch.nbytes
        if not left or size >= _JOINED_BYTES:
            yield segment, pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield segment, pa.Table.from_batches(waiting)


_Unit = tuple[int, int]


def _units(runs: Sequence[Run], rule: MergeRule) -> list[_Unit]:
    """Return ranges of buckets, from first to last, that can be read one after another.

    Keys are then looked up among those of few buckets: in a small set that is several times faster
    than in a large one. Buckets of one base segment stay together.
    """
    sizes: dict[_Unit, int] = {}
    for segment in _ordered(runs, ("base",)):
        place = reach(segment, rule.splits)
        sizes[place] = sizes.get(place, 0) + segment.rows
    for run in runs:
        for bucket in range(run.first, run.last + 1):
            sizes.setdefault((bucket, bucket), 0)
    units: list[_Unit] = []
    held = 0
    for (first, last), rows in sorted(sizes.items()):
        if units and (first <= units[-1][1] or held + rows <= _UNIT_ROWS):
            units[-1] = (units[-1][0], max(last, units[-1][1]))
            held += rows
        else:
            units.append((first, last))
            held = rows
    return units


def _unit_of(segment: Segment, units: Sequence[_Unit], rule: MergeRule) -> int:
    """Return the place of the unit that a base is in."""
    return bisect_right(units, reach(segment, rule.splits)[0], key=lambda unit: unit[0]) - 1


def _split(rows: pa.Table, units: Sequence[_Unit], rule: MergeRule) -> list[pa.Table]:
    """Return the rows of each unit, in their order."""
    if len(units) == 1 or not rows.num_rows:
        return [rows] * len(units)
    buckets = buckets_of(rows, rule.key, rule.buckets, rule.splits)
    order = pc.sort_indices(buckets)  # stable
    rows, buckets = rows.take(order), buckets.take(order)
    runs = pc.run_end_encode(buckets)
    names, ends = runs.values.to_pylist(), runs.run_ends.to_pylist()
    found = []
    for first, last in units:
        low, high = bisect_left(names, first), bisect_right(names, last)
        start = ends[low - 1] if low else 0
        found.append(rows.slice(start, (ends[high - 1] if high else 0) - start))
    return found
