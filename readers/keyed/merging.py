"""Reads keyed tables: rows of one key are merged, in bounded memory.

Imports eventlog only. A base streams through: rows whose keys nothing above it mentions pass as
they are. The others are merged with what the logs say (`eventlog.keyed.row_merging`). Rows above
the bases are held in memory, or read in portions of whole keys if they are too large for that
(`portions`).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.keyed import key_lookup, row_merging
from eventlog.keyed.log_rows import as_log, log_schema, row_buckets
from eventlog.keyed.placement import Placed
from eventlog.keyed.pruning import is_plain
from eventlog.keyed.rule import MergeRule
from eventlog.keyed.slices import Run, segments_of
from eventlog.model.entries import SliceKind
from eventlog.readers.keyed.groups import alike, grouped, of_keys, parts
from eventlog.readers.keyed.portions import Portion, sorted_portions
from eventlog.segments.batches import counted, filtered, given_up, predicate_error, retyped, taken
from eventlog.segments.fragments import Reading

AT = ""  # no column of a table has this name
# What an expression calls, as it prints itself, and what of that has a value for all arguments.
_CALLED = re.compile(r"(\w+)\(")
_TOTAL = frozenset(
    ("coalesce", "decimal128", "if_else", "invert", "is_in", "is_null", "is_valid", "starts_with")
)
_FEW_KEYS = 1000  # that are worth a filter
_FEW_BASES = 4  # that a look-up reads
_JOINED_BYTES = 32 * 2**20
# Rows of bases that are looked through at once, and rows that are merged at once: enough for what a
# step costs by itself, and few enough for the processor's caches.
_UNIT_ROWS = _MERGED_ROWS = 64 * 1024
# How many times their stored size rows usually take in Arrow: a first guess, where to cut.
_EXPANDED = 4
_SORTED = 4  # times what is held at once: the memory for sorting more


@dataclass(frozen=True, slots=True)
class Slices:
    """How runs of slices become batches. Can be pickled.

    Attributes:
        reading: how their segments are read; its filter is that of the result.
        rule: the merge rule.
        most_bytes: bytes of Arrow data that rows above the bases, and the rows of bases that are
            merged with them, may take at once; as many as are read ahead if None. Merging holds
            them about three times. All rows of one key are held, whatever they take.
    """

    reading: Reading
    rule: MergeRule
    most_bytes: int | None = None

    @property
    def most(self) -> int:
        """Bytes of Arrow data that are held at once."""
        return max(1, self.reading.ahead_bytes // 2 if self.most_bytes is None else self.most_bytes)

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
                bases = {b.segment.id: b.segment for g in groups for run in g for b in run.base}
                yield from self.reading.batches(bases.values())
            else:
                for group in groups:
                    # Shared logs are read once for each part, so that memory has a bound.
                    for part in parts(group, self.most // _EXPANDED):
                        yield from self._merged(part)

    def written(self, runs: Sequence[Run], after: int) -> Iterator[pa.Table]:
        """Yield the rows of those keys that were written after a version, before the merge.

        Args:
            runs: runs of one part (`readers.keyed.groups.parts`).
            after: the version.

        Returns:
            Tables with all rows of some of these keys. They have the columns of `reading` and those
            that a merge of them needs, `_op`, and `AT`: the version of a row; `after` if it is
            older. The rows are in commit order.

        Raises: as `merged`.
        """
        columns = self._columns()
        for portion in self._portions_written(runs, self._log_schema(columns), after):
            rows = portion.above
            is_new = pc.greater(rows.column(AT), after)
            if not pc.any(is_new, min_count=0).as_py():
                continue
            touched = key_lookup.distinct(
                rows.select([*self.rule.key]).filter(is_new), self.rule.key
            )
            late = portion.late.filter(key_lookup.among(portion.late, touched, self.rule.key))
            if not pc.all(is_new).as_py():
                rows = rows.filter(key_lookup.among(rows, touched, self.rule.key))
            rows = _in_order_of_versions(rows)
            known = key_lookup.distinct(late, self.rule.key)
            held = _Held(pa.concat_tables([late, rows]), self.rule.key, self.most)
            wanted = _having(touched)
            wanted = portion.share if wanted is None else wanted
            for _, base in self._pieces(portion.runs, columns, wanted):
                hits = base.filter(key_lookup.among(base, touched, self.rule.key))
                hits = hits.filter(pc.invert(key_lookup.among(hits, known, self.rule.key)))
                hits = _at(as_log(hits, self._log_schema(columns)), [(after, hits.num_rows)])
                if found := held.add(hits):
                    yield pa.concat_tables(found)
            yield pa.concat_tables(held.rest())

    def known(self, runs: Sequence[Run], after: int) -> Iterator[pa.Table]:
        """Yield the merged rows of the keys that were written after a version.

        Args:
            runs: runs of one part.
            after: the version.

        Raises: as `merged`.
        """
        for written in self.written(runs, after):
            rows = self._one_a_key(written.drop_columns([AT]), runs)
            yield retyped(rows, self.reading.schema)

    def merged(self, runs: Sequence[Run]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these runs, which need not take in all buckets of their segments.

        Raises: as `Reading.batches`.
        """
        yield from self._merged([run for run in runs if run.placed])

    def _columns(self) -> list[str]:
        """Return the columns to read, in the table's order."""
        reading = self.reading
        wanted = self.rule.needed([*reading.schema.names, *sorted(reading.filter_columns)])
        return [name for name in reading.table_schema.names if name in wanted]

    def _merged(self, runs: Sequence[Run]) -> Iterator[pa.RecordBatch]:
        columns, wanted = self._columns(), self._of_keys(runs)
        for portion in self._portions(runs, self._log_schema(columns), wanted):
            yield from self._of_portion(portion, columns, wanted)

    def _of_portion(
        self, portion: Portion, columns: Sequence[str], wanted: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        rule, runs = self.rule, portion.runs
        if portion.share is not None:
            wanted = portion.share if wanted is None else portion.share & wanted
        # Rows that a filter leaves out are not counted, so nobody knows where a segment ends.
        units = _units(runs) if wanted is None else [(0, rule.buckets - 1)]
        above, late = _split(portion.above, units, rule), _split(portion.late, units, rule)
        pieces = groupby(
            self._pieces(runs, columns, wanted), lambda piece: _unit_of(piece[0], units)
        )
        number, bases = next(pieces, (None, None))
        waiting: list[pa.Table] = []
        for unit in range(len(units)):
            mine: Iterable[pa.Table] = ()
            if bases is not None and number == unit:
                mine = (rows for _, rows in bases)
            yield from self._of_unit(above[unit], late[unit], mine, waiting, runs)
            if mine:
                number, bases = next(pieces, (None, None))
            if unit == len(units) - 1 or self._are_many(waiting):
                yield from self._shown(waiting, runs)
                waiting = []

    def _are_many(self, parts: Sequence[pa.Table]) -> bool:
        """Return whether so many rows are better merged now."""
        return sum(map(len, parts)) >= _MERGED_ROWS or sum(t.nbytes for t in parts) >= self.most

    def _portions(
        self, runs: Sequence[Run], schema: pa.Schema, wanted: pc.Expression | None
    ) -> Iterator[Portion]:
        """Yield the rows above the bases, as far as a filter of keys passes them."""

        def rows(kind: SliceKind, touched: pa.Table | None = None) -> Iterator[pa.Table]:
            found = segments_of(runs, kind)
            return self._rows(found, runs, schema, among=touched, wanted=wanted)

        yield from self._gathered(rows("log"), lambda keys: rows("late", keys), runs, schema)

    def _portions_written(
        self, runs: Sequence[Run], schema: pa.Schema, after: int
    ) -> Iterator[Portion]:
        """Yield the rows above the bases, at least of the keys that were written after a version.

        They have a column `AT`; see `written`.
        """
        logs = segments_of(runs, "log")
        before = [log for log in logs if log.low <= after]

        def rows(segments: Sequence[Placed], touched: pa.Table | None) -> Iterator[pa.Table]:
            return self._rows(segments, runs, schema, among=touched, after=after)

        def late(touched: pa.Table | None) -> Iterator[pa.Table]:
            return rows(segments_of(runs, "late"), touched)

        new = rows([log for log in logs if log.low > after], None)
        found, more = taken(new, self.most)
        with_versions = _at(schema.empty_table(), []).schema
        if more:
            every = chain(rows(before, None), given_up(found), new)
        else:
            written = _whole(found, with_versions)
            touched = key_lookup.distinct(written, self.rule.key)
            runs = of_keys(runs, touched, self.rule)
            before = [log for log in segments_of(runs, "log") if log.low <= after]
            every = chain(rows(before, touched), [written])
        yield from self._gathered(every, late, runs, with_versions)

    def _gathered(
        self,
        logs: Iterator[pa.Table],
        late: Callable[[pa.Table | None], Iterator[pa.Table]],
        runs: Sequence[Run],
        schema: pa.Schema,
    ) -> Iterator[Portion]:
        """Yield rows in one portion, or if they are too large, in several.

        Args:
            logs: the rows of logs, in commit order.
            late: returns the late rows that have some keys, or all.
            runs: where they lie.
            schema: that of both.
        """
        found, more = taken(logs, self.most)
        if more:
            every = chain(given_up(found), logs)
            yield from sorted_portions(late(None), every, runs, self.rule, _SORTED * self.most)
            return
        above = _whole(found, schema)
        # Late rows count only where there are rows above.
        rows = late(key_lookup.distinct(above, self.rule.key)) if above.num_rows else iter(())
        found, more = taken(rows, self.most - above.nbytes)
        if more:
            rows = chain(given_up(found), rows)
            yield from sorted_portions(rows, [above], runs, self.rule, _SORTED * self.most)
        else:
            yield Portion(runs, above, _whole(found, schema))

    def _of_keys(self, runs: Sequence[Run]) -> pc.Expression | None:
        """Return the filter of a look-up, which is applied before the merge, too.

        It reads no other columns than those of the key, which a merge does not change, and does not
        fail on rows that a merge removes. Row groups are then left out by their statistics.
        """
        reading = self.reading
        keys_only = reading.filter_columns <= set(self.rule.key)
        few = len(segments_of(runs, "base")) <= _FEW_BASES
        return reading.filter if keys_only and few and _never_fails(reading.filter) else None

    def _of_unit(
        self,
        above: pa.Table,
        late: pa.Table,
        bases: Iterable[pa.Table],
        waiting: list[pa.Table],
        runs: Sequence[Run],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that nothing is applied to; add the others to `waiting`, to be merged.

        Args:
            above: the rows of logs in some buckets, in commit order.
            late: the late rows.
            bases: the rows of bases.
            waiting: gets all rows of the keys that logs have, in commit order.
            runs: where they lie, for errors.
        """
        key = self.rule.key
        if not above.num_rows:  # late rows count only where there are rows above
            for rows in bases:
                yield from self._wanted(rows)
            return
        touched = key_lookup.distinct(above, key)
        late = late.filter(key_lookup.among(late, touched, key))
        known = key_lookup.distinct(late, key)
        held = _Held(pa.concat_tables([late, above]), key, self.most)
        for rows in bases:
            touches = key_lookup.among(rows, touched, key)
            free = rows.filter(pc.invert(touches))
            if free.num_rows:
                yield from self._wanted(free)
            hit = rows.filter(touches)
            if known.num_rows:
                hit = hit.filter(pc.invert(key_lookup.among(hit, known, key)))
            if hit.num_rows:
                yield from self._shown(held.add(as_log(hit, above.schema)), runs)
        waiting += held.rest()

    def located(self, error: row_merging.SumOverflow, runs: Sequence[Run]) -> InvalidInput:
        """Return the error of a sum in these runs, with where it is and what to do.

        A `version` that it has already stands; else it is that which is read.
        """
        bucket = row_buckets(error.keys, self.rule)[0]
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
            return row_merging.shown(rows, self.rule)
        except row_merging.SumOverflow as error:
            raise self.located(error, runs) from None

    def _shown(self, parts: Sequence[pa.Table], runs: Sequence[Run]) -> Iterator[pa.RecordBatch]:
        """Yield the merged rows of some keys, given all their rows."""
        if not any(map(len, parts)):
            return
        merged = self._one_a_key(pa.concat_tables(parts), runs)
        fields = [self.reading.table_schema.field(name) for name in merged.column_names]
        yield from self._wanted(retyped(merged, pa.schema(fields)))

    def _log_schema(self, columns: Sequence[str]) -> pa.Schema:
        """Return the schema of rows of logs, which may be deletes."""
        fields = [self.reading.table_schema.field(name) for name in columns]
        return log_schema(pa.schema(fields), self.rule)

    def _pieces(
        self, runs: Sequence[Run], columns: Sequence[str], wanted: pc.Expression | None = None
    ) -> Iterator[tuple[Placed, pa.Table]]:
        """Yield the rows of bases, of the buckets in which these count, with their segments.

        In the order of buckets. With a filter, only rows that pass, each with any segment.
        """
        schema = pa.schema([self.reading.table_schema.field(name) for name in columns])
        bases = sorted(segments_of(runs, "base"), key=lambda base: base.first)
        reading = self._plain(schema, wanted)
        for chosen, few in alike(bases, runs):
            known = few if wanted is None else None
            batches = reading.batches(base.segment for base in few)
            for base, rows in _joined(batches, few[0], known, self._joined_bytes):
                yield base, self._of_buckets(rows, chosen)

    def _rows(
        self,
        segments: Sequence[Placed],
        runs: Sequence[Run],
        schema: pa.Schema,
        *,
        among: pa.Table | None = None,
        after: int | None = None,
        wanted: pc.Expression | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the rows of segments, in the given order; of keys in `among`, if given.

        With `wanted` only rows that pass. With `after` they have a column `AT`: the version that
        their segment begins with, or that one, if it is later.
        """
        if among is not None and sum(one.segment.rows for one in segments) > _UNIT_ROWS:
            wanted = _having(among)  # fewer rows are filtered faster all at once
        reading = self._plain(schema, wanted)
        for chosen, few in alike(segments, runs, mixed=True):
            known = [(max(one.low, after or 0), one.segment.rows) for one in few]
            batches = reading.batches(one.segment for one in few)
            for found in _together(batches, self._joined_bytes):
                rows = found
                if after is not None and reading.filter is None:
                    rows = _at(rows, _first_of(known, rows.num_rows))
                elif after is not None:  # rows that are looked up are all older
                    rows = _at(rows, [(after, rows.num_rows)])
                rows = self._of_buckets(rows, chosen)
                if among is not None:
                    rows = rows.filter(key_lookup.among(rows, among, self.rule.key))
                if rows.num_rows:
                    yield rows

    @property
    def _joined_bytes(self) -> int:
        return min(_JOINED_BYTES, self.most)

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
            required=self.rule.merged_by,
        )

    def _of_buckets(self, rows: pa.Table, chosen: frozenset[int] | None) -> pa.Table:
        """Return the rows in some buckets; None: in all."""
        if chosen is None or not rows.num_rows:
            return rows
        buckets = row_buckets(rows, self.rule)
        return rows.filter(pc.is_in(buckets, value_set=pa.array(sorted(chosen), pa.int32())))

    def _wanted(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the rows that pass, with exactly the schema of the result."""
        reading = self.reading
        if reading.filter is not None:
            try:
                rows = filtered(rows, reading.filter)
            except (pa.ArrowException, ValueError) as error:
                raise predicate_error(error, reading.store.uri) from error
        if not rows.num_rows:
            return
        if not reading.schema.names:
            yield counted(rows.num_rows)
            return
        rows = retyped(rows, reading.schema)
        yield from rows.to_batches(max_chunksize=reading.batch_rows)


class _Held:
    """Rows of bases that are held until they are merged with the rows above that have their keys.

    Args:
        above: the rows above, of whole keys.
        key: names of the key columns.
        most_bytes: of Arrow data that the rows of bases may take.
    """

    def __init__(self, above: pa.Table, key: Sequence[str], most_bytes: int) -> None:
        self._above, self._key, self._most = above, key, most_bytes
        self._waiting: list[pa.Table] = []
        self._size = 0
        self._done: list[pa.Table] = []

    def add(self, rows: pa.Table) -> list[pa.Table]:
        """Add rows of bases. If there are too many, return all rows of their keys, else none."""
        self._waiting.append(rows)
        self._size += rows.nbytes
        if self._size <= self._most:
            return []
        found = pa.concat_tables(self._waiting)
        keys = key_lookup.distinct(found, self._key)
        self._done.append(keys)
        self._waiting, self._size = [], 0
        return [found, self._above.filter(key_lookup.among(self._above, keys, self._key))]

    def rest(self) -> list[pa.Table]:
        """Return all rows of the keys that `add` has not returned."""
        above = self._above
        if self._done:
            done = key_lookup.among(above, pa.concat_tables(self._done), self._key)
            above = above.filter(pc.invert(done))
        return [rows for rows in (*self._waiting, above) if rows.num_rows] or [above]


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


def _in_order_of_versions(rows: pa.Table) -> pa.Table:
    """Return rows in the order of `AT`; those of a key and a version stay in theirs."""
    versions = key_lookup.in_one_piece(rows.column(AT))
    falls = pc.less(versions.slice(1), versions.slice(0, max(0, len(versions) - 1)))
    return rows.take(pc.sort_indices(versions)) if pc.any(falls).as_py() else rows  # stable


def _together(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.Table]:
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


def _first_of(counts: list[tuple[int, int]], rows: int) -> list[tuple[int, int]]:
    """Take the first so many rows from a list of versions, with how many rows have each."""
    found: list[tuple[int, int]] = []
    while rows:
        version, count = counts.pop(0)
        first = min(count, rows)
        found.append((version, first))
        rows -= first
        if first < count:
            counts.insert(0, (version, count - first))
    return found


def _joined(
    batches: Iterable[pa.RecordBatch],
    first: Placed,
    segments: Sequence[Placed] | None,
    most_bytes: int,
) -> Iterator[tuple[Placed, pa.Table]]:
    """Yield the rows of each segment, in tables that are large enough to look keys up in.

    Args:
        batches: rows of segments, in order; each batch is of one segment.
        first: the first of the segments.
        segments: all of them, if the batches have all their rows; if None, all rows are told to be
            of the first one.
        most_bytes: that rows are joined up to.
    """
    waiting: list[pa.RecordBatch] = []
    size = 0
    source = iter([one for one in segments or () if one.segment.rows])
    current, left = first, 0
    for batch in batches:
        if segments is not None and not left:
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


def _whole(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return rows in one piece; the list is emptied, so that they are not held twice."""
    rows = pa.concat_tables(tables or [schema.empty_table()]).combine_chunks()
    tables.clear()
    return rows


_Unit = tuple[int, int]


def _units(runs: Sequence[Run]) -> list[_Unit]:
    """Return ranges of buckets, from first to last, that can be read one after another.

    Keys are then looked up among those of few buckets: in a small set that is several times faster
    than in a large one. Buckets of one base segment stay together.
    """
    sizes: dict[_Unit, int] = {}
    for base in segments_of(runs, "base"):
        place = base.first, base.last
        sizes[place] = sizes.get(place, 0) + base.segment.rows
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


def _unit_of(base: Placed, units: Sequence[_Unit]) -> int:
    """Return the place of the unit that a base is in."""
    return bisect_right(units, base.first, key=lambda unit: unit[0]) - 1


def _split(rows: pa.Table, units: Sequence[_Unit], rule: MergeRule) -> list[pa.Table]:
    """Return the rows of each unit, in their order."""
    if len(units) == 1 or not rows.num_rows:
        return [rows] * len(units)
    buckets = row_buckets(rows, rule)
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
