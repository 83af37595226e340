"""The branches of a table, by their pins in the parent and their objects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from eventlog.display import command
from eventlog.errors import (
    Corrupt,
    KeyNotFound,
    UnsupportedFormat,
    VersionNotFound,
)
from eventlog.format import codec, keys
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import Fork, Meta
from eventlog.session.branch_pins import branch_of, is_passed, is_pinned, pin_name
from eventlog.session.session import Session
from eventlog.store.branching.branch import BranchStore
from eventlog.store.port import ObjectStore

_AFTER_SLASH = "0"  # the character after `/`


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch of a table, or the remains that an interrupted program left of one.

    Attributes:
        name: its name.
        fork: the last version that it has in common with its parent; None without `_fork.json`,
            as in a copy of its parent, which has its pin only, and where it cannot be read.
        head: its newest version; None without `_fork.json`, and where that cannot be read.
        held: whether the parent keeps the segments that the branch reads from vacuum: by its pin,
            or because the horizon has passed the branch while the parent followed a copy. Without
            either the next vacuum sets the pin again.
        pin_only: whether nothing is there but the pin. A copy has the pins of its source, and none
            of its branches; else the making of a branch was interrupted, or its deletion.
        damage: what is wrong with its `_fork.json` or with its log; None if nothing was noticed.
    """

    name: str
    fork: int | None
    head: int | None
    held: bool
    pin_only: bool = False
    damage: str | None = None

    @property
    def unfinished(self) -> bool:
        """Whether it cannot be opened: its making or its deletion was interrupted."""
        return self.fork is None and self.damage is None


def pinned_names(store: ObjectStore, meta: Meta) -> set[str]:
    """Return the names of the branches that the parent's pins hold, finished or not."""
    names = (branch_of(store, name) for name in meta.pins)
    return {name for name in names if name is not None}


def stored_names(store: ObjectStore, root: str = "") -> Iterator[str]:
    """Yield the names of the branches that have objects. One LIST for each, and one.

    Args:
        store: of the parent.
        root: of a branch of it, with a trailing slash, whose branches to list instead.
    """
    folders = _folders(store, f"{root}{keys.BRANCHES_PREFIX}")
    return (name for name in folders if keys.is_branch(name))


def earlier_ids(store: ObjectStore, fork: Fork) -> Iterator[str]:
    """Yield the ids below which branches of the same name have left objects. One LIST for each.

    Args:
        store: of the parent.
        fork: of the branch that is there.
    """
    folders = _folders(store, f"{keys.branch_root(fork.name)}/")
    return (folder for folder in folders if folder != fork.id)


def _folders(store: ObjectStore, prefix: str) -> Iterator[str]:
    """Yield the parts of keys between a prefix and the next slash."""
    after = ""
    while row := next(store.list(prefix, after=after, limit=1), None):
        name, slash, _ = row.key.removeprefix(prefix).partition("/")
        if slash:
            yield name
        after = f"{prefix}{name}{_AFTER_SLASH}" if slash else row.key


def fork_of(store: ObjectStore, name: str) -> Fork | None:
    """Return where a branch forks, or None if it has no `_fork.json`. One GET.

    Raises:
        Corrupt: it is damaged.
        UnsupportedFormat: it is written for a newer reader.
    """
    key = f"{keys.branch_root(name)}/{keys.FORK_KEY}"
    try:
        return codec.decode_fork(store.get(key, length=codec.MAX_FORK_BYTES + 1), name)
    except KeyNotFound:
        return None
    except (Corrupt, UnsupportedFormat) as error:
        error.table, error.key = store.uri, key
        raise


def has_commits(store: ObjectStore, name: str) -> bool:
    """Return whether a commit is stored under the root of a branch, under whatever id."""
    root = keys.branch_root(name) + "/"
    below = (row.key.removeprefix(root).partition("/")[2] for row in store.list(root))
    return any(key.startswith(keys.LOG_PREFIX) for key in below)


