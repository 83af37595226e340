"""`blame`: which commits wrote a segment, a time chunk, a key, or rows that pass a filter.

Imports eventlog and the other modules of readers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from eventlog import Segment, Snapshot, Table
from eventlog.arguments import shown, whole
from eventlog.errors import InvalidInput
from eventlog.format import keys
from eventlog.keyed import key_lookup
from eventlog.keyed.rule import MergeRule
from eventlog.model.actions import Drop
from eventlog.query.moments import Moment
from eventlog.query.predicate import Where
from eventlog.readers.blaming.blame_columns import (
    KEY_COLUMNS,
    ROW_COLUMNS,
    SEGMENT_COLUMNS,
    step_row,
    taken_names,
    writer_columns,
)
from eventlog.readers.blaming.row_writers import RowWriters, whole_row_names
from eventlog.readers.blaming.segment_lineage import (
    LineageReader,
    LineageStep,
    Occurrence,
    occurrence,
)
from eventlog.readers.blaming.stored_keys import StoredKeys, StoredRow
from eventlog.readers.pinned import kept_snapshot
from eventlog.readers.scanner import Scan, scan
from eventlog.session.tags import VersionOrName
from eventlog.state import scan as scan_planning


def blame(
    t: Table,
    segment: Segment | str | None = None,
    *,
    chunk: str | None = None,
    key: Any = None,
    where: Where | None = None,
    version: VersionOrName | None = None,
    timestamp: Moment | None = None,
    limit: int | None = None,
) -> pa.Table:
    """Return which commits wrote a segment, a time chunk, a key, or rows.

    Give one of the four. Of a segment or a chunk: a row for each segment that the rows were in,
    `depth` 0 for the live ones, 1 for what these were rewritten from, and so on. Of `where`: the
    rows that pass, with `_versions`, the commits that may have written the row, and `_version`, the
    one that did; null if several may have, and vacuum has deleted what would show it. Of a key: its
    stored rows, newest first. docs/guides/history.md has all columns.

    Sends a GET for each commit that added one of these segments, and for each that rewrote some the
    requests of a snapshot; for rows also those of a scan, and of the segments that may have them.

    Args:
        t: the table.
        segment: a live segment, its id, or its key or URI, which is faster.
        chunk: the name of a time chunk; all segments that overlap it are shown.
        key: the value of the key column; or a mapping, of several key columns.
        where: SQL text or a pyarrow expression that selects rows.
        version: the version to ask about, or the name of a tag; the newest if None.
        timestamp: the time whose version to ask about.
        limit: of `where`: the largest number of rows, which are in memory; all if None.

    Raises:
        InvalidInput: an argument is wrong; there is no such live segment; or a column of the table
            is called as one of the result.
        Corrupt: the log does not add up.
        DataLoss: a live segment with such rows is missing or damaged.
        VersionNotFound: there is no such version.
        VersionVacuumed: rows were asked for, and the version is below the horizon.
    """
    given = [name for name, value in _named(segment, chunk, key, where) if value is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise InvalidInput(f"give one of segment, chunk, key and where, not {found}")
    if where is not None:
        most = None if limit is None else whole(limit, "limit")
        return _of_rows(t, scan(t, None, where, version, timestamp, limit=most), where)
    if key is not None:
        snapshot = kept_snapshot(t, version, timestamp)
        return _of_key(t, snapshot, key)
    snapshot = t.snapshot(version, timestamp)
    chosen = snapshot.segments(chunks=chunk) if segment is None else [_live(snapshot, segment)]
    steps = LineageReader(t.session.log, t.session.head().meta.clock).steps(chosen)
    return _of_segments(chosen, steps)


def _named(*values: Any) -> Iterable[tuple[str, Any]]:
    return zip(("segment", "chunk", "key", "where"), values, strict=True)


def _of_segments(segments: Sequence[Segment], steps: Mapping[Occurrence, LineageStep]) -> pa.Table:
    """Return the steps of a lineage by their depth, each once, the newest of a depth first."""
    depths = {occurrence(entry): 0 for entry in segments}
    queue = deque(depths)
    while queue:
        name = queue.popleft()
        for one in steps[name].inputs:
            if occurrence(one) not in depths:
                depths[occurrence(one)] = depths[name] + 1
                queue.append(occurrence(one))
    ordered = sorted(depths, key=lambda name: (depths[name], -name[1], _place(steps[name])))
    rows = [step_row(steps[name], depths[name]) for name in ordered]
    return pa.Table.from_pylist(rows, SEGMENT_COLUMNS)


def _place(step: LineageStep) -> tuple[str, int]:
    return step.entry.chunk, step.entry.partition


def _live(snapshot: Snapshot, wanted: Segment | str) -> Segment:
    """Return the entry of a live segment that is given by itself, its id, its key or its URI.

    Raises:
        InvalidInput: it is none of these, or not live.
    """
    if isinstance(wanted, Segment):
        name, chunk = wanted.id, wanted.chunk
    elif not isinstance(wanted, str):
        raise InvalidInput(f"a segment is given by its id, its key or its URI, not {shown(wanted)}")
    else:
        parsed = keys.parse_segment_key("/".join(wanted.rsplit("/", 4)[-4:]))
        name, chunk = (wanted, "") if parsed is None else (parsed[2], parsed[1])
    if chunk:
        found = snapshot.live([Drop(name, chunk, "")]).get(name)
    else:
        found = next((one for one in snapshot.segments() if one.id == name), None)
    if found is None:
        raise InvalidInput(
            f"segment {shown(wanted)} is not live at version {snapshot.version}: `eventlog ls` "
            "lists those that are, also of an older version"
        )
    return found


def _of_rows(t: Table, query: Scan, where: Where) -> pa.Table:
    """Return the rows of a query with the commits that wrote them."""
    _check_names(query.schema, ROW_COLUMNS)
    if query.plan.rule is not None:
        rows = query.to_table()
        return _with_columns(rows, writer_columns(_of_merged(t, query, rows)))
    names: list[tuple[Segment, str]] = []
    batches: list[pa.RecordBatch] = []
    left = query.limit
    found = query.reading.located(query.plan.in_scan_order())
    for entry, batch in found:
        if left is not None and left <= 0:
            break
        kept = batch if left is None else batch.slice(0, left)
        batches.append(kept)
        names += [(entry, name) for name in whole_row_names(kept)]
        left = None if left is None else left - kept.num_rows
    found.close()
    rows = pa.Table.from_batches(batches, query.schema)
    return _with_columns(rows, writer_columns(_writers_of(t, query, where, names)))


def _writers_of(
    t: Table, query: Scan, where: Where, names: Sequence[tuple[Segment, str]]
) -> list[tuple[int | None, Sequence[LineageStep], str]]:
    """Return the commits of rows, which are given by their segments and their names."""
    snapshot, predicate = query.snapshot, query.plan.predicate
    question = scan_planning.question(snapshot.state, where=where)

    def choose(inputs: Sequence[Segment]) -> Sequence[Segment]:
        return question.of(inputs, snapshot.version).segments() if inputs else []

    reader = LineageReader(t.session.log, t.session.head().meta.clock, choose)
    rows: dict[Occurrence, tuple[Segment, set[str]]] = {}
    for entry, name in names:
        rows.setdefault(occurrence(entry), (entry, set()))[1].add(name)
    steps = reader.steps(entry for entry, _ in rows.values())
    # The inputs may have rows that the predicate excludes.
    reading = replace(query.reading, filter=predicate.to_arrow() if predicate else None)
    rewritten = [one for one in rows.values() if not steps[occurrence(one[0])].begins]
    writers = RowWriters(
        steps if rewritten else {}, reading, whole_row_names, (name for _, name in names)
    )
    possible = {occurrence(entry): writers.writers(entry, wanted) for entry, wanted in rewritten}
    result: list[tuple[int | None, Sequence[LineageStep], str]] = []
    for entry, name in names:
        own = steps[occurrence(entry)]
        found = [own] if own.begins else possible[occurrence(entry)][name]
        versions = {step.entry.version for step in found}
        result.append((versions.pop() if len(versions) == 1 else None, found, entry.id))
    return result


def _of_merged(
    t: Table, query: Scan, rows: pa.Table
) -> list[tuple[int | None, Sequence[LineageStep], str | None]]:
    """Return the commits of rows of a keyed table, by the stored rows of their keys."""
    rule = query.plan.rule
    assert rule is not None  # noqa: S101 - the caller's guard, for the type checker
    if not rows.num_rows:
        return []
    wanted = rows.select(list(rule.key))
    stored = _stored(t, query.snapshot, rule, key_lookup.distinct(wanted, rule.key))
    by_key: dict[str, list[StoredRow]] = {}
    for one in stored:
        if not one.is_delete:
            (name,) = whole_row_names(one.row.select(list(rule.key)))
            by_key.setdefault(name, []).append(one)
    found: list[tuple[int | None, Sequence[LineageStep], str | None]] = []
    plain = rule.kind in ("last", "first")  # a row that readers see is one of the stored ones
    for at, name in enumerate(whole_row_names(wanted)):
        written = by_key.get(name, [])
        if plain:
            (whole_name,) = whole_row_names(rows.slice(at, 1))
            equal = [
                one
                for one in written
                if whole_row_names(one.row.select(rows.column_names)) == [whole_name]
            ]
            written = equal or written
        found.append(_newest_of(written))
    return found


def _newest_of(
    written: Sequence[StoredRow],
) -> tuple[int | None, Sequence[LineageStep], str | None]:
    """Return which of the stored rows of a key is the newest, if that is certain, and all steps."""
    if not written:
        return None, (), None
    steps = list({occurrence(s.entry): s for one in written for s in one.steps}.values())
    versions = [one.version for one in written]
    certain = [version for version in versions if version is not None]
    newest = max(certain) if len(certain) == len(versions) else None
    shown_one = next((one for one in written if one.live), written[0])
    return newest, steps, shown_one.step.entry.id


def _of_key(t: Table, snapshot: Snapshot, key: Any) -> pa.Table:
    """Return the stored rows of a key, newest first."""
    rule = snapshot.merge_rule
    if rule is None:
        raise InvalidInput(f'{t.uri} has no key: ask with where, such as where="id = 7"')
    columns = snapshot.schema
    _check_names(columns, [*ROW_COLUMNS.names, *KEY_COLUMNS.names])
    stored = _stored(t, snapshot, rule, _key_table(columns, rule, key))
    rows = [one.row.select(columns.names) for one in stored]
    nullable = pa.schema([field.with_nullable(True) for field in columns])
    values = pa.concat_tables([nullable.empty_table(), *(one.cast(nullable) for one in rows)])
    writers = writer_columns([(one.version, one.steps, one.step.entry.id) for one in stored])
    places = pa.Table.from_pylist(
        [
            {
                "_op": "delete" if one.is_delete else "upsert",
                "_kind": one.step.entry.slice.kind,  # type: ignore[union-attr] # of a keyed table
                "_live": one.live,
            }
            for one in stored
        ],
        KEY_COLUMNS,
    )
    return _with_columns(_with_columns(values, writers), places)


def _stored(t: Table, snapshot: Snapshot, rule: MergeRule, wanted: pa.Table) -> list[StoredRow]:
    return StoredKeys(t.session.log, snapshot, rule, wanted, t.session.head().meta.clock).rows()


def _key_table(columns: pa.Schema, rule: MergeRule, key: Any) -> pa.Table:
    """Return a key as a table of one row; text is read as a value of the column's type.

    Raises:
        InvalidInput: it lacks a key column or has others, or a value is not one of its column.
    """
    sole = {rule.key[0]: key} if len(rule.key) == 1 else {}
    values = dict(key) if isinstance(key, Mapping) else sole
    if values.keys() != {*rule.key}:
        raise InvalidInput(f"give a value for each column of the key: {', '.join(rule.key)}")
    fields = [columns.field(name) for name in rule.key]
    arrays = []
    for field in fields:
        value = values[field.name]
        try:
            plain = pa.array([value]) if isinstance(value, str) else pa.array([value], field.type)
            arrays.append(plain.cast(field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(
                f"{shown(value)} is no value of the key column {field.name!r}: {error}"
            ) from None
        if arrays[-1].null_count:
            raise InvalidInput(f"the key column {field.name!r} is never null")
    return pa.table(arrays, schema=pa.schema(fields))


def _check_names(columns: pa.Schema, more: Iterable[str]) -> None:
    names = more.names if isinstance(more, pa.Schema) else more
    if taken := taken_names(columns.names, names):
        raise InvalidInput(
            f"the result has a column {taken[0].lower()!r}, and the table has {taken[0]!r}: ask by "
            "segment or chunk, or rename the column"
        )


def _with_columns(rows: pa.Table, more: pa.Table) -> pa.Table:
    for field, column in zip(more.schema, more.columns, strict=True):
        rows = rows.append_column(field, column)
    return rows
