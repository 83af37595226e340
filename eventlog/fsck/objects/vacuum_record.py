"""The check of the last vacuum's record, which the next vacuum relies on.

The record names the dropped segments that a vacuum left for the next one (FORMAT.md R12.9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from msgspec import UNSET

from eventlog.display import command
from eventlog.errors import Corrupt, KeyNotFound, NotFound, UnsupportedFormat
from eventlog.format import keys
from eventlog.fsck.audit import Audit
from eventlog.fsck.findings import Findings
from eventlog.log.diff import Gone
from eventlog.log.log import Log
from eventlog.model.actions import Drop
from eventlog.model.entries import Segment, Sweep
from eventlog.model.records import Meta
from eventlog.recovery import garbage
from eventlog.recovery.garbage import Dropped
from eventlog.store.location import place_of
from eventlog.store.port import ObjectStore
from eventlog.table.branching.keeping import vector_objects


class Waiting:
    """The record of the last vacuum, and the versions whose drops wait for the next one.

    Args:
        rows: the record, by key.
        until: the version that it came up to: the next vacuum reads later drops from the log.
        horizon: its horizon: segments that were dropped at or below it need not wait.
    """

    def __init__(self, rows: Mapping[str, Dropped], until: int, horizon: int) -> None:
        self._rows = dict(rows)
        self._until, self._horizon = until, horizon
        self._dropped: dict[str, int] = {}  # by key, the last version
        self._missed: dict[str, int] = {}  # by key, of those that the record lacks

    def note(self, gone: Gone, new: Iterable[Segment], live: Mapping[str, Segment]) -> None:
        """Note what a version dropped. Versions come in order.

        Args:
            gone: what it dropped.
            new: the entries that it made live, or gave vectors.
            live: all live segments afterwards, by id.
        """
        version = gone.version
        if version > self._until:
            return
        for key in gone.objects():
            if key in self._rows:
                self._dropped[key] = version
            elif version > self._horizon:
                self._missed[key] = version
        for segment in new if self._missed else ():
            for key in keys.keys_of(segment):
                self._missed.pop(key, None)
        if version == self._until and any(map(keys.parse_vectors_key, self._missed)):
            for segment in live.values():  # vectors of other segments are in the same objects
                for key in keys.keys_of(segment)[1:]:
                    self._missed.pop(key, None)

    def lacks(self, key: str) -> int | None:
        """Return the version that dropped a segment which the record should have, and lacks."""
        return self._missed.get(key)

    def too_early(self, horizon: int) -> Iterator[tuple[Dropped, int]]:
        """Yield the rows with an earlier drop than the last, and the version of that (R12.9).

        Args:
            horizon: of the newest version: segments that were dropped at or below it are garbage in
                any case.
        """
        for key, version in self._dropped.items():
            row = self._rows[key]
            if version > max(row.version, horizon):
                yield row, version


def waiting_of(store: ObjectStore, head: int) -> Waiting | None:
    """Return the record of the last vacuum, if the next one of this place uses it."""
    log = Log(store)
    with suppress(Corrupt, NotFound, UnsupportedFormat):  # reported by the walk, or later
        last = log.snapshot(head).meta.swept
        if last is not None and last.place in (UNSET, place_of(store)):
            rows: Mapping[str, Dropped] = {}
            if last.pending is not None:
                body = log.spill_bytes(last.pending)
                rows = garbage.from_object(body, last.pending.drops, last.version)
            return Waiting(rows, last.version, last.horizon)
    return None


class RecordCheck:
    """The check of the record, beside a listing of the objects.

    Args:
        log: the log.
        audit: the fold of the log, at the newest version.
        waiting: the entries that the record should have.
        left_out: whether segments that a version dropped may have come later, from a backfill.
        findings: receives the problems.
        head: the newest version.
    """

    def __init__(
        self,
        log: Log,
        audit: Audit,
        waiting: Waiting,
        left_out: Callable[[int], bool],
        findings: Findings,
        *,
        head: int,
    ) -> None:
        self._log, self._audit, self._waiting = log, audit, waiting
        self._left_out, self._findings = left_out, findings
        self._head = head
        self._seen = False  # whether the record is among the objects

    def see(self, key: str) -> None:
        """Note that there is an object under a key."""
        self._seen = self._seen or key == self._pending()

    def look_for(self, key: str) -> None:
        """Report a segment that the record should have, and lacks."""
        version = self._waiting.lacks(key)
        if version is not None:
            self.report(
                f"the last vacuum's record lacks this segment, which version {version} dropped: "
                "the next vacuum would take it for an abandoned upload",
                key,
                version,
            )

    def check(self) -> None:
        """Report a record that is missing, or that the next vacuum cannot use."""
        key = self._pending()
        if key is None:
            return
        if not self._seen and not self._is_inherited(key):
            message = "the last vacuum's record is missing: the next vacuum starts without it"
            self._findings.add("warning", message, key, self._head)
        self._look_at_record(key)

    def report(self, problem: str, key: str, version: int) -> None:
        """Report a record that lacks a segment, unless a backfill brought that after the record."""
        again = command("vacuum", self._log.store.uri, "--full", "--run")
        if self._left_out(version):
            message = (
                "the last vacuum's record may be older than the backfill that brought this "
                f"segment, and then only {again} deletes it when it is due"
            )
            self._findings.add("warning", message, key, version)
        else:
            self._findings.add("error", f"{problem}; {again} replaces the record", key, version)

    def _look_at_record(self, key: str) -> None:
        """Report a record of the last vacuum that the next one cannot use."""
        last, log = self._audit.meta.swept, self._log
        if not self._seen or last is None or last.pending is None:
            return
        try:
            garbage.from_object(log.spill_bytes(last.pending), last.pending.drops, last.version)
        except Corrupt as error:
            message = (
                "the last vacuum's record is damaged, and the next vacuum starts without it: "
                f"{error.message}. Remove this object by hand, so that a vacuum can store it again"
            )
            self._findings.add("warning", message, key, self._head)
        for row, version in self._waiting.too_early(self._audit.meta.horizon):
            if not row.version:  # no vacuum relies on that
                message = (
                    "the last vacuum's record does not name the version that dropped this segment, "
                    f"as where the commit of version {version} was missing then: the next vacuum "
                    "looks for it in the log"
                )
                self._findings.add("warning", message, row.key, version)
                continue
            message = (
                f"the last vacuum's record has this segment dropped in version {row.version}, but "
                f"it was dropped in version {version}: a vacuum that relies on it may delete "
                "segments of later versions; "
                f"{command('vacuum', self._log.store.uri, '--full', '--run')} replaces the record"
            )
            self._findings.add("error", message, row.key, version)

    def _pending(self) -> str | None:
        swept = self._audit.meta.swept
        return keys.frame_key(swept.pending.sha256) if swept and swept.pending else None

    def _is_inherited(self, key: str) -> bool:
        """Return whether a branch has an object under `_frames/` from its parent."""
        if not self._log.store.forks:
            return False
        try:
            self._log.store.get(key, length=1)
        except KeyNotFound:
            return False
        return True


def lacking(held: Mapping[str, Segment], at: Mapping[str, int], meta: Meta, log: Log) -> list[str]:
    """Return the held keys that the last vacuum's record lacks, so the next one would delete them.

    Nothing, where the record is that of another place: the next vacuum does not use it.

    Args:
        held: the held segments, by key.
        at: for each a version that has it live: a record that has it dropped there is wrong.
        meta: the small state at the head.
        log: the log.

    Raises:
        Corrupt: the version of the record cannot be resolved.
        NotFound: likewise.
    """
    last, waiting = _record(meta, log)
    if last is None:
        return []
    # The next vacuum reads later adds and drops from the commits.
    older = {
        k: s
        for k, s in held.items()
        if s.version <= last.version and not (k in waiting and at[k] < waiting[k].version)
    }
    live = log.snapshot(last.version).live([Drop(s.id, s.chunk, "") for s in older.values()])
    return [key for key, segment in older.items() if segment.id not in live]


def lacking_vectors(at: Mapping[str, int], meta: Meta, log: Log) -> list[str]:
    """Return the held keys of vectors that the last vacuum's record lacks. See `lacking`.

    Args:
        at: for each key a version that needs it.
        meta: the small state at the head.
        log: the log.

    Raises:
        Corrupt: the version of the record cannot be resolved.
        NotFound: likewise.
    """
    last, waiting = _record(meta, log)
    if last is None:
        return []
    # against held-vectors-missing-in-the-record-not-seen
    older = [
        key
        for key, version in at.items()
        if version <= last.version and not (key in waiting and version < waiting[key].version)
    ]
    needed = vector_objects(log.snapshot(last.version)) if older else {}
    return [key for key in older if garbage.object_id(key) not in needed]


def _record(meta: Meta, log: Log) -> tuple[Sweep | None, Mapping[str, Dropped]]:
    """Return the last vacuum's record and its rows; None if the next one does not use it."""
    last = meta.swept
    if last is None or last.place not in (UNSET, place_of(log.store)):
        return None, {}
    if last.pending is None:
        return last, {}
    try:
        body = log.spill_bytes(last.pending)
        return last, garbage.from_object(body, last.pending.drops, last.version)
    except Corrupt:
        return None, {}  # the next vacuum ignores the record, and looks at everything
