"""The rows of each batch of a stream: offsets, limits, and the ends of a stream. No I/O.

Imports eventlog only, not pyspark. A stream first reads one snapshot, and then the appends of each
later version. So an offset is a version, and while the first snapshot is being read also a place in
its segments. That place is the key of a segment and not a number of segments, because option
`where` decides which segments there are, and may change between two runs of a query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eventlog.errors import (
    EventLogError,
    InvalidInput,
    TableNotFound,
    VersionNotFound,
    VersionVacuumed,
)
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Schema, Segment
from eventlog.state.appends import Appends

COMMIT_DIGITS = 16  # of a commit's hash, in an offset
BEGINNING = ""  # the place before the first segment of a snapshot
# Versions without new rows make no batch until there are this many: a restart should not have to
# read more of their commits again.
MOST_HELD = 100

_Key = tuple[int, int, int, int]
_COMMIT = re.compile(f"[0-9a-f]{{{COMMIT_DIGITS}}}")


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a stream has read.

    Attributes:
        table: the id of the table, or of its branch.
        version: the rows of all versions up to this one were read; -1: none. While the first
            snapshot is being read, its version.
        place: the last segment of the first snapshot that was read, `<chunk>/<version>/<partition>`
            of its entry, or `BEGINNING`; None: the whole version was read.
        commit: the first digits of the hash of the version's commit, where known: the log may be
            put back from an older copy, and get other commits under the same numbers.
    """

    table: str
    version: int
    place: str | None = None
    commit: str | None = field(default=None, compare=False)

    def record(self) -> dict[str, str | int]:
        """Return the form that Spark keeps in its checkpoint."""
        stored: dict[str, str | int] = {"table": self.table, "version": self.version}
        if self.place is not None:
            stored["snapshot"] = self.place
        if self.commit is not None:
            stored["commit"] = self.commit
        return stored


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one batch may read. A single version, or segment, is read whatever its size.

    Attributes:
        versions: the most versions with new rows; None: no limit.
        bytes: the most stored bytes; None: no limit.
    """

    versions: int | None = None
    bytes: int | None = None


UNLIMITED = Limits()


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules by which a stream ends.

    Attributes:
        uri: the table's root, for the errors.
        schema: the columns of the stream.
        skip_changes: pass over transactions that remove or bring back rows.
        fail_on_data_loss: end the stream at a version that was vacuumed; else go on at the horizon.
        read_changes: the stream reads all changes of rows, not only appended ones.
        forgets: merges of the table may forget tombstones, which brings rows back.
    """

    uri: str
    schema: Schema
    skip_changes: bool = False
    fail_on_data_loss: bool = True
    read_changes: bool = False
    forgets: bool = False

    def has_rows(self, version: Appends) -> bool:
        """Return whether the stream has rows of a version."""
        if self.read_changes and (version.change is not None or (self.forgets and version.rebased)):
            return True
        return bool(version.segments)

    def problem(self, version: Appends, horizon: int) -> EventLogError | None:
        """Return why the stream cannot pass a version, or None.

        Args:
            version: the appends of the version.
            horizon: the newest horizon known.
        """
        number = version.version
        if version.change is not None and not (self.skip_changes or self.read_changes):
            return InvalidInput(
                f"version {number} ({version.change}) removed rows or brought some back, and a "
                "stream only reads appended rows: set option skipChangeCommits=true to pass over "
                "such transactions, readChanges=true to read the changes of each version, or start "
                "with a new checkpoint to read the table from the beginning",
                table=self.uri,
                version=number,
            )
        if version.schema is not None and _is_wider(version.schema, self.schema):
            return InvalidInput(
                f"version {number} changed the table's columns: load the stream again "
                "(spark.readStream) and start the query with the same checkpoint; it goes on where "
                "it stopped, with the new columns",
                table=self.uri,
                version=number,
            )
        # The changes of a version are computed from the version before it.
        oldest = number - 1 if self.read_changes else number
        if self.has_rows(version) and oldest < horizon and self.fail_on_data_loss:
            return vacuumed(number, horizon, self.uri)
        return None


def parse_offset(record: Any, table: str, uri: str) -> Offset:
    """Return the offset that a checkpoint has.

    Args:
        record: what `Offset.record` returned, perhaps in another run.
        table: the id of the table.
        uri: the table's root, for the errors.

    Raises:
        InvalidInput: it is not an offset of this source.
        TableNotFound: it is one of another table.
    """
    version, place, commit = (record.get(name) for name in ("version", "snapshot", "commit"))
    known = _is_place(place) and _is_commit(commit)
    if type(version) is not int or version < -1 or not known:
        raise InvalidInput(
            f"the checkpoint has an offset of another source ({str(record)[:80]}): start with a "
            "new checkpoint"
        )
    if record.get("table") != table:
        raise TableNotFound(
            f"the checkpoint belongs to another table (id {record.get('table')}), and this one has "
            f"the id {table}: give the path of that table, or start with a new checkpoint",
            table=uri,
        )
    return Offset(table, version, place, commit)


