"""The verbs that make a table and show a version of it: create, show, ls, diff.

Needs the extra `cli`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import click
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import UnsetType

from eventlog.arguments import parse_names
from eventlog.cli import terminal
from eventlog.cli.place import Place, VersionType, at_timestamp, at_version, common, pairs
from eventlog.cli.screen.paging import listing
from eventlog.cli.verbs.reading import write_stream
from eventlog.cli.verbs.settings.column_changes import columns_json, list_checks
from eventlog.errors import AlreadyExists, InvalidInput
from eventlog.format import keys
from eventlog.keyed.placement import applied, reach, slice_of, span
from eventlog.keyed.rule import buckets_split, keyed_of, splits_of
from eventlog.keyed.slices import runs
from eventlog.log import spills
from eventlog.log.diff import Diff
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Advance, Merge
from eventlog.model.columns.named_layout import NamedLayout
from eventlog.model.entries import GRANULARITIES, Segment, deleted_rows, stored_bitmap
from eventlog.model.records import Commit, Totals, Transaction, origins_of
from eventlog.model.schema_text import type_text
from eventlog.quantities import count_text, size_text
from eventlog.readers.changefeed import changes
from eventlog.session.tags import VersionOrName, version_number
from eventlog.staging.fitting import follows_data
from eventlog.table.table import Table


@click.command()
@common
@click.option("--schema", "text", help="'time timestamp, id bigint not null, tags list<string>, …'")
@click.option(
    "--like",
    type=click.Path(exists=True, dir_okay=False),
    help="Take the columns from this Parquet file.",
)
@click.option(
    "--time-column",
    help="Event-time column: a timestamp or a date. Without one the table has one time chunk.",
)
@click.option(
    "--granularity",
    type=click.Choice((*GRANULARITIES, "auto")),
    help="Size of time chunks. Default: auto, which is day at first and then follows the data; "
    "with --key or without --time-column: all.",
)
@click.option(
    "--order-by",
    multiple=True,
    help="Sort rows within a segment by it. Repeatable. With --key: the column that orders the "
    "rows of a key.",
)
@click.option("--key", multiple=True, help="Merge rows with the same value of it. Repeatable.")
@click.option("--buckets", type=click.IntRange(min=1), help="With --key: number of buckets.")
@click.option(
    "--property", "properties", metavar="NAME=VALUE", multiple=True, callback=pairs,
    help="A property of the table. Repeatable.",
)  # fmt: skip
@click.option(
    "--check", "checks", metavar="NAME=EXPRESSION", multiple=True, callback=pairs,
    help="A condition that no row may break. Repeatable.",
)  # fmt: skip
@click.option("--exist-ok", is_flag=True, help="A table that is there, and is like this, will do.")
def create(  # noqa: PLR0913 - one argument an option
    place: Place,
    *,
    text: str | None,
    like: str | None,
    time_column: str | None,
    granularity: str | None,
    order_by: Sequence[str],
    key: Sequence[str],
    buckets: int | None,
    properties: dict[str, str],
    checks: dict[str, str],
    exist_ok: bool,
) -> None:
    """Create a table."""
    if (text is None) == (like is None):
        raise InvalidInput("give the columns with --schema or with --like, not both")
    make = partial(
        Table.create,
        place.uri,
        text if text is not None else _schema_of(str(like)),
        time_column=time_column,
        granularity=granularity,
        order_by=[name for part in order_by for name in parse_names(part, "--order-by")],
        key=[name for part in key for name in parse_names(part, "--key")],
        buckets=buckets,
        properties=properties,
        checks=checks,
        storage_options=place.storage_options,
    )
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            table, what = make(), "created"
        except AlreadyExists:
            if not exist_ok:
                raise
            table, what = make(exist_ok=True), "there already:"
    for warning in warned:
        terminal.note(f"warning: {warning.message}")
    head = table.session.head()
    if place.as_json:
        committed = what == "created"
        place.answer(table, head.version, what, committed=committed, table_id=table.id)
    else:
        columns = count_text(len(head.schema.names), "column")
        terminal.say(f"{what} {table.uri}: {columns}, {_cut_text(head)}")


@click.command()
@common
@click.argument("version", type=VersionType(), required=False)
@at_timestamp
@listing
def show(place: Place, *, version: VersionOrName | None, timestamp: str | None) -> None:
    """Show one version: commit, transactions, changes and state."""
    opened = place.unread()
    snapshot = opened.snapshot(version, timestamp)
    commit, body = opened.session.log.read(snapshot.version)
    unpacked = spills.unpack(commit, opened.session.log.spill)
    void = dict(opened.session.log.effect(commit).void)
    if place.as_json:
        terminal.json_document(_show_json(opened, snapshot, commit, unpacked, void))
        return
    _show_commit(snapshot, commit, len(body))
    for transaction in unpacked.transactions:
        _show_transaction(transaction, void.get(transaction.id))
    _show_state(snapshot)


@click.command()
@common
@at_version
@at_timestamp
@click.option("--where", help="SQL condition; omits segments that cannot match.")
@click.option(
    "--chunk",
    "only",
    multiple=True,
    metavar="NAME",
    help="Only this time chunk, such as 2013-01-07 or 2013. Repeatable.",
)
@click.option(
    "--chunks",
    "by_chunk",
    is_flag=True,
    help="List the time chunks that hold the segments, with totals only; see also `chunks`.",
)
@listing
def ls(
    place: Place,
    *,
    version: VersionOrName | None,
    timestamp: str | None,
    where: str | None,
    only: Sequence[str],
    by_chunk: bool,
) -> None:
    """List the segments of a version, or with --chunks its chunks.

    `eventlog chunks` shows the chunks as compaction sees them.
    """
    snapshot = place.unread().snapshot(version, timestamp)
    segments = snapshot.segments(where, only or None)
    if by_chunk:
        _list_chunks(place, segments)
        return
    counting = _counting(snapshot, segments)
    if counting is not None:  # in the order in which a slice applies them
        chunks = {name: at for at, name in enumerate(dict.fromkeys(s.chunk for s in segments))}
        segments = sorted(segments, key=lambda s: (chunks[s.chunk], applied(s)))
    if place.as_json:
        terminal.json_list(
            _segment_json(s) | ({} if counting is None else {"counts": counting.get(s.id, [])})
            for s in segments
        )
        return
    splits = buckets_split(snapshot.layout)
    signed = [("", segment) for segment in segments]
    _table_of_segments(signed, counting, splits=splits, mark=False)
    terminal.note(_sums(segments))
    inline = sum(not isinstance(segment.inline, UnsetType) for segment in segments)
    if inline:
        terminal.note(f"{inline:,} of them stand in their commits{_NO_FILE}")
    if counting is not None:
        terminal.note(_ROWS_OF_LOGS)


@click.command()
@common
@click.argument("a", type=VersionType())
@click.argument("b", type=VersionType())
@click.option("--chunks", "by_chunk", is_flag=True, help="Sum by time chunk.")
@click.option("--rows", "by_row", is_flag=True, help="List the changes of rows, as `changes` does.")
@listing
def diff(place: Place, *, a: VersionOrName, b: VersionOrName, by_chunk: bool, by_row: bool) -> None:
    """List the segments added and dropped between versions A and B."""
    if by_chunk and by_row:
        raise InvalidInput("give --chunks or --rows, not both")
    table = place.open()
    if by_row:
        write_stream(place, changes(table, a, b).to_reader(), None, None, None)
        return
    change = table.diff(a, b)
    if by_chunk:
        _list_changed_chunks(place, change)
        return
    if place.as_json:
        terminal.json_document(
            {
                "table": table.uri,
                "from": version_number(table.session, a),
                "to": version_number(table.session, b),
                "schema_changes": change.columns,
                "added": [_segment_json(segment) for segment in change.added],
                "dropped": [_segment_json(segment) for segment in change.dropped],
            }
        )
        return
    splits = max(buckets_split(table.snapshot(v).layout) for v in (a, b))
    for text in change.columns:
        terminal.say(text)
    signed = [("-", s) for s in change.dropped] + [("+", s) for s in change.added]
    _table_of_segments(signed, splits=splits)
    terminal.note(f"added {_sums(change.added)}; dropped {_sums(change.dropped)}")


_NO_FILE = (
    ", as small appends do: no file lies at such a key before `eventlog publish` or "
    "`eventlog.readers.files` stores it"
)
_ROWS_OF_LOGS = (
    "rows are those of the segments, upserts and deletes, before they are merged: `eventlog scan "
    "--count` counts keys"
)


def _cut_text(snapshot: Snapshot) -> str:
    """Return how new rows are cut by time."""
    granularity = snapshot.layout.granularity
    chunks = "one time chunk" if granularity == "all" else f"chunks by {granularity}"
    return f"{chunks} (auto)" if follows_data(snapshot) else chunks


def _schema_of(path: str) -> pa.Schema:
    try:
        return pq.read_schema(path).remove_metadata()
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{path} cannot be read as Parquet: {error}") from None


def _segment_json(segment: Segment) -> dict[str, Any]:
    place = segment.slice
    more = {} if isinstance(place, UnsetType) else {"slice": msgspec.to_builtins(place)}
    if not isinstance(segment.vector, UnsetType):
        more["vector"] = msgspec.to_builtins(segment.vector)
        stored = stored_bitmap(segment.vector)
        if stored is not None:
            more["vector"]["stored"] |= {"key": keys.vectors_key(stored)}
    if not isinstance(segment.inline, UnsetType):
        more["inline"] = segment.inline
    return more | {
        "id": segment.id,
        "chunk": segment.chunk,
        "rows": segment.live_rows,
        "bytes": segment.bytes,
        "version": segment.version,
        "epoch": segment.epoch,
        "schema": segment.schema,
        "checksum": segment.checksum,
        "key": keys.key_of(segment),
    }


def _list_chunks(place: Place, segments: Iterable[Segment]) -> None:
    sums: dict[str, list[int]] = {}
    for segment in segments:
        total = sums.setdefault(segment.chunk, [0, 0, 0])
        for at, number in enumerate((1, segment.live_rows, segment.bytes)):
            total[at] += number
    if place.as_json:
        terminal.json_list(
            {"chunk": name, "segments": count, "rows": rows, "bytes": size}
            for name, (count, rows, size) in sums.items()
        )
        return
    names = ("segments", "rows", "bytes")
    terminal.table(
        ("chunk", *names),
        (
            (name, terminal.with_thousands(count), terminal.with_thousands(rows), size_text(size))
            for name, (count, rows, size) in sums.items()
        ),
        right=names,
    )


def _list_changed_chunks(place: Place, change: Diff) -> None:
    """Show what was added to and dropped from each chunk: segments, rows and bytes."""
    sums: dict[str, dict[str, list[int]]] = {}
    for side, segments in (("added", change.added), ("dropped", change.dropped)):
        for segment in segments:
            both = sums.setdefault(segment.chunk, {"added": [0, 0, 0], "dropped": [0, 0, 0]})
            for at, number in enumerate((1, segment.live_rows, segment.bytes)):
                both[side][at] += number
    names = ("segments", "rows", "bytes")
    if place.as_json:
        terminal.json_list(
            {"chunk": name}
            | {side: dict(zip(names, total, strict=True)) for side, total in sums[name].items()}
            for name in sorted(sums)
        )
        return
    rows = []
    for name in sorted(sums):
        cells: list[str] = []
        for number, count, size in (sums[name]["added"], sums[name]["dropped"]):
            cells += [terminal.with_thousands(number), terminal.with_thousands(count)]
            cells.append(size_text(size))
        rows.append([name, *cells])
    columns = ("added", "rows added", "bytes added", "dropped", "rows dropped", "bytes dropped")
    terminal.table(("chunk", *columns), rows, right=columns)


_Counting = Mapping[str, list[list[int]]]


def _counting(snapshot: Snapshot, listed: Iterable[Segment]) -> _Counting | None:
    """Return the buckets, as [first, last], in which segments of a keyed table count, by id."""
    if keyed_of(snapshot.layout) is None:
        return None
    chunks = {segment.chunk for segment in listed}
    counted: dict[str, list[list[int]]] = {}
    # Which segments count depends on all segments of a chunk, also on those that are not listed.
    live = snapshot.segments(None, sorted(chunks)) if chunks else ()
    for run in runs(live, buckets_split(snapshot.layout)):
        for segment in run.segments:
            buckets = counted.setdefault(segment.id, [])
            if buckets and buckets[-1][1] == run.first - 1:
                buckets[-1][1] = run.last
            else:
                buckets.append([run.first, run.last])
    return counted


def _table_of_segments(
    signed: Sequence[tuple[str, Segment]],
    counting: _Counting | None = None,
    *,
    splits: int,
    mark: bool = True,
) -> None:
    """Show segments; those of a keyed table with their buckets as numbered after `splits`."""
    sliced = any(not isinstance(s.slice, UnsetType) for _, s in signed)
    deleted = any(not isinstance(s.vector, UnsetType) for _, s in signed)
    columns = ["", "chunk", "rows", *["deleted"] * deleted, "bytes", "version"]
    if sliced:
        columns += ["kind", "level", "buckets", "of versions"]
    if sliced and counting is not None:
        columns.append("counts in")
    columns.append("key")
    rows = []
    for sign, s in signed:
        gone = [terminal.with_thousands(deleted_rows(s.vector))] * deleted
        counts = [terminal.with_thousands(s.live_rows), *gone, size_text(s.bytes)]
        row = [sign, s.chunk, *counts, s.version]
        if sliced:
            place = slice_of(s)
            row += [place.kind, place.level, _range(reach(s, splits)), _range(span(s))]
        if sliced and counting is not None:
            row.append(", ".join(map(_range, counting.get(s.id, []))) or "none")
        rows.append([*row, keys.key_of(s)])
    first = 0 if mark else 1
    terminal.table(
        columns[first:], (row[first:] for row in rows),
        right=("rows", "deleted", "bytes", "version", "level"),
    )  # fmt: skip


def _range(ends: Sequence[int]) -> str:
    first, last = ends
    return str(first) if first == last else f"{first} to {last}"


def _sums(segments: Sequence[Segment]) -> str:
    rows, size = sum(s.live_rows for s in segments), sum(s.bytes for s in segments)
    return terminal.totals_text(Totals(len(segments), rows, size))


def _show_json(
    opened: Table, snapshot: Snapshot, commit: Commit, unpacked: Commit, void: dict[str, str]
) -> dict[str, Any]:
    header = msgspec.to_builtins(commit.header)
    layout = msgspec.to_builtins(snapshot.layout)
    if "keyed" in layout:
        layout["keyed"]["key_columns"] = layout["keyed"].pop("key")
    apps = msgspec.to_builtins(snapshot.meta.apps)
    transactions = [
        {
            "id": t.id,
            "operation": t.operation,
            "writer": t.writer,
            "read_version": t.read_version,
            "app": msgspec.to_builtins(t.app),
            "actions": _actions(t),
            "merges": [msgspec.to_builtins(a) for a in t.actions if isinstance(a, Merge)],
            "advances": [msgspec.to_builtins(a) for a in t.actions if isinstance(a, Advance)],
            "info": t.info,
            "void_reason": void.get(t.id),
        }
        for t in unpacked.transactions
    ]
    return {
        **header,
        "table": opened.uri,
        "table_id": commit.header.table,
        "time": terminal.iso(snapshot.timestamp),
        "commit": snapshot.commit_hash,
        "transaction_list": transactions,
        "layout": layout,
        "columns": columns_json(snapshot),
        "checks": snapshot.checks,
        "properties": dict(snapshot.properties),
        "apps": {n: mark | {"time": terminal.iso(mark["time"])} for n, mark in apps.items()},
        "origins": msgspec.to_builtins(origins_of(snapshot.meta)),
    }


def _show_commit(snapshot: Snapshot, commit: Commit, size: int) -> None:
    header, changes = commit.header, commit.header.changes
    start = "none yet" if header.keyframe is None else f"version {header.keyframe}"
    delta = snapshot.delta
    terminal.facts(
        [
            ("version", snapshot.version),
            ("time", terminal.time_text(snapshot.timestamp)),
            ("table", header.table),
            ("commit", f"{keys.commit_key(snapshot.version)}  {size_text(size)}"),
            ("sha256", snapshot.commit_hash),
            ("key frame", f"{start}; since then {_changed(len(delta.adds), len(delta.drops))}"),
            ("totals", terminal.totals_text(header.totals)),
            ("changes", _changed(changes.adds, changes.drops, changes.vectors or 0)),
            ("rows", f"{changes.rows:+,}"),
            ("bytes", f"{changes.bytes:+,}"),
        ]
    )


def _advance_text(advance: Advance) -> str:
    since = "none" if advance.old is None else f"{advance.old}"
    return f"{advance.app}, sequence {advance.new} (before: {since})"


def _show_transaction(transaction: Transaction, void: str | None) -> None:
    app = transaction.app
    terminal.say()
    terminal.facts(
        [
            ("transaction", transaction.id),
            ("operation", transaction.operation),
            ("writer", transaction.writer),
            ("read version", transaction.read_version),
            ("app", f"{app.id}, sequence {app.seq}" if app else None),
            ("actions", ", ".join(f"{n:,} {kind}" for kind, n in _actions(transaction).items())),
            *(("merge", _merge_text(a)) for a in transaction.actions if isinstance(a, Merge)),
            *(("app", _advance_text(a)) for a in transaction.actions if isinstance(a, Advance)),
            *((f"info {name}", value) for name, value in transaction.info.items()),
            ("void", void),
        ]
    )


def _show_state(snapshot: Snapshot) -> None:
    layout = snapshot.layout
    terminal.say()
    terminal.facts(
        [
            ("time column", layout.time_column),
            ("time", _cut_text(snapshot)),
            ("key", _key_text(layout)),
            ("ordered by", ", ".join(layout.order_by) or None),
            *((f"property {name}", value) for name, value in snapshot.properties.items()),
        ]
    )
    origins = origins_of(snapshot.meta)
    if origins:
        terminal.say()
        terminal.table(
            ("merged from", "up to version", "by version"),
            ((name[:16], mark.version, mark.token) for name, mark in origins.items()),
        )
    terminal.say()
    terminal.table(
        ("column", "type", "nullable"),
        (
            (column.name, type_text(column.type), "" if column.nullable else "no")
            for column in snapshot.stored_schema.columns
        ),
    )
    list_checks(snapshot)


def _key_text(layout: NamedLayout) -> str | None:
    keyed = keyed_of(layout)
    if keyed is None:
        return None
    split = f", split {count_text(splits_of(keyed), 'time')}" if splits_of(keyed) else ""
    return f"{', '.join(keyed.key)}, in {keyed.buckets:,} buckets{split}"


def _merge_text(merge: Merge) -> str:
    after = splits_of(merge)
    numbered = f" (as numbered after {count_text(after, 'split')})" if after else ""
    return (
        f"buckets {merge.first} to {merge.last}{numbered} of chunk {merge.chunk}, "
        f"versions {merge.low} to {merge.high}: {count_text(merge.rows, 'row')} of "
        f"{count_text(len(merge.inputs), 'segment')}, {merge.superseded:,} superseded"
    )


def _changed(adds: int, drops: int, deletes: int = 0) -> str:
    more = f", rows of {deletes:,} deleted" if deletes else ""
    return f"{count_text(adds, 'segment')} added, {drops:,} dropped{more}"


def _actions(transaction: Transaction) -> dict[str, int]:
    kinds = (str(type(action).__struct_config__.tag) for action in transaction.actions)
    return dict(Counter(kinds))
