"""The appends that wait for their group, and how far each app has come. No I/O, no thread, no lock.

The owner of a `Backlog` guards it by a lock, passes the time, and carries out what it decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import pyarrow as pa

from eventlog.errors import CommitConflict, EventLogError, InvalidInput
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import App, AppMark

# What an append holds beside its rows, most of it the future: measured, with CPython 3.11.
APPEND_BYTES = 2560


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """When a group is committed, and how much may wait.

    Attributes:
        rows: so many rows make a group due.
        size: so many bytes of rows make a group due.
        delay_s: a group is due so many seconds after its first append.
        buffer_bytes: bound on the bytes of all appends that are not committed yet.
    """

    rows: int
    size: int
    delay_s: float
    buffer_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class WaitingAppend:
    """One append that was taken and is not committed yet.

    Attributes:
        rows: an Arrow stream of the rows.
        count: the number of rows.
        head: the version to whose types they were brought.
        app: the app id and sequence, if the caller gave one.
        future: for the caller: the version, or why nothing was committed.
        at_s: when it was taken, by the clock's `elapsed_s`.
    """

    rows: pa.Buffer
    count: int
    head: Snapshot
    app: App | None
    future: Future[int]
    at_s: float

    @property
    def size(self) -> int:
        """The bytes that it holds."""
        return int(self.rows.size) + APPEND_BYTES


@dataclass(slots=True)
class AppProgress:
    """How far an app has come, as far as it is known.

    Attributes:
        last: the last sequence that is committed; None: there is none.
        version: the version that has it, or in which there was none.
        taken: the last sequence that was handed in and has not failed; None: there is none.
        failure: why a group with units of the app was not committed; None: none failed.
    """

    last: int | None
    version: int
    taken: int | None = None
    failure: EventLogError | None = None


@dataclass(slots=True)
class Backlog:
    """The appends that wait, in the order in which they came, and the group that is under way.

    Args:
        limits: see `GroupLimits`.
    """

    limits: GroupLimits
    waiting: list[WaitingAppend] = field(default_factory=list)
    group: Sequence[WaitingAppend] = ()
    apps: dict[str, AppProgress] = field(default_factory=dict)
    hurried: bool = False
    held_bytes: int = 0
    _rows: int = 0
    _bytes: int = 0

    def has_room(self, size: int) -> bool:
        """Return whether an append of so many bytes of rows may be added now."""
        return self.held_bytes + size + APPEND_BYTES <= self.limits.buffer_bytes

    def done(self, app: App | None) -> int | None:
        """Return the version that has a unit of work already; None if it is to be appended.

        Raises:
            CommitConflict: a group of this app failed, and nobody has asked since how far it came.
            InvalidInput: the sequence is not above the last one that was handed in.
        """
        if app is None:
            return None
        progress = self.apps[app.id]
        if progress.failure is not None:  # against hole-in-the-units-of-an-app
            raise CommitConflict(
                f"an earlier append of app {app.id!r} was not committed, so later ones are not "
                f"taken: {progress.failure.message}. Ask `committed` how far the app has come, and "
                "go on after that"
            )
        if progress.last is not None and app.seq <= progress.last:
            return progress.version
        if progress.taken is not None and app.seq <= progress.taken:
            raise InvalidInput(
                f"sequence {app.seq} of app {app.id!r} was handed in after {progress.taken}, which "
                "is not committed yet: sequences must grow"
            )
        return None

    def add(self, one: WaitingAppend) -> None:
        """Add an append that `done` and `has_room` have let pass."""
        self.waiting.append(one)
        self.held_bytes += one.size
        self._rows += one.count
        self._bytes += one.rows.size
        if one.app is not None:
            self.apps[one.app.id].taken = one.app.seq

    def due_in(self, now_s: float) -> float | None:
        """Return the seconds until a group is due: 0 if it is, None while nothing waits.

        Args:
            now_s: the clock's `elapsed_s`.
        """
        if not self.waiting:
            return None
        full = self._rows >= self.limits.rows or self._bytes >= self.limits.size
        if full or self.hurried:
            return 0.0
        return max(0.0, self.waiting[0].at_s + self.limits.delay_s - now_s)

    def take(self) -> Sequence[WaitingAppend]:
        """Make the appends that wait the group under way, as far as they have the same types."""
        first = self.waiting[0].head
        count = 0
        while count < len(self.waiting) and _same_types(self.waiting[count].head, first):
            count += 1
        self.group, self.waiting = self.waiting[:count], self.waiting[count:]
        self._count_waiting()
        self.hurried = self.hurried and bool(self.waiting)
        return self.group

    def last_of(self, group: Sequence[WaitingAppend]) -> dict[str, int | None]:
        """Return the last committed sequence of each app of a group, as far as it is known."""
        named = [one.app.id for one in group if one.app is not None]
        return {app: self.apps[app].last for app in named}

    def committed(self, group: Sequence[WaitingAppend], version: int) -> None:
        """Note that appends of the group under way are committed in a version."""
        for one in group:
            if one.app is not None:
                progress = self.apps[one.app.id]
                progress.last, progress.version = one.app.seq, version
        self._leave(group)

    def failed(
        self, group: Sequence[WaitingAppend], error: EventLogError
    ) -> Sequence[WaitingAppend]:
        """Note that appends were not committed; return them with all that therefore fail, too.

        Later units of an app do not go without the earlier ones: its mark would count these as
        done.

        Args:
            group: appends of the group under way.
            error: why.
        """
        apps = {one.app.id for one in group if one.app is not None}
        for app in apps:
            self.apps[app].failure, self.apps[app].taken = error, None
        chosen = {id(one) for one in group}
        after = [
            one
            for one in (*self.group, *self.waiting)
            if one.app is not None and one.app.id in apps and id(one) not in chosen
        ]
        lost = [*group, *after]
        self._leave(lost)
        return lost

    def recall(self, app: str, last: int | None, version: int) -> None:
        """Start an app from what was just read of it, unless appends of it are not committed yet.

        Args:
            app: the app id.
            last: its last sequence; None: it has none.
            version: the version that was read.
        """
        if any(one.app is not None and one.app.id == app for one in (*self.group, *self.waiting)):
            return
        known = self.apps.get(app)
        if known is None or known.failure is not None or known.version <= version:
            self.apps[app] = AppProgress(last, version)

    def hurry(self) -> list[Future[int]]:
        """Make all that waits due; return the futures of all that is not committed, in order."""
        self.hurried = bool(self.waiting)
        return self.outstanding()

    def outstanding(self) -> list[Future[int]]:
        """Return the futures of all appends that are not committed yet, in their order."""
        return [one.future for one in (*self.group, *self.waiting)]

    def _leave(self, gone: Sequence[WaitingAppend]) -> None:
        names = {id(one) for one in gone}
        self.group = [one for one in self.group if id(one) not in names]
        self.waiting = [one for one in self.waiting if id(one) not in names]
        self.held_bytes = sum(one.size for one in (*self.group, *self.waiting))
        self._count_waiting()

    def _count_waiting(self) -> None:
        self._rows = sum(one.count for one in self.waiting)
        self._bytes = sum(one.rows.size for one in self.waiting)


def apps_gone_on(marks: Mapping[str, AppMark], since: Mapping[str, int | None]) -> set[str]:
    """Return the apps that are no longer at the sequence from which a group goes on.

    Args:
        marks: those of the newest version.
        since: the last sequence of each app, as the group knows it.
    """
    now = {app: marks[app].seq if app in marks else None for app in since}
    return {app for app, seq in since.items() if now[app] != seq}


def _same_types(one: Snapshot, other: Snapshot) -> bool:
    return one is other or (one.stored_schema == other.stored_schema and one.layout == other.layout)