def check_reached(offset: Offset, newest: int, uri: str) -> None:
    """Check that a table has the version up to which a stream has read it.

    Args:
        offset: how far the stream has read.
        newest: the newest version of the table.
        uri: the table's root, for the error.

    Raises:
        VersionNotFound: it has not. Later commits under the numbers of the missing versions would
            never be read.
    """
    if offset.version > newest:
        raise VersionNotFound(
            f"the stream has read up to version {offset.version}, and the newest version of the "
            f"table is {newest}: this is an older copy of the table, or the table was restored "
            "from one. Give the path of the table that was read, or start with a new checkpoint",
            table=uri,
            version=offset.version,
        )


def check_last_read(offset: Offset, found: str, uri: str) -> None:
    """Check that a table has the commit up to which a stream has read it.

    Args:
        offset: how far the stream has read.
        found: the hash of the commit that the table has there.
        uri: the table's root, for the error.

    Raises:
        VersionNotFound: it has another one. Its commits in place of the versions that were read
            would never be read.
    """
    # against stream-goes-on-in-another-log
    if offset.commit is not None and not found.startswith(offset.commit):
        raise VersionNotFound(
            f"the stream has read version {offset.version} (commit {offset.commit}), and the table "
            f"has another commit there ({found[:COMMIT_DIGITS]}): it was put back from an older "
            "copy, or a copy that was behind took over, and it was written to since. The stream "
            "would never read the commits in place of the versions that it has read. Start with a "
            "new checkpoint: with option startingVersion, the first version that was replaced, it "
            "reads what was written since; without it, the whole table",
            table=uri,
            version=offset.version,
        )


def end_in_snapshot(start: Offset, left: Sequence[Segment], limits: Limits) -> Offset:
    """Return where a batch ends that begins in the first snapshot: also in the first snapshot.

    So the rows of the batch depend on its end alone if nothing was read before: Spark does not keep
    the offset at which a query began.

    Args:
        start: where it begins.
        left: the segments of the snapshot after that, in scan order.
        limits: how much it may read.
    """
    size = 0
    for count, segment in enumerate(left):
        size += segment.bytes
        if count and limits.bytes is not None and size > limits.bytes:
            return replace(start, place=_place(left[count - 1]))
    return replace(start, place=None)


def end_of_versions(
    start: Offset,
    later: Iterable[Appends],
    limits: Limits,
    problem: Callable[[Appends], EventLogError | None],
    has_rows: Callable[[Appends], bool],
) -> Offset:
    """Return where a batch ends that begins after a version.

    Versions without new rows are passed over, and make no batch by themselves: then this is
    `start`, unless they are many.

    Args:
        start: where it begins.
        later: the appends of the versions after that, in order. No more are taken than are needed.
        limits: how much it may read.
        problem: returns why the stream cannot pass a version, or None.
        has_rows: returns whether the stream has rows of a version.

    Raises:
        EventLogError: the stream cannot pass the first version that has rows or a problem. A batch
            ends before a later one.
    """
    end, size, versions = start.version, 0, 0
    for version in later:
        error = problem(version)
        if error is not None:
            if versions == 0:
                raise error
            break
        if has_rows(version):
            size += sum(segment.bytes for segment in version.segments)
            over = limits.bytes is not None and size > limits.bytes
            if versions and (over or versions == limits.versions):
                break
            versions += 1
        end = version.version
    if versions == 0 and end - start.version < MOST_HELD:
        return start
    return Offset(start.table, end)


def after_place(in_order: Sequence[Segment], start: str, end: str | None) -> list[Segment]:
    """Return the segments of a snapshot after a place, up to another one.

    Args:
        in_order: segments in scan order.
        start: the place of the last segment that was read.
        end: the place of the last one to read; None: up to the last one.
    """
    first = _key_of_place(start)
    last = None if end is None else _key_of_place(end)
    return [
        segment
        for segment in in_order
        if first < _key(segment) and (last is None or _key(segment) <= last)
    ]


def vacuumed(version: int, horizon: int, uri: str) -> VersionVacuumed:
    """Return the error for rows that a stream has not read before they were vacuumed."""
    return VersionVacuumed(
        f"version {version} was vacuumed before the stream read it: only versions from {horizon} "
        "on can be read. Set option failOnDataLoss=false to go on there, without the earlier rows, "
        "or start with a new checkpoint to read the table from the beginning",
        table=uri,
        version=version,
    )


def _is_wider(schema: Schema, known: Schema) -> bool:
    """Return whether a schema has columns that a known one, perhaps a later one, does not have."""
    columns = {(column.id, column.name, str(column.type)) for column in schema.columns}
    return not columns <= {(c.id, c.name, str(c.type)) for c in known.columns}


def _place(segment: Segment) -> str:
    return f"{segment.chunk}/{segment.version}/{segment.partition}"


def _key(segment: Segment) -> _Key:
    chunk = parse_chunk(segment.chunk)
    return chunk.start, chunk.end, segment.version, segment.partition


def _key_of_place(place: str) -> tuple[int, ...]:
    if place == BEGINNING:
        return ()
    name, version, partition = place.split("/")
    chunk = parse_chunk(name)
    return chunk.start, chunk.end, int(version), int(partition)


def _is_commit(commit: object) -> bool:
    return commit is None or (isinstance(commit, str) and _COMMIT.fullmatch(commit) is not None)


def _is_place(place: object) -> bool:
    try:
        return place is None or (isinstance(place, str) and _key_of_place(place) is not None)
    except (InvalidInput, ValueError):
        return False
