"""Rows above the bases of a keyed table, in portions of whole keys that fit into memory.

Imports eventlog only. Rows that do not fit are sorted by bucket and key, on disk, and cut between
keys. Sizes are those of Arrow data, which stored sizes do not predict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.keyed.log_rows import row_buckets
from eventlog.keyed.rule import MergeRule
from eventlog.keyed.slices import Run
from eventlog.staging.external_sort import sort_on_disk, whole_keys


@dataclass(frozen=True, slots=True)
class Portion:
    """All rows above the bases that have some keys.

    Attributes:
        runs: the runs of slices, cut to the buckets of these keys.
        above: the rows of logs; those of a key are in commit order.
        late: the late rows, likewise.
        key_range: a filter of its keys, where it has some of a bucket only; None: all in the runs.
        whole: whether it has all rows of its part, in the order in which they were read.
    """

    runs: Sequence[Run]
    above: pa.Table
    late: pa.Table
    key_range: pc.Expression | None = None
    whole: bool = False


def sorted_portions(
    late: Iterable[pa.Table],
    logs: Iterable[pa.Table],
    runs: Sequence[Run],
    rule: MergeRule,
    memory_bytes: int,
) -> Iterator[Portion]:
    """Yield rows in portions, in the order of their buckets and keys.

    Args:
        late: late rows, in commit order.
        logs: rows of logs, in commit order.
        runs: the runs of one time chunk in whose buckets they lie.
        rule: the merge rule.
        memory_bytes: for sorting; a portion has about an eighth of it, or all rows of one key.

    Raises:
        OSError: the disk is full.
    """
    bucket, older = (f"{name} of {' '.join(rule.key)}" for name in ("bucket", "late"))
    alone = runs[0].first if runs[0].first == runs[-1].last else None

    def marked(tables: Iterable[pa.Table], *, is_late: bool) -> Iterator[pa.Table]:
        for rows in tables:
            if alone is None:
                places = row_buckets(rows, rule)
            else:
                places = pa.repeat(pa.scalar(alone, pa.int32()), rows.num_rows)
            marks = pa.repeat(pa.scalar(is_late), rows.num_rows)
            yield rows.append_column(bucket, places).append_column(older, marks)

    # The sort is stable: of a key late rows come first, and each kind stays in its order.
    every = chain(marked(late, is_late=True), marked(logs, is_late=False))
    order = [bucket, *rule.key] if alone is None else [*rule.key]
    with closing(sort_on_disk(every, order, memory_bytes=memory_bytes)) as ordered:
        for cut in _cut(whole_keys(ordered, order), bucket, runs, rule.key):
            rows = cut.rows
            is_late = rows.column(older)
            rows = rows.drop_columns([bucket, older])
            yield Portion(
                [
                    run.cut(cut.first, cut.last)
                    for run in runs
                    if run.first <= cut.last and cut.first <= run.last
                ],
                rows.filter(pc.invert(is_late)),
                rows.filter(is_late),
                _between(rule.key, cut.low, cut.high),
            )


_Key = tuple[pa.Scalar, ...]


@dataclass(frozen=True, slots=True)
class _Cut:
    """Rows in neighbouring buckets, of keys above `low` and up to `high` if there is one bucket."""

    first: int
    last: int
    rows: pa.Table
    low: _Key | None = None
    high: _Key | None = None


def _cut(
    tables: Iterable[pa.Table], bucket: str, runs: Sequence[Run], key: Sequence[str]
) -> Iterator[_Cut]:
    """Yield the rows of whole keys such that each bucket and key of the runs is in one cut.

    Args:
        tables: the rows, sorted by bucket and key; no key is in two tables.
        bucket: the name of the column of buckets.
        runs: gives the buckets.
        key: names of the key columns.
    """
    at, end = runs[0].first, runs[-1].last
    low: _Key | None = None  # the last key of bucket `at` that was given
    for rows, following in _with_next(tables):
        column = rows.column(bucket)
        last = column[-1].as_py()
        goes_on = following is not None and following.column(bucket)[0].as_py() == last
        high = tuple(rows.column(name)[-1] for name in key) if goes_on else None
        if low is not None:  # the rest of its bucket
            of_bucket = rows.filter(pc.equal(column, at))
            yield _Cut(at, at, of_bucket, low, high if last == at else None)
            rows = rows.slice(of_bucket.num_rows)  # noqa: PLW2901
            if last == at and goes_on:
                low = high
                continue
            at, low = at + 1, None
        if goes_on:
            whole = pc.sum(pc.less(rows.column(bucket), last)).as_py() or 0
            if at < last:
                yield _Cut(at, last - 1, rows.slice(0, whole))
            yield _Cut(last, last, rows.slice(whole), None, high)
            at, low = last, high
        else:
            upto = end if following is None else last
            if at <= upto:
                yield _Cut(at, upto, rows)
            at = upto + 1


def _with_next(tables: Iterable[pa.Table]) -> Iterator[tuple[pa.Table, pa.Table | None]]:
    """Yield each table and the one after it."""
    before: pa.Table | None = None
    for table in tables:
        if before is not None:
            yield before, table
        before = table
    if before is not None:
        yield before, None


def _between(key: Sequence[str], low: _Key | None, high: _Key | None) -> pc.Expression | None:
    """Return a filter of the keys above one and up to another."""
    if low is None:
        return None if high is None else ~_above(key, high)
    above = _above(key, low)
    return above if high is None else above & ~_above(key, high)


def _above(key: Sequence[str], bound: _Key) -> pc.Expression:
    """Return a filter of the keys that come after one, column by column."""
    wanted: pc.Expression | None = None
    for name, value in zip(reversed(key), reversed(bound), strict=True):
        column = pc.field(name)
        more = column > value
        wanted = more if wanted is None else more | ((column == value) & wanted)
    return wanted
