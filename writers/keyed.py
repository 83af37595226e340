"""Upserts and deletes. In a keyed table no write reads the rows that it replaces.

Imports eventlog and its readers only. So no write of a keyed table conflicts with another: rows of
one key are merged when they are read (FORMAT.md "Keyed tables"). In a table without a key deletes
are positions (`eventlog.writers.changing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from eventlog import Snapshot, Table
from eventlog.arguments import choice, opened
from eventlog.errors import InvalidInput
from eventlog.keyed.rule import DELETE, OP, MergeRule, keyed_of
from eventlog.model.columns.named_layout import NamedLayout
from eventlog.model.records import App
from eventlog.query.predicate import Where
from eventlog.readers import scan
from eventlog.staging.incoming.streams import spelled, to_reader
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES
from eventlog.staging.upsert_rows import Missing
from eventlog.telemetry.signals import traced
from eventlog.writers.batch import add_rows, check_missing, evolving, make_app, types_of
from eventlog.writers.changing.deletes import delete_where
from eventlog.writers.changing.finding import Search
from eventlog.writers.changing.landing import ISOLATIONS, Isolation, RowChange


@traced("eventlog.upsert")
def upsert(
    t: Table,
    data: Any,
    *,
    app_id: str | None = None,
    app_seq: int | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    missing: Missing | None = None,
    evolve: bool = False,
) -> int:
    """Insert rows, or merge them with those of the same key; return the committed version.

    Nothing is read, and no other commit is in conflict. The table's merge rule decides what becomes
    of several rows of a key (docs/guides/keyed.md); rows of one call count in their order.

    Args:
        t: a keyed table.
        data: as for `append`. Beside the table's columns it may have `_op`: `u` or null for rows to
            merge, `d` for keys to delete, whose other columns are ignored except the one that
            orders rows. Under `merge=partial` columns that it lacks keep their values, as do those
            in which it is null.
        app_id: as for `append`.
        app_seq: as for `append`.
        memory_bytes: as for `append`.
        missing: `null` if columns that `data` lacks are to be null in the rows of its keys, under
            the rules `last` and `first`, and fields that its structs lack, under every rule.
            Without it `data` must have them; rows that are deletes need not.
        evolve: see `append`.

    Raises:
        InvalidInput: the table has no key, or the rows do not fit it, or lack a column or a
            field whose values they would erase.
        CommitConflict: the upload took so long that a vacuum's fence passed it.
        CommitUnknown: see `append`.
        Unavailable: the store does not answer; nothing was committed.
    """
    opened(t)
    rule_or_refuse(t.session.head(), t.uri)
    app, meaning = make_app(app_id, app_seq), check_missing(missing)
    with evolving(t, data, app, evolve=evolve) as rows:
        return add_rows(t, rows, "upsert", app, memory_bytes, meaning)


@traced("eventlog.delete")
def delete(
    t: Table,
    where: Where | None = None,
    *,
    keys: Any = None,
    app_id: str | None = None,
    app_seq: int | None = None,
    isolation: Isolation = "snapshot",
    dry_run: bool = False,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> RowChange:
    """Delete the rows that a predicate selects, or those of keys; return the committed version.

    In a table without a key, give `where`. The rows are those that it selects in the newest
    version; a row that others update meanwhile is looked at again. The delete stores positions, not
    rows, and neither waits for nor fails because of appends, compactions and other deletes.

    In a keyed table the keys are gone from this version on; a row that is committed later counts
    again. Nothing is in conflict: with `where`, rows of the selected keys that are committed
    meanwhile are deleted, too; where `order_by` is also the time of chunks smaller than `all`, not
    those of later times.

    Args:
        t: the table.
        where: SQL text or a pyarrow expression, as for `scan`.
        keys: of a keyed table: rows with the key columns, in any form that `append` takes; in a
            table of chunks smaller than `all` also with the event time. With the column that orders
            rows, a delete has a place among them: later values of it count.
        app_id: as for `append`.
        app_seq: as for `append`.
        isolation: of a table without a key: with `snapshot` rows that others add meanwhile stay,
            where nothing moves them beside selected ones; with `serializable` they are a conflict.
        dry_run: of a table without a key: commit nothing, and return what would be deleted.
        memory_bytes: as for `append`; with `where` also for the scan of the rows.

    Returns:
        The version; in a table without a key with the numbers of rows and segments touched.

    Raises:
        InvalidInput: not exactly one of `keys` and `where` is given, the table has no key and
            `keys` are given, the keys do not fit the table, or the predicate fails on a row.
        CommitConflict: see `isolation`.
        CommitUnknown, Unavailable: see `append`.
        DataLoss: a segment or a deletion vector is missing or damaged.
    """
    opened(t)
    if (keys is None) == (where is None):
        raise InvalidInput("give either keys or where")
    app = make_app(app_id, app_seq)
    head = t.session.head() if keys is not None else t.refresh()
    if where is not None and keyed_of(head.layout) is None:
        search = Search(t, where, memory_bytes)
        return delete_where(
            t, head, where, isolation=isolation, app=app, dry_run=dry_run, search=search
        )
    if dry_run or choice(isolation, "isolation", ISOLATIONS) != "snapshot":
        raise InvalidInput("isolation and dry_run are for tables without a key")
    rule = rule_or_refuse(head, t.uri)
    given = keys if where is None else _keys_where(t, head, rule, where, memory_bytes)
    return _delete_keys(t, head, rule, given, app, memory_bytes)


def _keys_where(
    t: Table, head: Snapshot, rule: MergeRule, where: Where, memory_bytes: int
) -> pa.RecordBatchReader:
    """Return the keys that a predicate selects."""
    wanted = list(dict.fromkeys([*rule.key, *timed_by(head.layout)]))
    return scan(t, wanted, where, version=head.version, memory_bytes=memory_bytes).to_reader()


def _delete_keys(  # noqa: PLR0917 - what `delete` is given
    t: Table, head: Snapshot, rule: MergeRule, keys: Any, app: App | None, memory_bytes: int
) -> RowChange:
    """Delete the rows of keys. Raises: as `delete`."""
    rows = to_reader(keys, types_of(head))
    given = spelled(rows.schema, head.schema.names)
    check_delete_columns(given, head, rule)
    schema = deletes_schema(given, head.schema)
    named = (batch.rename_columns(given.names) for batch in rows)
    deletes = (as_deletes(batch, schema, rule, timed_by(head.layout)) for batch in named)
    reader = pa.RecordBatchReader.from_batches(schema, deletes)
    version = add_rows(t, reader, "delete", app, memory_bytes, None)
    return RowChange(version, committed=version > head.version)


def check_delete_columns(given: pa.Schema, head: Snapshot, rule: MergeRule) -> None:
    """Check that rows have the columns by which keys are deleted, and no others.

    Args:
        given: the columns of the rows.
        head: the table.
        rule: its merge rule.

    Raises:
        InvalidInput: they have not.
    """
    timed = timed_by(head.layout)
    allowed = {*rule.key, *timed, head.layout.time_column, rule.order}
    extra = [name for name in given.names if name not in allowed]
    missing = [name for name in (*rule.key, *timed) if name not in given.names]
    if extra or missing:
        raise InvalidInput(
            f"keys to delete have the columns {', '.join([*rule.key, *timed])}"
            + (f", and may have {rule.order}" if rule.ordered_deletes else "")
            + f"; these have {', '.join(given.names) or 'none'}"
        )


def deletes_schema(given: pa.Schema, table: pa.Schema) -> pa.Schema:
    """Return the schema of rows of a table that delete keys.

    Args:
        given: the columns of the keys.
        table: the table's schema.
    """
    kinds = {field.name: field.type for field in given}
    fields = [pa.field(field.name, kinds.get(field.name, field.type)) for field in table]
    return pa.schema([*fields, pa.field(OP, pa.string())])


def as_deletes(
    batch: pa.RecordBatch, schema: pa.Schema, rule: MergeRule, timed: Sequence[str]
) -> pa.RecordBatch:
    """Return keys as rows of the table that delete them.

    Args:
        batch: the keys.
        schema: what `deletes_schema` returned for them.
        rule: the table's merge rule.
        timed: the columns that decide in which chunk a key is (`timed_by`).
    """
    # An order value that orders no deletes matters only where it decides the chunk of a key.
    kept = {*timed, *(name for name in schema.names if name != rule.order)}
    columns = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        if field.name == OP:
            columns.append(pa.repeat(pa.scalar(DELETE), batch.num_rows))
        elif at >= 0 and (field.name in kept or rule.ordered_deletes):
            columns.append(batch.column(at))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def rule_or_refuse(head: Snapshot, uri: str) -> MergeRule:
    """Return the merge rule.

    Raises:
        InvalidInput: the table has no key.
    """
    rule = head.merge_rule
    if rule is None:
        raise InvalidInput(
            f"the table {uri} has no key: `Table.create(..., key=...)` makes a keyed one; use "
            "`append`, `delete(where=...)` and `overwrite` here"
        )
    return rule


def timed_by(layout: NamedLayout) -> tuple[str, ...]:
    """Return the columns that decide in which chunk a key is."""
    time = layout.time_column
    return () if time is None or layout.granularity == "all" else (time,)
