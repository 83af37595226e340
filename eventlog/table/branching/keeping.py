"""The segments that a table keeps for branches under its root, even for those not in its log.

A pin in the log holds a branch (FORMAT.md R16.6). But the log may come from elsewhere: a table that
followed a copy has the pins of that copy, and branches of its own. So `_fork.json` is a hold, too:
a vacuum pins the fork again, or keeps the segments of those that the horizon has passed (R16.8).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import UnsetType

from eventlog import limits
from eventlog.display import command
from eventlog.errors import Corrupt
from eventlog.format import keys
from eventlog.format.frames import entry_columns
from eventlog.log.diff import dropped
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Action, Drop, SetPin, Unpin
from eventlog.model.entries import stored_bitmap
from eventlog.model.records import Fork, Meta, Pin
from eventlog.session.branch_pins import OWNER, is_passed, is_pinned, pin_name
from eventlog.store.port import ObjectStore
from eventlog.table.branching.making import pin_actions
from eventlog.table.branching.names import fork_of, problem_of, stored_names


def unheld(log: Log, head: Snapshot) -> list[Fork]:
    """Return the branches that no pin in the log of their parent holds.

    One LIST, and a LIST and a GET for each branch; a GET more for each of those.

    Args:
        log: of the parent.
        head: its head.

    Raises:
        Corrupt: a fork is damaged, or is of another log.
    """
    store, forks = log.store, []
    for name in stored_names(store):
        try:
            fork = fork_of(store, name)
            if fork is None or is_pinned(fork, head.meta.pins.get(pin_name(store, name))):
                continue
            problem = problem_of(log, fork)
        except Corrupt as error:
            raise _cannot_be_kept(store, name, error.message) from None
        if problem is not None:  # against fork-of-another-log-kept
            raise _cannot_be_kept(store, name, problem)
        forks.append(fork)
    return forks


def pins_again(store: ObjectStore, forks: Iterable[Fork], meta: Meta) -> list[Action]:
    """Return the actions that pin branches again, where the horizon has not passed them.

    Args:
        store: of the parent.
        forks: the branches that no pin holds.
        meta: the small state at the head of the parent.
    """
    actions, room = list[Action](), limits.PINS - len(meta.pins)
    for fork in forks:
        name = pin_name(store, fork.name)
        known = meta.pins.get(name)
        if is_passed(fork, meta) or (known is None and not room):
            continue
        room -= known is None
        actions += pin_actions(name, fork.held, known)
    return actions


def with_pins(meta: Meta, actions: Iterable[Action]) -> Meta:
    """Return the small state as these pins will leave it, with unknown tokens and times."""
    pins = dict(meta.pins)
    for action in actions:
        if isinstance(action, Unpin):
            del pins[action.name]
        elif isinstance(action, SetPin):
            pins[action.name] = Pin(action.version, OWNER, 0, 0)
    return msgspec.structs.replace(meta, pins=pins)


def vector_objects(snapshot: Snapshot) -> dict[str, int]:
    """Return the epochs, by id, of the objects of deletion vectors that a version needs.

    Leaves of entries without vectors are not read.

    Raises:
        Corrupt: neither a key frame nor the commits before it give the entries.
    """
    if isinstance(snapshot.totals.deleted, UnsetType):
        return {}
    entries = snapshot.entries(keep=lambda piece: not isinstance(piece.deleted, UnsetType))
    found = map(stored_bitmap, entry_columns.vectors(entries))
    return {stored.object: stored.epoch for stored in found if stored is not None}


class Kept:
    """The segments and vectors that branches read which the horizon of their parent has passed.

    Args:
        log: of the parent.
        forks: the branches that no pin holds.
        horizon: of the parent: segments live from there on are kept anyway.
    """

    def __init__(self, log: Log, forks: Iterable[Fork], horizon: int) -> None:
        self._log = log
        self._forks = [fork for fork in forks if fork.held < horizon]
        # Of each: the objects needed at the fork, and those that versions from `held` on dropped.
        self._live = [log.snapshot(fork.version) for fork in self._forks]
        self._dropped = [frozenset(self._dropped_before(fork)) for fork in self._forks]

    def of(self, candidates: Iterable[str]) -> dict[str, str]:
        """Return those keys of segments and vectors that a branch reads, each with one's name."""
        names = dict[str, str]()
        parsed = {key: p[1] for key in candidates if (p := keys.parse_data_key(key))}
        segments = [found for key in parsed if (found := keys.parse_segment_key(key))]
        drops = [Drop(segment, chunk, "") for _, chunk, segment in segments]
        for fork, snapshot, gone in zip(self._forks, self._live, self._dropped, strict=True):
            ids = gone | snapshot.live(drops).keys()
            if len(segments) < len(parsed):  # against vectors-of-branches-deleted
                ids |= vector_objects(snapshot).keys()
            names |= {key: fork.name for key, name in parsed.items() if name in ids}
        return names

    def _dropped_before(self, fork: Fork) -> Iterator[str]:
        # against dropped-between-held-and-fork
        between = dropped(self._log, fork.held, fork.version)
        for gone in between:
            yield from gone.ids()


def _cannot_be_kept(store: ObjectStore, name: str, problem: str) -> Corrupt:
    return Corrupt(
        f"what branch {name!r} reads is unknown: {problem}. Until this is mended, nothing is "
        "deleted: put `_fork.json`, or the parent's `_log/`, back from a copy; or give up the "
        f"branch and its commits: {command('branch', store.uri, name, '--delete')} removes it",
        table=store.uri,
        key=f"{keys.branch_root(name)}/{keys.FORK_KEY}",
    )
