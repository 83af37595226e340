"""Reads the log of a table for its picture: every commit once, folded in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from eventlog.errors import Corrupt, InvalidInput, NotFound, UnsupportedFormat
from eventlog.format.codec import sha256
from eventlog.log import spills
from eventlog.log.log import Log
from eventlog.model.entries import Segment
from eventlog.model.records import Commit, Fork
from eventlog.session.branch_pins import PREFIX, pin_name
from eventlog.state import fold
from eventlog.store.branching.branch import BranchStore
from eventlog.store.parallel import HEADER_THREADS, each
from eventlog.store.port import ObjectStore
from eventlog.table.branching.names import forks
from eventlog.table.table import Table
from eventlog.view.picture import BranchHead, Picture, PictureBuilder

Advance: TypeAlias = "Callable[[int, int], None]"
_COMMITS = 64  # between two calls of `advance`


class HistoryReader:
    """Follows the log of a table from one version on, and pictures what it has read.

    Every commit is compared with its fold, as `eventlog fsck` does. The live entries are in memory.

    Args:
        table: the table.
        first: the first version of the picture; None: the first one that the table has.

    Raises:
        VersionNotFound: there is no such version.
        Corrupt: the commits do not add up.
    """

    def __init__(self, table: Table, first: int | None = None) -> None:
        self._log: Log = table.session.log
        head = table.refresh()
        wanted = self._oldest() if first is None else first
        if wanted > head.version:
            raise InvalidInput(f"version {wanted} is not there: the newest is {head.version}")
        self._builder = PictureBuilder(table.uri, wanted)
        self._live: dict[str, Segment] = {}
        self._state: fold.FullState | None = None
        self._next = wanted
        if wanted > 0:
            snapshot = self._log.snapshot(wanted)
            self._live.update((s.id, s) for s in snapshot.segments())
            self._state = fold.FullState(
                snapshot.header, snapshot.commit_hash, snapshot.meta, self._live
            )
            self._builder.begin(snapshot.header.time, snapshot.meta, self._live.values())
            self._next += 1

    def read(self, last: int, advance: Advance = lambda *_: None) -> Picture:
        """Read up to a version, and return the picture of all versions read.

        One GET a commit. For the heads of branches a LIST, and of each branch a LIST and at most
        six GETs; one that cannot be read has no head in the picture.

        Args:
            last: the last version, which the table has.
            advance: called with the number of commits read and their total.

        Raises:
            Corrupt: the commits do not add up.
            VersionNotFound: one of them is missing.
        """
        wanted = range(self._next, last + 1)
        for commit, body in each(self._log.read_below, wanted, count=HEADER_THREADS):
            self._take(spills.unpack(commit, self._log.spill), sha256(body))
            done = self._next - wanted.start
            if done % _COMMITS == 0 or done == len(wanted):
                advance(done, len(wanted))
        store = self._log.store
        fork = store.forks[0].version if store.forks else None
        return replace(self._builder.picture(), heads=_branch_heads(store), fork=fork)

    def _take(self, commit: Commit, commit_hash: str) -> None:
        effect = fold.effect_of(self._state, commit)
        self._builder.add(commit, effect)
        fold.apply(effect, self._live)
        self._state = fold.FullState(commit.header, commit_hash, effect.meta, self._live)
        self._next = commit.header.version + 1

    def _oldest(self) -> int:
        """Return the version after the newest gap of a copy; 0 of a table that has all versions."""
        return next((start.version for start in self._log.starts.all()), 0)


def history_picture(
    table: Table,
    first: int | None = None,
    last: int | None = None,
    advance: Advance = lambda *_: None,
) -> Picture:
    """Return the picture of a table's history.

    Args:
        table: the table.
        first: the first version; None: the first one that the table has.
        last: the last version; None: the newest.
        advance: called with the number of commits read and their total.

    Raises:
        InvalidInput: there are no such versions, or the last one is before the first.
        VersionNotFound: a copy lacks one of them.
        Corrupt: the commits do not add up.
    """
    head = table.refresh().version
    until = head if last is None else last
    if until > head or (first is not None and first > until):
        begin = "the first one" if first is None else str(first)
        raise InvalidInput(
            f"versions from {begin} to {until} are not there: the newest is {head}, and the first "
            "must not be after the last"
        )
    return HistoryReader(table, first).read(until, advance)


def _branch_heads(store: ObjectStore) -> tuple[BranchHead, ...]:
    found = each(lambda fork: _branch_head(store, fork), forks(store))
    return tuple(head for head in found if head is not None)


def _branch_head(store: ObjectStore, fork: Fork) -> BranchHead | None:
    name = pin_name(store, fork.name).removeprefix(PREFIX)
    log = Log(BranchStore(store, fork.name, fork))
    try:
        head = log.head()
        origin = log.hash_at(head, fork.version + 1) if head.version > fork.version else None
    except (Corrupt, NotFound, UnsupportedFormat):
        return None
    return BranchHead(name, fork.version, head.version, head.header.time, origin)
