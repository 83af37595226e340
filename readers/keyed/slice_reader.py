"""Reads keyed tables: rows of one key are merged, in bounded memory.

Imports eventlog and the other modules of readers.keyed. A base streams through: rows whose keys no
row above it has pass as they are. The others are merged with the rows of logs
(`eventlog.keyed.row_merging`), which are held in memory, or read in portions of whole keys if they
are too large for that (`cuts`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.keyed import key_lookup, row_merging
from eventlog.keyed.log_rows import as_log, row_buckets
from eventlog.keyed.placement import Placed
from eventlog.keyed.rule import MergeRule
from eventlog.keyed.slice_pruning import is_plain
from eventlog.keyed.slices import Run, grouped, segments_of
from eventlog.readers.keyed import applied
from eventlog.readers.keyed.cuts import UNIT_ROWS, BucketUnit, Cuts, in_one_table, unit_of
from eventlog.readers.keyed.portions import Portion
from eventlog.readers.keyed.segment_rows import (
    AT,
    SegmentRows,
    at,
    having,
    in_order_of_versions,
    of_keys,
    replaces_all,
)
from eventlog.segments.batches import (
    filtered,
    given_up,
    predicate_error,
    retyped,
    take_tables,
    without_columns,
)
from eventlog.segments.fragments import Reading

# The functions in the text of an expression, and those that have a value for all arguments.
_CALLED = re.compile(r"(\w+)\(")
_TOTAL = frozenset(
    ("coalesce", "decimal128", "if_else", "invert", "is_in", "is_null", "is_valid", "starts_with")
)
_FEW_BASES = 4  # that a look-up reads
_KEPT = 8  # what is kept of a part takes at most this part of the memory for rows


@dataclass(frozen=True, slots=True)
class SliceReader:
    """Runs of slices become batches. Can be pickled.

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
    def cuts(self) -> Cuts:
        """How rows are cut."""
        most = self.reading.ahead_bytes // 2 if self.most_bytes is None else self.most_bytes
        return Cuts(self.rule, max(1, most))

    def at(self, version: int) -> SliceReader:
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
                    for part in self.cuts.parts(group):
                        yield from self._of_part(part)

    def merged(self, runs: Sequence[Run]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these runs, which need not take in all buckets of their segments.

        Raises: as `Reading.batches`.
        """
        yield from self._merged([run for run in runs if run.placed])

    def written(self, runs: Sequence[Run], after: int) -> Iterator[pa.Table]:
        """Yield the rows of those keys that were written after a version, before the merge.

        Args:
            runs: runs of one part (see `Cuts`).
            after: the version.

        Returns:
            Tables with all rows of some of these keys. They have the columns of `reading` and those
            that a merge of them needs, `_op`, and `AT`: the version of a row; `after` if it is
            older. The rows are in commit order.

        Raises: as `merged`.
        """
        key, source = self.rule.key, self._source()
        for portion in self._portions_written(source, runs, after):
            rows = portion.above
            is_new = pc.greater(rows.column(AT), after)
            if not pc.any(is_new, min_count=0).as_py():
                continue
            touched = key_lookup.distinct(rows.select([*key]).filter(is_new), key)
            late = portion.late.filter(key_lookup.among(portion.late, touched, key))
            if not pc.all(is_new).as_py():
                rows = rows.filter(key_lookup.among(rows, touched, key))
            rows = in_order_of_versions(rows)
            known = key_lookup.distinct(late, key)
            pairs = _Pairing(pa.concat_tables([late, rows]), key, self.cuts.most_bytes)
            wanted = having(touched)
            wanted = portion.key_range if wanted is None else wanted
            for _, base in source.pieces(portion.runs, wanted):
                hits = base.take(key_lookup.rows_with(base, touched, key))
                hits = hits.filter(pc.invert(key_lookup.among(hits, known, key)))
                hits = at(as_log(hits, source.log_schema), [(after, hits.num_rows)])
                if complete := pairs.add(hits):
                    yield pa.concat_tables(complete)
            yield pa.concat_tables(pairs.rest())

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

    def located(self, error: row_merging.SumOverflow, runs: Sequence[Run]) -> InvalidInput:
        """Return the error of a sum in these runs, with its place and what to do.

        Its version is that of the given error, or else the version that is read.
        """
        bucket = row_buckets(error.keys, self.rule)[0]
        version = self.reading.version if error.version is None else error.version
        return InvalidInput(
            f"{error.message} at version {version} (chunk {runs[0].chunk}, bucket {bucket}): "
            "upsert a row of this key that subtracts enough, and read a later version; or read "
            "null in place of such sums: `overflow='null'`, in the shell `--overflow null`",
            table=self.reading.store.uri,
            version=version,
        )

    def _source(self) -> SegmentRows:
        """Return how rows are read before the merge, with the columns that it needs."""
        reading = self.reading
        wanted = self.rule.needed([*reading.schema.names, *sorted(reading.filter_columns)])
        columns = [name for name in reading.table_schema.names if name in wanted]
        return SegmentRows(reading, self.rule, columns, self.cuts.piece_bytes)

    def _merged(self, runs: Sequence[Run], key: str | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the merged rows of a part.

        Args:
            runs: the part.
            key: by which it is kept what its logs do; None: it is not kept.
        """
        source, wanted = self._source(), self._filter_of_keys(runs)
        schema = (
            source.log_schema if key is None else at(source.log_schema.empty_table(), []).schema
        )

        def late(keys: pa.Table | None) -> Iterator[pa.Table]:
            return source.above(segments_of(runs, "late"), runs, keys=keys, wanted=wanted)

        logs = segments_of(runs, "log")
        rows = source.above(logs, runs, wanted=wanted, numbered=key is not None)
        for portion in self.cuts.portions(rows, late, runs, schema):
            yield from self._of_portion(source, portion, wanted, key)

    def _of_part(self, runs: Sequence[Run]) -> Iterator[pa.RecordBatch]:
        """Yield the merged rows of a part. What its logs do is kept for the next scan of it."""
        reading, key = self.reading, None
        is_scan = reading.audit is None and AT not in reading.table_schema.names
        if is_scan and self._shown_columns() and self._filter_of_keys(runs) is None:
            key = applied.part_key(runs, self.rule, reading.columns)
        done = applied.known(key)
        if done is None:
            yield from self._merged(runs, key)
        else:
            yield from self._again(runs, done)

    def _again(self, runs: Sequence[Run], done: applied.Applied) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part as `_merged` does, given what its logs do."""
        source = replace(self._source(), columns=self._shown_columns())
        rows = in_one_table(
            list(source.stored(segments_of(runs, "log"))),
            pa.schema([field.with_nullable(True) for field in source.schema]),
        )
        waiting = deque(done.shown)
        read: dict[str, int] = {}
        for base, stored in source.pieces(runs):
            while waiting and waiting[0].before is not None and base.first >= waiting[0].before:
                yield from self._typed(rows.take(waiting.popleft().numbers))
            start = read.get(base.segment.id, 0)
            read[base.segment.id] = start + stored.num_rows
            yield from self._wanted(done.shown_of(base.segment.checksum, start, stored))
        for one in waiting:
            yield from self._typed(rows.take(one.numbers))

    def _shown_columns(self) -> list[str]:
        """Return the columns of the result and of its filter, in the table's order."""
        reading = self.reading
        names = {*reading.schema.names, *reading.filter_columns}
        return [name for name in reading.table_schema.names if name in names]

    def _portions_written(
        self, source: SegmentRows, runs: Sequence[Run], after: int
    ) -> Iterator[Portion]:
        """Yield the rows above the bases, at least of the keys that were written after a version.

        They have a column `AT`; see `written`.
        """
        logs = segments_of(runs, "log")
        before = [log for log in logs if log.low <= after]

        def rows(placed: Sequence[Placed], keys: pa.Table | None) -> Iterator[pa.Table]:
            return source.above(placed, runs, keys=keys, after=after)

        def late(keys: pa.Table | None) -> Iterator[pa.Table]:
            return rows(segments_of(runs, "late"), keys)

        new = rows([log for log in logs if log.low > after], None)
        first, more = take_tables(new, self.cuts.most_bytes)
        with_versions = at(source.log_schema.empty_table(), []).schema
        if more:
            every = chain(rows(before, None), given_up(first), new)
        else:
            written = in_one_table(first, with_versions)
            touched = key_lookup.distinct(written, self.rule.key)
            runs = of_keys(runs, touched, self.rule)
            before = [log for log in segments_of(runs, "log") if log.low <= after]
            every = chain(rows(before, touched), [written])
        yield from self.cuts.portions(every, late, runs, with_versions)

    def _filter_of_keys(self, runs: Sequence[Run]) -> pc.Expression | None:
        """Return the filter of a look-up, which is applied before the merge, too.

        Such a filter refers to key columns only, which a merge does not change, and cannot fail on
        rows that a merge removes. Row groups are then left out by their statistics.
        """
        reading = self.reading
        keys_only = reading.filter_columns <= set(self.rule.key)
        few = len(segments_of(runs, "base")) <= _FEW_BASES
        return reading.filter if keys_only and few and _never_fails(reading.filter) else None

    def _of_portion(
        self,
        source: SegmentRows,
        portion: Portion,
        wanted: pc.Expression | None,
        kept_by: str | None,
    ) -> Iterator[pa.RecordBatch]:
        runs = portion.runs
        if portion.key_range is not None:
            wanted = portion.key_range if wanted is None else portion.key_range & wanted
        replaced = replaces_all(portion.above, runs, self.rule, self.reading.columns)
        if replaced:  # the order of rows that are not shown is not needed
            names = {*self.rule.key, *self._shown_columns()}
            source = replace(source, columns=[n for n in source.columns if n in names])
        done = applied.Applied() if replaced and kept_by is not None and portion.whole else None
        if done is None and kept_by is not None:
            above, late = (rows.drop_columns([AT]) for rows in (portion.above, portion.late))
            portion = replace(portion, above=above, late=late)
        units = self.cuts.units(portion, divided=wanted is None)
        pieces = groupby(source.pieces(runs, wanted), lambda piece: unit_of(piece[0], units))
        number, bases = next(pieces, (None, None))
        waiting = _Waiting(self.cuts.most_bytes)
        for place, unit in enumerate(units):
            of_unit: Iterable[tuple[Placed, pa.Table]] = ()
            if bases is not None and number == place:
                of_unit = bases
            if replaced:
                yield from self._replaced(unit, of_unit, waiting, done)
            else:
                yield from self._of_unit(unit, (rows for _, rows in of_unit), waiting, runs)
            if of_unit:
                number, bases = next(pieces, (None, None))
            is_last = place == len(units) - 1
            if is_last or waiting.are_many:
                before = None if is_last else units[place + 1].first
                yield from self._shown(waiting.taken(), runs, done, before)
        if done is not None and kept_by is not None:
            applied.keep(kept_by, done, self.cuts.most_bytes // _KEPT)

    def _replaced(
        self,
        unit: BucketUnit,
        bases: Iterable[tuple[Placed, pa.Table]],
        waiting: _Waiting,
        done: applied.Applied | None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of bases whose keys no row above has; add those above to `waiting`.

        Args:
            unit: rows above the bases.
            bases: the bases in its buckets, and their rows.
            waiting: gets all rows above.
            done: gets the rows that are not shown, if it is given.
        """
        touched = key_lookup.distinct(unit.above, self.rule.key)
        names = self._shown_columns()
        for base, rows in bases:
            hidden = key_lookup.rows_with(rows, touched, self.rule.key)
            shown = rows.select(names or rows.column_names)
            if done is None:
                shown = key_lookup.without_rows(shown, hidden)
            else:
                shown = done.pass_by(base.segment.checksum, shown, hidden)
            yield from self._wanted(shown)
        if unit.above.num_rows:  # late rows count only where there are rows above
            late = unit.late.filter(key_lookup.among(unit.late, touched, self.rule.key))
            waiting.add([late, unit.above])

    def _of_unit(
        self,
        unit: BucketUnit,
        bases: Iterable[pa.Table],
        waiting: _Waiting,
        runs: Sequence[Run],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of bases to which nothing is applied; add the others to `waiting`.

        Args:
            unit: rows above the bases.
            bases: the rows of bases in its buckets.
            waiting: gets all rows of the keys that logs have, in commit order.
            runs: where they lie, for errors.
        """
        key, above = self.rule.key, unit.above
        if not above.num_rows:  # late rows count only where there are rows above
            for rows in bases:
                yield from self._wanted(rows)
            return
        touched = key_lookup.distinct(above, key)
        late = unit.late.filter(key_lookup.among(unit.late, touched, key))
        known = key_lookup.distinct(late, key)
        pairs = _Pairing(pa.concat_tables([late, above]), key, self.cuts.most_bytes)
        names = self._shown_columns()
        for rows in bases:
            touches = key_lookup.rows_with(rows, touched, key)
            shown = rows.select(names or rows.column_names)
            yield from self._wanted(key_lookup.without_rows(shown, touches))
            hit = rows.take(touches)
            if known.num_rows:
                hit = hit.filter(pc.invert(key_lookup.among(hit, known, key)))
            if hit.num_rows:
                yield from self._shown(pairs.add(as_log(hit, above.schema)), runs)
        waiting.add(pairs.rest())

    def _one_a_key(self, rows: pa.Table, runs: Sequence[Run]) -> pa.Table:
        try:
            return row_merging.visible(rows, self.rule)
        except row_merging.SumOverflow as error:
            raise self.located(error, runs) from None

    def _shown(
        self,
        tables: Sequence[pa.Table],
        runs: Sequence[Run],
        done: applied.Applied | None = None,
        before: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the merged rows of some keys, given all their rows.

        Args:
            tables: the rows.
            runs: where they lie, for errors.
            done: gets the numbers of the merged rows, if it is given.
            before: see `applied.ShownLogRows`.
        """
        if not any(map(len, tables)):
            return
        merged = self._one_a_key(pa.concat_tables(tables), runs)
        if done is not None:
            done.show(before, merged.column(AT))
            merged = merged.drop_columns([AT])
        yield from self._typed(merged)

    def _typed(self, merged: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield those of some merged rows that pass."""
        fields = [self.reading.table_schema.field(name) for name in merged.column_names]
        yield from self._wanted(retyped(merged, pa.schema(fields)))

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
            yield without_columns(rows.num_rows)
            return
        rows = retyped(rows, reading.schema)
        yield from rows.to_batches(max_chunksize=reading.batch_rows)


class _Waiting:
    """Rows of whole keys that wait until they are enough to be merged at once.

    Args:
        most_bytes: bytes of Arrow data that are enough.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._tables: list[pa.Table] = []
        self._rows = self._size = 0

    def add(self, tables: Sequence[pa.Table]) -> None:
        """Add rows."""
        self._tables += tables
        self._rows += sum(table.num_rows for table in tables)
        self._size += sum(table.nbytes for table in tables)

    @property
    def are_many(self) -> bool:
        """Whether they are enough."""
        return self._rows >= UNIT_ROWS or self._size >= self._most

    def taken(self) -> list[pa.Table]:
        """Return all rows, and keep none."""
        tables, self._tables, self._rows, self._size = self._tables, [], 0, 0
        return tables


class _Pairing:
    """Rows of bases that wait until they are merged with the rows above that have their keys.

    Args:
        above: the rows above, of whole keys.
        key: names of the key columns.
        most_bytes: bytes of Arrow data that the rows of bases may take.
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
        bases = pa.concat_tables(self._waiting)
        keys = key_lookup.distinct(bases, self._key)
        self._done.append(keys)
        self._waiting, self._size = [], 0
        return [bases, self._above.filter(key_lookup.among(self._above, keys, self._key))]

    def rest(self) -> list[pa.Table]:
        """Return all rows of the keys that `add` has not returned."""
        above = self._above
        if self._done:
            done = key_lookup.among(above, pa.concat_tables(self._done), self._key)
            above = above.filter(pc.invert(done))
        return [rows for rows in (*self._waiting, above) if rows.num_rows] or [above]


def _never_fails(wanted: pc.Expression | None) -> bool:
    """Return whether a filter calls only functions that have a value for all arguments.

    It is taken from the text of the expression: a literal that looks like a call counts as one.
    """
    return set(_CALLED.findall(str(wanted))) <= _TOTAL
