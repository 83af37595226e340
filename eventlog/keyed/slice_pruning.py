"""Which slices of a keyed table a scan reads, and which of their segments.

The key of a row never changes, so a segment without a key that passes can be left out. Values of
other columns may be superseded by another segment of the slice, so by their statistics only whole
slices are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from eventlog.format.frames import entry_columns
from eventlog.keyed.log_rows import row_buckets
from eventlog.keyed.placement import Placed
from eventlog.keyed.rule import MergeRule
from eventlog.keyed.slices import Run
from eventlog.model.entries import Column
from eventlog.query import conditions as c
from eventlog.query.predicate import Predicate, SqlPredicate

_MOST_KEYS = 1000  # keys of a predicate whose buckets are worth computing


def is_plain(run: Run) -> bool:
    """Return whether the rows of a run are those of its base, which lies in these buckets only."""
    if run.logs:
        return False
    return all(run.first <= base.first and base.last <= run.last for base in run.base)


def rows_needed(runs: Iterable[Run]) -> list[Run]:
    """Return runs with the segments whose rows are needed to read all rows of these runs.

    Without rows above the base late rows change nothing: they are neither read nor counted.
    """
    return [run if run.logs else replace(run, placed=run.base) for run in runs]


def prune_runs(
    runs: Sequence[Run], predicate: Predicate | None, rule: MergeRule, time: Column | None
) -> list[Run]:
    """Return the runs that may have a row that passes, less segments without such a key.

    Args:
        runs: all runs of the chunks in question.
        predicate: the filter; None: all rows pass.
        rule: the table's merge rule.
        time: its event-time column; None: it has none.
    """
    needed, time_column = rows_needed(runs), None if time is None else time.name
    if predicate is None:
        return needed
    wanted = buckets(predicate, rule)
    kept = []
    for run in needed:
        if wanted is not None and not any(run.first <= b <= run.last for b in wanted):
            continue
        pruned = _pruned(run, predicate, rule, time_column)
        if pruned.placed:
            kept.append(pruned)
    return kept


def _pruned(run: Run, predicate: Predicate, rule: MergeRule, time_column: str | None) -> Run:
    entries = entry_columns.from_segments(run.segments)
    by_all = predicate.prune(entries, time_column)
    if not run.logs:
        return replace(run, placed=_masked(run.placed, by_all))
    # Under these rules one row decides; under the others the values of a row come from several.
    if rule.kind in ("last", "first") and not any(by_all.to_pylist()):
        return replace(run, placed=())
    keys = {column.id for column in predicate.schema.columns if column.name in rule.key}
    columns = [n for n in entries.column_names if "_" not in n or _column_of(n) in (None, *keys)]
    by_key = predicate.prune(entries.select(columns), time_column)
    return replace(run, placed=_masked(run.placed, by_key))


def _column_of(name: str) -> int | None:
    """Return the id of the column whose statistics a column of entries has."""
    stem, _, number = name.rpartition("_")
    return int(number) if stem in ("min", "max", "nulls") and number.isdigit() else None


def _masked(placed: Iterable[Placed], mask: pa.BooleanArray) -> tuple[Placed, ...]:
    return tuple([one for one, kept in zip(placed, mask.to_pylist(), strict=True) if kept])


def buckets(predicate: Predicate, rule: MergeRule) -> set[int] | None:
    """Return the buckets of the keys that may pass; None if the predicate does not name them."""
    if not isinstance(predicate, SqlPredicate):
        return None
    named = key_values(predicate.condition, rule.key)
    if named is None:
        return None
    table = pa.table(
        [pa.concat_arrays([pa.repeat(v, 1) for v in column]) for column in named], list(rule.key)
    )
    return set(row_buckets(table, rule).to_pylist())


def key_values(condition: c.Condition, key: Sequence[str]) -> list[list[pa.Scalar]] | None:
    """Return all combinations of values that the key may have, by column; None if unknown."""
    parts = condition.parts if isinstance(condition, c.And) else (condition,)
    values: dict[str, list[pa.Scalar]] = {}
    for part in parts:
        named = _equal_to(part)
        if named is not None:
            values.setdefault(*named)
    if any(name not in values for name in key):
        return None
    combined: list[list[pa.Scalar]] = [[]]
    for name in key:
        combined = [[*row, value] for row in combined for value in values[name]]
        if len(combined) > _MOST_KEYS:
            return None
    return [list(column) for column in zip(*combined, strict=True)]


def _equal_to(part: c.Condition) -> tuple[str, list[pa.Scalar]] | None:
    """Return a column and the values of which it must have one; None of another condition."""
    match part:
        case c.Compare(column, "=", value):
            return column.name, [value]
        case c.In(column, values):
            return column.name, list(values)
        case c.Or(parts):
            each = [_equal_to(p) for p in parts]
            names = {one[0] for one in each if one is not None}
            if None in each or len(names) != 1:
                return None
            return names.pop(), [v for one in each if one is not None for v in one[1]]
    return None
