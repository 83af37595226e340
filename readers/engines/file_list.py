"""The files of a version, for whatever reads a list of Parquet files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow.compute as pc
from msgspec import UnsetType

from eventlog import Table
from eventlog.errors import InvalidInput
from eventlog.format import keys
from eventlog.format.frames.entry_columns import INLINE, deleted_sum, inline_count, to_segments
from eventlog.inline import inline_objects
from eventlog.keyed.slice_pruning import is_plain
from eventlog.log.history import written_schema
from eventlog.log.log import Log
from eventlog.log.snapshot import plan_scan
from eventlog.model.entries import ColumnType, Schema
from eventlog.quantities import count_text
from eventlog.query.moments import Moment
from eventlog.query.predicate import Where
from eventlog.readers.pinned import kept_snapshot, table_at
from eventlog.session.tags import VersionOrName
from eventlog.state.scan import ScanPlan
from eventlog.store.branching.roots import root_of


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a version.

    Attributes:
        uri: `s3://bucket/key` or `file:///path`, percent-encoded.
        rows: the number of its rows.
        bytes: its size.
        chunk: the name of the time chunk that all its rows are in.
    """

    uri: str
    rows: int
    bytes: int
    chunk: str


def files(
    t: Table | str | os.PathLike[str],
    where: Where | None = None,
    version: VersionOrName | None = None,
    timestamp: Moment | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> list[DataFile]:
    """Return the files of one version, whose rows together are exactly its rows.

    Files are in the order of a scan. They do not change, and stay until the version is vacuumed: a
    pin keeps them. Reading them checks no digest. Rows of small appends stand in commits: they are
    stored as files first, which takes the permission to put objects.

    Args:
        t: the table, or its root; see `scan`.
        where: leave out files that have no row that passes. The others have rows that do not pass,
            too.
        version: the version, or the name of a tag; the newest if neither this nor `timestamp` is
            given.
        timestamp: the time whose version to read; see `Table.snapshot`.
        storage_options: with a root: see `eventlog.store.options`.

    Raises:
        InvalidInput: the files alone would give other rows; or an argument is wrong.
        VersionNotFound: there is no such version.
        VersionVacuumed: the version is below the horizon; see `scan`.
    """
    t = table_at(t, storage_options)
    plan = plan_scan(kept_snapshot(t, version, timestamp), where=where)
    why = files_mislead(plan) or _columns_mislead(t.session.log, plan)
    if why is not None:
        raise InvalidInput(
            f"a reader of the files alone {why}: read version {plan.version} with scan, dataset or "
            "lazy",
            table=t.uri,
            version=plan.version,
        )
    _put_files(t, plan)
    return [
        DataFile(f"{root_of(t.store, key)}/{key}", segment.rows, segment.bytes, segment.chunk)
        for segment in plan.in_scan_order()
        for key in [keys.key_of(segment)]
    ]


def _put_files(t: Table, plan: ScanPlan) -> None:
    """Put the objects of segments that stand in commits, unless they are there.

    Raises:
        InvalidInput: the store refuses, and what leads on.
    """
    inline = [s for s in plan.in_scan_order() if not isinstance(s.inline, UnsetType)]
    files, root = t.store.filesystem()
    infos = files.get_file_info([f"{root}/{keys.key_of(s)}" for s in inline]) if inline else []
    missing = [s for s, info in zip(inline, infos, strict=True) if info.size != s.bytes]
    try:
        inline_objects.put_at_keys(t.store, missing)  # against files-that-are-not-there
    except InvalidInput as error:
        raise InvalidInput(
            f"the rows of {count_text(len(missing), 'segment')} stand in commits, and cannot be "
            f"stored as files: {error.message}. Ask with the permission to put objects, compact or "
            "publish the table first, or read with scan, dataset or lazy",
            table=t.uri,
            version=plan.version,
        ) from error


def files_mislead(plan: ScanPlan) -> str | None:
    """Return why the files of a plan have other rows than its version; None if they do not."""
    if any(not is_plain(run) for run in plan.runs):
        return "cannot merge the rows of a key (compaction does so once and for all)"
    if deleted_sum(plan.entries):  # against deleted-rows-read-by-the-jvm
        return "cannot leave out the rows that deletion vectors delete (compaction removes them)"
    return None


def by_place(plan: ScanPlan) -> tuple[ScanPlan, ScanPlan]:
    """Return a plan in two parts: the segments that are files, and those that stand in commits.

    Each row is in one of them. A plan of a keyed table stays whole: where it has segments in
    commits, these are logs, whose rows must be merged (FORMAT.md R21.1).
    """
    # against inline-segments-read-by-the-jvm
    if plan.rule is not None or not inline_count(plan.entries):
        return plan, replace(plan, entries=plan.entries.slice(0, 0), runs=())
    is_file = pc.is_null(plan.entries.column(INLINE.name))
    return (
        replace(plan, entries=plan.entries.filter(is_file)),
        replace(plan, entries=plan.entries.filter(pc.invert(is_file))),
    )


def is_renamed(plan: ScanPlan) -> bool:
    """Return whether some files of a plan may have columns under other names than its version."""
    if isinstance(plan.columns.by_id, UnsetType):
        return False
    older = pc.less(plan.entries.column("schema"), plan.columns.id)
    return bool(pc.any(older, min_count=0).as_py())  # against renamed-column-read-by-the-jvm


def _columns_mislead(log: Log, plan: ScanPlan) -> str | None:
    """Return why a reader would not find the version's columns in each file; None if it would."""
    numbers = plan.entries.column("schema")
    for number in sorted(n for n in numbers.unique().to_pylist() if n < plan.columns.id):
        one = plan.entries.filter(pc.equal(numbers, number)).slice(length=1)
        written = written_schema(log, to_segments(one)[0])
        if written is None:
            return "may not find the columns of a version that this copy lacks"
        now, then = _by_id(plan.columns), _by_id(written)
        if any(now.get(column) != then[column] for column in then):
            # against renamed-column-in-a-list-of-files
            return "finds columns by name, and some were renamed, dropped or widened since"
        if now != then:  # against files-without-added-columns
            return "does not find columns in the files that were written before those were added"
    return None


def _by_id(schema: Schema) -> dict[int, tuple[str, ColumnType]]:
    return {column.id: (column.name, column.type) for column in schema.columns}
