"""`Inspector`: what a log records, as Arrow tables; `Table.inspect` makes one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from operator import attrgetter
from typing import Any, TypeAlias

import pyarrow as pa
from msgspec import UnsetType

from eventlog.arguments import whole
from eventlog.errors import VersionNotReplicated
from eventlog.format import keys
from eventlog.log import history
from eventlog.log.snapshot import Snapshot
from eventlog.model.chunks import MAX_MS, MIN_MS, parse_chunk
from eventlog.model.entries import Segment
from eventlog.model.records import Commit, Transaction, last_unit_of
from eventlog.query.moments import Moment
from eventlog.session.session import Session
from eventlog.session.tags import VersionOrName, tag_versions, version_number
from eventlog.state.small.holds import check_kept
from eventlog.state.small.timing import effective_time
from eventlog.store.branching.roots import root_of
from eventlog.store.parallel import each
from eventlog.store.port import ObjectStore
from eventlog.table.branching import names
from eventlog.table.inspection import columns
from eventlog.table.inspection.choosing import taken_transactions

# Returns a version by its number or name, or by a time.
Resolve: TypeAlias = "Callable[[VersionOrName | None, Moment | None], Snapshot]"
_plain_values = attrgetter(*(name for name, _ in columns.PLAIN), "live_rows")


class Inspector:
    """What the log of a table records, each as an Arrow table.

    Query these with DuckDB or Polars, or with `eventlog sql URI "SELECT … FROM history"`. Names and
    types of the columns do not change; later releases may add some at the end. Times are in ms UTC.
    """

    def __init__(self, session: Session, resolve: Resolve) -> None:
        self._session = session
        self._resolve = resolve

    def history(self, start: VersionOrName | None = None, limit: int | None = None) -> pa.Table:
        """Return the versions, newest first: the columns of `HistoryEntry`.

        Columns: `version`, `time`, `operation` and `writer` of its first transaction that took
        effect, `adds` and `drops` (numbers of segments), `rows` and `bytes` (net), `transactions`,
        `deletes` (the number of segments that stay live, and of which rows were deleted; one that a
        merge, a restore or a compaction adds is not among them, but among the `adds`).

        Args:
            start: the version to start at; the newest if None.
            limit: the maximum number of versions; all if None.

        Raises:
            VersionNotFound: there is no version `start`.
        """
        first, most = self._range(start, limit)
        clock = self._session.head().meta.clock
        entries = history.history(self._session.log, first, most, clock)
        return pa.Table.from_pylist([asdict(entry) for entry in entries], columns.HISTORY)

    def transactions(
        self, start: VersionOrName | None = None, limit: int | None = None
    ) -> pa.Table:
        """Return the transactions of the versions, newest version first. One GET per version.

        Columns: `version`, `time`, `id`, `operation`, `writer`, `read_version` (-1 of a creation),
        `app_id` and `app_seq` of its unit of work, or of the last one of a group of one app, `void`
        (why it took no effect; null if it did), `info` (a map).

        Args:
            start: the version to start at; the newest if None.
            limit: the maximum number of versions; all if None.

        Raises:
            Corrupt: the log does not add up.
            VersionNotFound: there is no version `start`.
        """
        first, most = self._range(start, limit)
        last = -1 if most is None else max(-1, first - most)
        commits = each(self._session.log.read_below, range(first, last, -1))
        rows: list[dict[str, Any]] = []
        try:
            for commit, _ in commits:
                rows += self._transactions_of(commit)
        except VersionNotReplicated:  # a copy that lacks old versions ends where it starts
            if not rows:
                raise
        return pa.Table.from_pylist(rows, columns.TRANSACTIONS)

    def segments(
        self, version: VersionOrName | None = None, timestamp: Moment | None = None
    ) -> pa.Table:
        """Return the live segments of a version, in the order of `Snapshot.segments`.

        Columns: `id`, `chunk`, `epoch`, `version` (of the commit that added it), `partition`,
        `rows`, `bytes`, `checksum`, `schema`, `live_rows` (without deleted rows), `slice` (in a
        keyed table: `kind`, buckets `first` to `last`, versions `low` to `high`, `level`,
        `ordinal`, `splits`), `uri` of the file.

        Args:
            version: the version, or the name of a tag; the newest if None.
            timestamp: the time whose version to show.

        Raises:
            VersionNotFound: there is no such version.
            VersionVacuumed: it is below the horizon.
        """
        rows = [segment_row(s, self._session.store) for s in self._live(version, timestamp)]
        return pa.Table.from_pylist(
            [dict(zip(columns.SEGMENTS.names, row, strict=True)) for row in rows], columns.SEGMENTS
        )

    def chunks(
        self, version: VersionOrName | None = None, timestamp: Moment | None = None
    ) -> pa.Table:
        """Return the time chunks of a version that have segments, by name.

        Columns: `chunk`, `start` and `end` (null of the chunk `all`), `segments`, `rows`,
        `live_rows`, `bytes`, `version` (of the newest commit that added one of the segments).

        Args:
            version: as for `segments`.
            timestamp: as for `segments`.

        Raises:
            VersionNotFound: there is no such version.
            VersionVacuumed: it is below the horizon.
        """
        chunks: dict[str, list[Segment]] = {}
        for segment in self._live(version, timestamp):
            chunks.setdefault(segment.chunk, []).append(segment)
        rows = [
            {
                "chunk": name,
                "start": _bound(parse_chunk(name).start),
                "end": _bound(parse_chunk(name).end),
                "segments": len(chunks[name]),
                **{
                    field: sum(getattr(segment, field) for segment in chunks[name])
                    for field in ("rows", "live_rows", "bytes")
                },
                "version": max(segment.version for segment in chunks[name]),
            }
            for name in sorted(chunks)
        ]
        return pa.Table.from_pylist(rows, columns.CHUNKS)

    def claims(self) -> pa.Table:
        """Return the current claims, by id.

        Columns: `id`, `kind`, `start` and `end` (null where the claim is not bounded), `segments`
        (ids; empty for the whole range), `priority`, `group`, `owner`, `token` and `renewed` (the
        versions that accepted and last renewed it).
        """
        rows = [
            {
                **{field: getattr(claim, field) for field in columns.CLAIMS.names[4:]},
                "id": claim_id,
                "kind": claim.kind,
                "start": _bound(claim.start),
                "end": _bound(claim.end),
            }
            for claim_id, claim in sorted(self._session.refresh().meta.claims.items())
        ]
        return pa.Table.from_pylist(rows, columns.CLAIMS)

    def pins(self) -> pa.Table:
        """Return the pins, by name, with tags and the pins of branches among them.

        Columns: `name`, `version`, `owner`, `time` and `token` (of the commit that set it).
        """
        return self._named("pins", columns.PINS)

    def tags(self) -> pa.Table:
        """Return the tags, by name. Columns: `name`, `version`, `time` of the commit that set it.

        `pins` lists them, too.
        """
        pins = self.pins()
        tags = tag_versions(self._session.head().meta)
        chosen = [row for row in pins.to_pylist() if row["name"] in tags]
        return pa.Table.from_pylist(chosen, columns.TAGS)

    def replicas(self) -> pa.Table:
        """Return the copies that the log names, by name.

        Columns: `name`, `acked` (the last version that it has acknowledged), `owner`, `token` (the
        version that attached it).
        """
        return self._named("replicas", columns.REPLICAS)

    def branches(self) -> pa.Table:
        """Return the branches: the columns of `Branch`. Three or four requests for each."""
        rows = [asdict(branch) for branch in names.branches(self._session)]
        return pa.Table.from_pylist(rows, columns.BRANCHES)

    def _range(self, start: VersionOrName | None, limit: int | None) -> tuple[int, int | None]:
        """Return the version to start at, and the most versions to list."""
        most = None if limit is None else whole(limit, "limit")
        if start is None:
            return self._session.refresh().version, most
        first = whole(version_number(self._session, start, "start"), "start", high=keys.MAX_VERSION)
        self._session.head()
        return first, most

    def _live(self, version: VersionOrName | None, timestamp: Moment | None) -> Iterable[Segment]:
        snapshot = self._resolve(version, timestamp)
        newest = max(self._session.head(), snapshot, key=lambda known: known.version)
        check_kept(newest.meta, newest.version, snapshot.version, self._session.uri)
        return snapshot.segments()

    def _named(self, field: str, schema: pa.Schema) -> pa.Table:
        """Return the entries of a map of the small state, by name."""
        held: Mapping[str, Any] = getattr(self._session.refresh().meta, field)
        rows = [
            {"name": name, **{one: getattr(entry, one) for one in schema.names[1:]}}
            for name, entry in sorted(held.items())
        ]
        return pa.Table.from_pylist(rows, schema)

    def _transactions_of(self, commit: Commit) -> Iterator[dict[str, Any]]:
        header = commit.header
        time_ms = effective_time(self._session.head().meta.clock, header.version, header.time)
        for transaction, why in taken_transactions(self._session.log, commit):
            yield _transaction_row(transaction, header.version, time_ms, why)


def segment_row(segment: Segment, store: ObjectStore) -> tuple[Any, ...]:
    """Return a segment as a row of `columns.SEGMENTS`.

    Args:
        segment: the segment.
        store: of its table.
    """
    place = None
    if not isinstance(segment.slice, UnsetType):
        values = (getattr(segment.slice, field.name) for field in columns.SLICE)
        place = tuple(None if isinstance(one, UnsetType) else one for one in values)
    key = keys.key_of(segment)
    inline = None if isinstance(segment.inline, UnsetType) else segment.inline
    return (*_plain_values(segment), place, f"{root_of(store, key)}/{key}", inline)


def _transaction_row(
    transaction: Transaction, version: int, time_ms: int, void: str | None
) -> dict[str, Any]:
    app = last_unit_of(transaction)
    return {
        "version": version,
        "time": time_ms,
        "id": transaction.id,
        "operation": transaction.operation,
        "writer": transaction.writer,
        "read_version": transaction.read_version,
        "app_id": None if app is None else app.id,
        "app_seq": None if app is None else app.seq,
        "void": void,
        "info": transaction.info,
    }


def _bound(time_ms: int) -> int | None:
    """Return the end of a range of time; None where it has none."""
    return None if time_ms in {MIN_MS, MAX_MS} else time_ms
