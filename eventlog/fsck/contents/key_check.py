"""The check of a keyed table's keys: that rows lie where readers and look-ups expect them.

Each segment is read once for its buckets, its order and its statistics. Then the slices that may
have a key twice are read, a bucket or a part of one at a time, so that the memory does not depend
on the size of the table. Reads the key columns, the order, the event time and `_op` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import Corrupt, NotFound
from eventlog.format import keys
from eventlog.format.buckets import buckets_of
from eventlog.fsck.contents.key_rows import (
    EXAMPLES,
    KeyColumns,
    SeenKeys,
    check_segment,
    complete_keys,
    key_text,
)
from eventlog.fsck.contents.row_check import REWRITE, damage_of
from eventlog.fsck.findings import Findings
from eventlog.keyed import key_lookup, row_merging
from eventlog.keyed.placement import applied
from eventlog.keyed.rule import OP, MergeRule
from eventlog.keyed.slices import Run, buckets_in, runs, segments_of
from eventlog.model.entries import Segment, SliceKind
from eventlog.quantities import count_text

MEMORY_BYTES = 32 * 2**20  # of keys that are compared at once, as Arrow holds them
_HASHES = 2**31  # buckets_of with this number of buckets gives the hash itself

_Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class _Share:
    """The keys of some buckets, or one of `of` shares of the keys of one bucket."""

    first: int
    last: int
    number: int = 0
    of: int = 1


def check_keys(
    columns: KeyColumns,
    live: Mapping[str, Segment],
    findings: Findings,
    *,
    lost: Iterable[str] = (),
    progress: _Progress | None = None,
    memory_bytes: int = MEMORY_BYTES,
) -> tuple[int, list[tuple[str, Segment]]]:
    """Check the keys of a keyed table, and report what is wrong.

    Args:
        columns: of the table.
        live: the live segments to check, by id: all of a version.
        findings: receives the problems.
        lost: ids of segments that were found missing or damaged before.
        progress: called with the number of rows that were read and their total.
        memory_bytes: of keys compared at once.

    Returns:
        The number of rows whose keys were read; and (problem, segment) of each segment that is
        missing or damaged besides those in `lost`.

    Raises:
        Unavailable: the store does not answer.
    """
    check = _KeyCheck(columns, live, findings, set(lost), memory_bytes)
    return check.run(progress or (lambda *_: None))


class _KeyCheck:
    def __init__(
        self,
        columns: KeyColumns,
        live: Mapping[str, Segment],
        findings: Findings,
        lost: set[str],
        memory_bytes: int,
    ) -> None:
        self._columns, self._rule = columns, columns.rule
        self._findings = findings
        self._live = sorted(live.values(), key=lambda s: (s.chunk, applied(s)))
        self._unread = lost
        self._memory = memory_bytes
        self._seen: dict[str, SeenKeys] = {}

    def run(self, progress: _Progress) -> tuple[int, list[tuple[str, Segment]]]:
        """Check each live segment, then the segments against each other.

        Returns:
            The number of rows that were checked, and the damaged segments with their problems.
        """
        damaged: list[tuple[str, Segment]] = []
        total, done = sum(s.rows for s in self._live), 0
        for segment in self._live:
            if segment.id in self._unread:
                continue
            try:
                self._seen[segment.id] = check_segment(self._columns, segment, self._findings)
            except (Corrupt, NotFound) as error:
                self._unread.add(segment.id)
                missing = "a live segment is missing"
                problem = damage_of(error) if isinstance(error, Corrupt) else missing
                damaged.append((problem, segment))
                continue
            done += segment.rows
            progress(done, total)
        self._look_for_twins()
        return done, damaged

    def _look_for_twins(self) -> None:
        """Look for keys that occur twice: in the bases of a slice, or in two chunks."""
        # The rows of a slice are known only with all of its segments.
        whole = [
            run
            for run in runs(self._live, self._rule.splits)
            if not any(s.id in self._unread for s in run.segments)
        ]
        chunks = len({run.chunk for run in whole}) > 1
        wanted = [run for run in whole if chunks or self._may_repeat(run)]
        for share in self._shares(wanted):
            self._compare(wanted, share, chunks=chunks)

    def _may_repeat(self, run: Run) -> bool:
        bases = run.base
        return len(bases) > 1 or any(not self._seen[b.segment.id].ascending for b in bases)

    def _shares(self, wanted: Sequence[Run]) -> Iterator[_Share]:
        """Yield shares of the keys that fit into memory together."""
        sizes: dict[int, float] = {}
        for run in wanted:
            size = sum(
                self._seen[one.segment.id].key_bytes / (one.last - one.first + 1)
                for one in run.placed
            )
            for bucket in range(run.first, run.last + 1):
                sizes[bucket] = sizes.get(bucket, 0) + size
        first, total = None, 0.0
        for bucket in sorted(sizes):
            size = sizes[bucket]
            if first is not None and total + size > self._memory:
                yield _Share(first, bucket - 1)
                first, total = None, 0.0
            if size > self._memory:
                of = int(-(-size // self._memory))
                yield from (_Share(bucket, bucket, number, of) for number in range(of))
                continue
            first, total = bucket if first is None else first, total + size
        if first is not None:
            yield _Share(first, max(sizes))

    def _compare(self, wanted: Sequence[Run], share: _Share, *, chunks: bool) -> None:
        """Compare the keys of a share, chunk after chunk."""
        here = [r for r in wanted if r.first <= share.last and share.first <= r.last]
        present: list[pa.Table] = []
        names: list[str] = []
        for chunk, group in groupby(here, key=lambda run: run.chunk):
            of_chunk = list(group)
            bases = self._rows(of_chunk, "base", share)
            if any(map(self._may_repeat, of_chunk)):
                self._report_repeated(of_chunk, bases)
            if not chunks:
                continue
            rows = _shown_keys(
                bases,
                self._rows(of_chunk, "late", share),
                self._rows(of_chunk, "log", share),
                self._rule,
            )
            number = pa.repeat(pa.scalar(len(names), pa.int64()), rows.num_rows)
            present.append(_keys(rows, self._rule).append_column("chunk", number))
            names.append(chunk)
        if present:
            self._report_chunks(pa.concat_tables(present), names)

    def _rows(self, of_chunk: Sequence[Run], kind: SliceKind, share: _Share) -> pa.Table:
        """Return the rows of the segments of a kind, where they count, in commit order."""
        names = [n for n in (*self._rule.key, self._rule.order, OP) if n is not None]
        schema = pa.schema([f for f in self._columns.schema if f.name in names])
        found = [pa.Table.from_batches([], schema)]
        here = [run.cut(share.first, share.last) for run in of_chunk]
        for one in segments_of(here, kind):
            wanted = pa.array(sorted(buckets_in(one, here)), pa.int32())
            parts = self._columns.read(one.segment, names)
            found += [self._of_share(rows, wanted, share) for rows in parts]
        return pa.concat_tables(found).combine_chunks()

    def _of_share(self, rows: pa.Table, wanted: pa.Array, share: _Share) -> pa.Table:
        key, buckets, splits = self._rule.key, self._rule.buckets, self._rule.splits
        rows = rows.filter(complete_keys(rows, key))
        mask = pc.is_in(buckets_of(rows, key, buckets, splits), value_set=wanted)
        if share.of > 1:
            # The low bits of the hash gave the bucket; those above them give the share.
            above = pc.divide(buckets_of(rows, key, _HASHES).cast(pa.int64()), buckets)
            turns = pc.multiply(pc.divide(above, share.of), share.of)
            mask = pc.and_(mask, pc.equal(pc.subtract(above, turns), share.number))
        return rows.filter(mask)

    def _report_repeated(self, of_chunk: Sequence[Run], bases: pa.Table) -> None:
        rows = _keys(bases, self._rule)
        counted = rows.group_by(rows.column_names).aggregate([([], "count_all")])
        twice = counted.filter(pc.greater(counted.column("count_all"), 1))
        if not twice.num_rows:
            return
        first, last = of_chunk[0].first, of_chunk[-1].last
        base = next(one.segment for run in of_chunk for one in run.base)
        what = f"{count_text(twice.num_rows, 'key')} of chunk {of_chunk[0].chunk} {_stand(twice)}"
        message = (
            f"{what} more than once in the bases of buckets {first} to {last}, for example "
            f"{self._examples(twice)}: scans return each of these rows; upsert these keys again, "
            f"and {REWRITE}"
        )
        self._findings.add("error", message, keys.key_of(base), base.version)

    def _report_chunks(self, present: pa.Table, names: Sequence[str]) -> None:
        aliases = [name for name in present.column_names if name != "chunk"]
        counted = present.group_by(aliases).aggregate([("chunk", "min"), ("chunk", "max")])
        apart = counted.filter(
            pc.not_equal(counted.column("chunk_min"), counted.column("chunk_max"))
        )
        pairs = apart.group_by(["chunk_min", "chunk_max"]).aggregate([])
        for pair in pairs.sort_by(
            [("chunk_min", "ascending"), ("chunk_max", "ascending")]
        ).to_pylist():
            one, other = pair["chunk_min"], pair["chunk_max"]
            both = apart.filter(
                pc.and_(
                    pc.equal(apart.column("chunk_min"), one),
                    pc.equal(apart.column("chunk_max"), other),
                )
            )
            what = f"{count_text(both.num_rows, 'key')} {_stand(both)}"
            message = (
                f"{what} in chunk {names[one]} and in chunk {names[other]}, for example "
                f"{self._examples(both)}: the event time of a key must not change; scans return a "
                "row of each; delete the wrong one by its key and its event time"
            )
            self._findings.add("warning", message, None)

    def _examples(self, aliased: pa.Table) -> str:
        return "; ".join(
            key_text(self._rule.key, [aliased.column(n)[row] for n in range(len(self._rule.key))])
            for row in range(min(EXAMPLES, aliased.num_rows))
        )


def _shown_keys(bases: pa.Table, late: pa.Table, logs: pa.Table, rule: MergeRule) -> pa.Table:
    """Return the keys that a reader sees, each once (FORMAT.md 4.4.1)."""
    touched = key_lookup.distinct(logs, rule.key)
    late = late.filter(key_lookup.among(late, touched, rule.key))
    hit = key_lookup.among(bases, touched, rule.key)
    below = bases.filter(hit)
    known = key_lookup.among(below, key_lookup.distinct(late, rule.key), rule.key)
    rows = pa.concat_tables([below.filter(pc.invert(known)), late, logs]).combine_chunks()
    merged = row_merging.visible(rows, rule).select(list(rule.key))
    free = bases.filter(pc.invert(hit)).select(list(rule.key))
    return key_lookup.distinct(pa.concat_tables([free, merged]), rule.key)


def _keys(rows: pa.Table, rule: MergeRule) -> pa.Table:
    """Return the key columns, renamed: Arrow takes a name that starts with a dot for a path."""
    names = [f"k{place}" for place in range(len(rule.key))]
    return pa.table([rows.column(name) for name in rule.key], names)


def _stand(rows: pa.Table) -> str:
    return "stands" if rows.num_rows == 1 else "stand"