def lost_fork(store: ObjectStore, name: str) -> str:
    """Return what to do about a branch that has commits and no `_fork.json`."""
    return (
        f"branch {name!r} has commits and no `_fork.json`: put that back from a copy if nobody has "
        "deleted the branch, or its rows are lost; else "
        f"{command('branch', store.uri, name, '--delete')} removes what is left of it"
    )


def forks_below(store: ObjectStore, place: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each `_fork.json` of a branch of a branch: the names on the way to it, and its key.

    So it finds branches even if those above them cannot be opened. Lists every object there.

    Args:
        store: of the parent.
        place: the root of a branch, or that and an id, without a trailing slash.
    """
    for row in store.list(f"{place}/"):
        names = keys.parse_fork_key(row.key)
        if names is not None and len(names) > 1:
            yield names, row.key


def forks(store: ObjectStore) -> list[Fork]:
    """Return where the branches of a table fork, without those whose fork cannot be read.

    One LIST, and a LIST and a GET for each.
    """
    readable = list[Fork]()
    for name in stored_names(store):
        with suppress(Corrupt, UnsupportedFormat):
            fork = fork_of(store, name)
            readable += [] if fork is None else [fork]
    return readable


def problem_of(log: Log, fork: Fork, *, chained: bool = False) -> str | None:
    """Return why a branch continues no version of a log (R16.4); None if it does. Two GETs.

    Args:
        log: of the parent.
        fork: of the branch.
        chained: the chain of the log was checked, so that `prev` of the next commit is the hash.
            Then two GETs of 2 KB are enough, except where the fork is the head.

    Raises:
        Corrupt: the commit from which it forks is damaged.
    """
    where = f"it forks from version {fork.version}"
    try:
        header = log.header(fork.version)
    except VersionNotFound:
        return f"{where}, which is not in this log"
    if header.table != fork.table:
        return f"{where} of another table (id {fork.table})"
    if _commit_hash(log, fork.version, chained=chained) != fork.commit:
        return f"{where} of another log: the commit here has another hash"
    return None


def _commit_hash(log: Log, version: int, *, chained: bool) -> str | None:
    if chained:
        with suppress(VersionNotFound):
            return log.header(version + 1).prev
    return codec.sha256(log.read_below(version)[1])


def branches(session: Session) -> list[Branch]:
    """See `Table.branches`."""
    snapshot, store = session.refresh(), session.store
    meta = snapshot.meta
    listed = []
    stored = set(stored_names(store))
    for name in sorted(pinned_names(store, meta) | stored):
        pin, fork, kept = meta.pins.get(pin_name(store, name)), None, False
        try:
            fork = fork_of(store, name)
            if fork is None:
                listed.append(
                    Branch(name, None, None, pin is not None, pin_only=name not in stored)
                )
                continue
            kept = is_pinned(fork, pin) or is_passed(fork, meta)
            head = Log(BranchStore(store, name, fork)).head_version()
            damage = _damage(session.log, snapshot, fork, kept=kept)
        except (Corrupt, UnsupportedFormat) as error:
            kept = pin is not None if fork is None else kept
            at = None if fork is None else fork.version
            listed.append(Branch(name, at, None, kept, damage=error.message))
            continue
        listed.append(Branch(name, fork.version, head, kept, damage=damage))
    return listed


def _damage(log: Log, head: Snapshot, fork: Fork, *, kept: bool) -> str | None:
    """Return why a branch continues no version of its parent, as far as the checks go.

    Of a branch that is not kept, two GETs: a vacuum looks at these before it pins them again.

    Args:
        log: of the parent.
        head: its newest version.
        fork: of the branch.
        kept: whether the parent keeps the segments that the branch reads.
    """
    if fork.table != head.header.table:
        return f"it forks from version {fork.version} of another table (id {fork.table})"
    return None if kept else problem_of(log, fork)
