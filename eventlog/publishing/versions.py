"""Versions as other formats describe them: which are published, and how each differs from the last.

Shared by all publishers. The difference of two versions comes from the transactions that took
effect, never from the name of an operation, which any writer may choose.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from msgspec import UnsetType

from eventlog.display import command
from eventlog.errors import InvalidInput, VersionCut, VersionNotReplicated
from eventlog.format import keys
from eventlog.format.frames.entry_columns import INLINE
from eventlog.inline import inline_objects
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Add, DeleteRows, Drop
from eventlog.model.entries import Segment
from eventlog.state.appends import keeps_rows
from eventlog.state.fold import Effect
from eventlog.store.parallel import HEADER_THREADS, each

MOST_VERSIONS = 10_000  # that are published at once without being asked for


@dataclass(frozen=True, slots=True)
class Exchange:
    """One object whose entry a version changes.

    Attributes:
        key: of the object.
        before: its entry in the version before; None: it was not live.
        after: its entry in the version; None: it is no longer live. A restore may change nothing in
            it but the version that added it.
        rows_changed: whether the rows of the table change with it; not in a compaction.
    """

    key: str
    before: Segment | None
    after: Segment | None
    rows_changed: bool


@dataclass(frozen=True, slots=True)
class VersionStep:
    """One version, and its difference from the version before.

    Attributes:
        after: the snapshot of the version.
        before: the snapshot of the version before; None if there is none, or this copy lacks it.
        exchanges: the objects whose entries it changes, by key. Of the first version that a copy
            has nothing is known.
    """

    after: Snapshot
    before: Snapshot | None
    exchanges: tuple[Exchange, ...] = ()


def exchanges(effect: Effect) -> tuple[Exchange, ...]:
    """Return the net changes of a commit, by key.

    Args:
        effect: of the commit.
    """
    before: dict[str, Segment] = {}
    after = {keys.key_of(segment): segment for segment in effect.adds}
    for old, new in effect.deletes:
        key = keys.key_of(old)
        if after.get(key) != old:
            before.setdefault(key, old)
        after[key] = new
    for segment in effect.drops:
        key = keys.key_of(segment)
        if after.get(key) == segment:
            del after[key]  # added, or shortened, in the same commit
        else:
            before.setdefault(key, segment)
    # against compaction-published-as-a-change
    changed = {
        action.id
        for transaction in effect.taken
        if not keeps_rows(transaction)
        for action in transaction.actions
        if isinstance(action, Add | Drop | DeleteRows)
    }
    return tuple(
        Exchange(key, before.get(key), after.get(key), _id_in(key) in changed)
        for key in sorted(before.keys() | after.keys())
    )


def version_steps(log: Log, first: int, last: int) -> Iterator[VersionStep]:
    """Yield the versions from `first` to `last`, in order. One GET a version, ahead.

    One GET more for the version before the first one. Key frames, and leaves of segments that are
    dropped, are read as they are needed.

    Raises:
        Corrupt: the log does not add up.
        VersionNotReplicated: this copy lacks one of the versions.
    """
    below: Snapshot | None = None
    if first:
        # A copy may begin here, or the log is cut here.
        with suppress(VersionNotReplicated, VersionCut):
            below = log.snapshot(first - 1)
    for commit, body in each(log.read_below, range(first, last + 1), count=HEADER_THREADS):
        if below is None:
            snapshot = log.resolve(commit, body)
        else:
            snapshot = log.following(below, commit, body)
        known = below is not None or not commit.header.version
        effect = log.effect_on(below, commit) if known else None
        inline_objects.remember_committed(commit, effect.adds if effect else ())
        yield VersionStep(snapshot, below, exchanges(effect) if effect else ())
        below = snapshot


def inline_entries(snapshot: Snapshot) -> pa.Table:
    """Return the entries of live segments whose bytes stand in commits.

    Engines read objects at their keys.
    """
    entries = snapshot.entries()
    if isinstance(snapshot.totals.inline, UnsetType):
        return entries.slice(0, 0)
    return entries.filter(entries.column(INLINE.name).is_valid())


def first_publishable(log: Log, head: Snapshot) -> int:
    """Return the oldest version that a first publication can begin at: of the horizon, or a copy's.

    One LIST.
    """
    starts = [start.version for start in log.starts.all() if start.version <= head.version]
    return max([head.meta.horizon, *starts])


def check_count(first: int, last: int, uri: str, format_name: str) -> None:
    """Refuse a first publication of very many versions that nobody asked for.

    Raises:
        InvalidInput: there are more than `MOST_VERSIONS`.
    """
    count = last - first + 1
    if count > MOST_VERSIONS:  # against ten-thousand-versions-unasked
        here = command("publish", format_name, uri, "--from", str(last))
        raise InvalidInput(
            f"{count:,} versions would be published, one object each: choose the first one, such "
            f"as the newest: {here}, or --from {first} for all of them",
            table=uri,
        )


def _id_in(key: str) -> str:
    return key.rpartition("/")[2].removesuffix(".parquet")
