"""Rows of a keyed table on their way in: upserts and deletes become log segments. No I/O.

A column `_op` distinguishes deletes (`d`) from upserts (`u`, or null). A small transaction becomes
one segment with rows of many buckets, a large one a segment a bucket (FORMAT.md "Log segments").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.keyed import row_merging
from eventlog.keyed.log_rows import deleted, in_key_order, log_schema
from eventlog.keyed.rule import DELETE, OP, UPSERT, MergeRule
from eventlog.model.columns.edits import path_text
from eventlog.staging.incoming.casting import FieldPath, absent_fields
from eventlog.staging.incoming.problems import Problem

Missing = Literal["null"]  # what a column that rows lack stands for
MISSING: tuple[Missing, ...] = ("null",)
_NULL_MEANT = (
    "Give all columns and fields; or, if you mean null, give missing='null' (Spark: option "
    "missing, shell: --missing null)"
)
_WHOLE = ("last", "first")  # the rules under which a row counts with its nulls


class Cut(NamedTuple):
    """Rows of one log segment, and the buckets from `first` to `last` that they lie in."""

    first: int
    last: int
    rows: pa.Table


def incoming(table: pa.Schema, rule: MergeRule, given: pa.Schema) -> pa.Schema:
    """Return the schema that the rows of a writer are brought to.

    Args:
        table: the table's.
        rule: its merge rule.
        given: the columns of the writer; with `_op`, a row may be a delete, which has only a key.
    """
    return log_schema(table, rule) if OP in given.names else table


def erased(table: pa.Schema, rule: MergeRule | None, given: pa.Schema) -> list[FieldPath]:
    """Return the columns and fields that rows lack and whose values they would therefore erase.

    Without a key no row replaces one, and under `partial` and `aggregate` a null erases nothing.
    But a struct is one value under every rule, so its null fields erase others.

    Args:
        table: the table's schema.
        rule: its merge rule; None without a key.
        given: the columns of the rows.
    """
    if rule is None:
        return []
    # against fields-erased-by-structs-that-lack-them
    return [*_erased_columns(table, rule, given.names), *absent_fields(given, table)]


def _erased_columns(table: pa.Schema, rule: MergeRule, given: Iterable[str]) -> list[FieldPath]:
    names = set(given)
    if rule.kind not in _WHOLE:
        return []
    return [(field.name,) for field in table if field.nullable and field.name not in names]


def check_complete(
    table: pa.Schema, rule: MergeRule | None, given: pa.Schema, missing: Missing | None
) -> None:
    """Check, before a row is read, that rows erase no values of columns and fields that they lack.

    Rows with a column `_op` may be deletes, which have only a key: they are checked as they come.

    Args:
        table: the table's schema.
        rule: its merge rule; None without a key.
        given: the columns of the rows.
        missing: `null` if nulls are meant.

    Raises:
        InvalidInput: the rows lack a column or a field.
    """
    lacking = erased(table, rule, given) if missing is None and OP not in given.names else []
    if lacking:
        raise InvalidInput(incomplete(lacking, rule))


def deletes_only(ops: pa.ChunkedArray | pa.Array) -> bool:
    """Return whether all rows are deletes, by their column `_op`."""
    if pa.types.is_dictionary(ops.type):
        ops = ops.cast(ops.type.value_type)
    if pa.types.is_null(ops.type):
        return not len(ops)
    return bool(pc.all(pc.fill_null(pc.equal(ops, DELETE), False), min_count=0).as_py())


def incomplete(lacking: Sequence[FieldPath], rule: MergeRule | None) -> str:
    """Return the message for upserts that lack these columns and fields."""
    return f"{_missing(lacking)}: {_erasure(lacking, rule)}"


def replacing_incomplete(lacking: Sequence[FieldPath]) -> str:
    """Return the message for rows that replace others by an overwrite, and lack these."""
    return (
        f"{_missing(lacking)}, so values in the rows that these replace would be lost. "
        f"{_NULL_MEANT}"
    )


def _missing(lacking: Sequence[FieldPath]) -> str:
    if len(lacking) == 1:
        return f"{path_text(lacking[0])} is missing"
    if any(len(path) > 1 for path in lacking):
        return f"{', '.join(map(path_text, lacking))} are missing"
    return f"columns {', '.join(repr(name) for (name,) in lacking)} are missing"


def _erasure(lacking: Sequence[FieldPath], rule: MergeRule | None) -> str:
    if any(len(path) > 1 for path in lacking):
        return (
            "a row replaces whole structs, under every merge rule, so existing values of their "
            f"fields would become null. {_NULL_MEANT}"
        )
    kind = "last" if rule is None else rule.kind
    return (
        f"under merge={kind} a row replaces the whole row of its key, so existing values would "
        f"become null. {_NULL_MEANT}. In a table with the rule `partial` "
        "(Table.create(..., properties={'merge': 'partial'})) such rows keep existing values"
    )


def checked(
    rows: pa.Table,
    table: pa.Schema,
    rule: MergeRule,
    chunked_by: str | None = None,
    lacking: Sequence[FieldPath] = (),
) -> pa.Table | Problem:
    """Return the rows as they are merged, or the first problem in them.

    Args:
        rows: with the schema of `incoming`.
        table: the table's schema.
        rule: its merge rule.
        chunked_by: the event-time column, if it decides the chunk: then deletes also have it.
        lacking: columns and fields without which only deletes are accepted (`erased`).
    """
    if OP in rows.column_names:
        problem = _delete_problem(rows, table, rule, chunked_by)
        if problem is not None:
            return problem
    if lacking:
        problem = _incomplete_problem(rows, rule, lacking)
        if problem is not None:
            return problem
    for name, function in rule.functions.items():
        if function == "count":  # a row counts once, unless it has a number
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), pc.fill_null(rows.column(name), 1))
    return rows


def _incomplete_problem(
    rows: pa.Table, rule: MergeRule, lacking: Sequence[FieldPath]
) -> Problem | None:
    """Return the problem of upserts that lack values; None if all rows are deletes."""
    upserts = rows.filter(pc.invert(deleted(rows)))
    if not upserts.num_rows:
        return None
    column, *field = lacking[0]
    lost = f"its field {'.'.join(field)!r}" if field else "it"
    why = f"upserts lack {lost}; {_erasure(lacking, rule)}"
    return Problem(column, why, upserts.num_rows, _key_of(upserts, rule))


def _key_of(rows: pa.Table, rule: MergeRule) -> str:
    """Return the key of the first row, as text for a message."""
    shown = (f"{name}={rows.column(name)[0].as_py()!r}"[:60] for name in rule.key)
    return "row " + ", ".join(shown)


def _delete_problem(
    rows: pa.Table, table: pa.Schema, rule: MergeRule, chunked_by: str | None
) -> Problem | None:
    ops = pc.fill_null(rows.column(OP), UPSERT)
    unknown = pc.invert(pc.is_in(ops, value_set=pa.array([UPSERT, DELETE])))
    count = pc.sum(unknown).as_py() or 0
    if count:
        example = repr(ops.filter(unknown)[0].as_py()[:40])
        return Problem(OP, f"values are neither {UPSERT!r} nor {DELETE!r}", count, example)
    deletes = pc.equal(ops, DELETE)
    count = pc.sum(deletes).as_py() or 0
    if count and rule.kind == "aggregate":
        return Problem(OP, "rows are deletes, which merge=aggregate does not have", count, "'d'")
    if rule.order not in (None, chunked_by) and not rule.ordered_deletes:
        ordered = pc.and_(deletes, pc.is_valid(rows.column(rule.order)))
        count = pc.sum(ordered).as_py() or 0
        if count:
            why = (
                f"deletes have a value, which orders nothing under merge={rule.kind}: leave it null"
            )
            example = str(rows.column(rule.order).filter(ordered)[0].as_py())
            return Problem(rule.order, why, count, example)
    upserts = pc.invert(deletes)
    for field in table:
        if field.nullable:
            continue
        missing = pc.and_(upserts, pc.is_null(rows.column(field.name)))
        count = pc.sum(missing).as_py() or 0
        if count:
            example = _key_of(rows.filter(missing), rule)
            return Problem(field.name, "values are null", count, example)
    return None


def cut(
    rows: pa.Table, table: pa.Schema, rule: MergeRule, bucket_bytes: int, *, all_rows: bool = True
) -> Iterator[Cut]:
    """Yield the rows of log segments: all together, or if they are many those of each bucket.

    Args:
        rows: as `checked` returned them, in their order.
        table: the table's schema.
        rule: its merge rule.
        bucket_bytes: Arrow bytes above which each bucket gets a segment.
        all_rows: whether these are all rows that one call writes of their keys. Else sums that do
            not fit may do so together with the others, so the rows of these keys stay as they are.

    Raises:
        SumOverflow: a sum of all rows does not fit its column.
    """
    unfit = rows.slice(0, 0)
    if not all_rows:
        rows, unfit = row_merging.fitting(rows, rule)
    rows = row_merging.condensed(rows, rule, bottom=False)
    if unfit.num_rows:
        rows = pa.concat_tables([rows, unfit])
    rows, buckets = in_key_order(rows, rule)
    if rows.nbytes <= bucket_bytes:
        yield Cut(buckets[0].as_py(), buckets[-1].as_py(), stored(rows, table))
        return
    for bucket, part in _by_bucket(rows, buckets):
        yield Cut(bucket, bucket, stored(part, table))


def stored(rows: pa.Table, table: pa.Schema) -> pa.Table:
    """Return the rows with the schema of a segment: without `_op` if there are no deletes."""
    if OP in rows.column_names and not pc.any(deleted(rows), min_count=0).as_py():
        rows = rows.drop_columns([OP])
    complete = all(f.nullable or not rows.column(f.name).null_count for f in table)
    if complete and rows.column_names == table.names:
        return rows.cast(table)
    required = {f.name for f in table if not f.nullable and not rows.column(f.name).null_count}
    return rows.cast(pa.schema([f.with_nullable(f.name not in required) for f in rows.schema]))


def _by_bucket(rows: pa.Table, buckets: pa.Array) -> Iterator[tuple[int, pa.Table]]:
    """Yield (bucket, rows) of sorted rows."""
    runs = pc.run_end_encode(buckets)
    start = 0
    for bucket, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield bucket, rows.slice(start, end - start)
        start = end
