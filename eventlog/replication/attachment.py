"""Attachments of replicas: a follower records at the source that it follows, and how far it is.

Vacuum waits for the replicas that are attached (FORMAT.md R12.1). An attachment has a token that is
new at every attach. So the earlier acknowledgements of a replica that was emptied and attached
again do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from eventlog.arguments import opened, text
from eventlog.display import command
from eventlog.errors import CommitConflict, Corrupt, InvalidInput, VersionCut
from eventlog.log.log import Log
from eventlog.model.actions import Ack, Action, Attach, Break, Detach
from eventlog.model.records import Commit, Meta, Replica
from eventlog.session.session import Session
from eventlog.state.small.holds import check_names
from eventlog.store.port import ObjectStore
from eventlog.table.branching.keeping import pins_again, unheld
from eventlog.table.table import Table

_BOOKKEEPING = frozenset({Attach, Ack, Detach})
_MOST_LOOKED_AT = 100  # commits


def attaching(
    meta: Meta, name: str, owner: str, having: int, start: int, *, table: str
) -> tuple[Action, ...]:
    """Return the actions that attach a replica; none if it is attached.

    Args:
        meta: the small state of the source.
        name: the name of the replica.
        owner: its root URI.
        having: the newest version that the replica has; -1: none.
        start: the first version that the replica will copy; if this is below the horizon, the
            horizon is used instead.
        table: the root URI of the source, for the error.

    Raises:
        CommitConflict: another replica has the name.
    """
    known = meta.replicas.get(name)
    acked = having if having >= meta.horizon else max(start, meta.horizon)
    if known is None:
        return (Attach(name, acked, owner),)
    if known.owner != owner:
        raise CommitConflict(
            f"the name {name!r} belongs to the replica {known.owner}, which has acknowledged "
            f"version {known.acked}: choose another name, or remove that one with "
            f"{command('replicas', table, '--break', name)}",
            table=table,
        )
    if having < known.acked:  # against emptied-taken-for-full
        return (Detach(name, known.token), Attach(name, acked, owner))
    return ()


def acking(meta: Meta, name: str, token: int, version: int) -> tuple[Action, ...]:
    """Return the action that acknowledges a version; none if the source records it already.

    Args:
        meta: the small state of the source.
        name: the name of the replica.
        token: the token of its attachment when the copying began.
        version: the newest version that the replica has.
    """
    known = meta.replicas.get(name)
    if known is None or known.token != token or known.acked >= version:
        return ()
    return (Ack(name, token, version),)


def is_bookkeeping(commit: Commit) -> bool:
    """Return whether a commit contains only attachments and acknowledgements of replicas.

    Acknowledging such commits would never end, since each acknowledgement is a commit.
    """
    return all(type(a) in _BOOKKEEPING for t in commit.transactions for a in t.actions)


def owner_of(store: ObjectStore) -> str:
    """Return the name of a copy in its attachment: its root and its endpoint.

    The same bucket and path may exist at several endpoints. For Amazon's S3 the root is enough.
    """
    place = store.unproven
    return store.uri if place is None else f"{store.uri} at {place.rpartition('/')[0]}"


def says_only(log: Log, first: int, last: int) -> bool:
    """Return whether all these commits are bookkeeping of replicas; False if there are many.

    Args:
        log: the log.
        first: the first version.
        last: the last version.
    """
    few = last - first < _MOST_LOOKED_AT
    try:
        return few and all(is_bookkeeping(log.read(v)[0]) for v in range(last, first - 1, -1))
    except VersionCut:  # a stub does not show it
        return False


def newest_news(session: Session) -> int:
    """Return the newest version that contains more than bookkeeping of replicas.

    Costs one GET for this version and each version above it, at most 100.
    """
    head = session.head().version
    least = max(0, head - _MOST_LOOKED_AT)
    for version in range(head, least, -1):
        try:
            if not is_bookkeeping(session.log.read(version)[0]):
                return version
        except VersionCut:  # a stub does not show it
            return version
    return least


def replicas(table: Table) -> dict[str, Replica]:
    """Return the replicas that are attached to a table, by name.

    Raises:
        TableNotFound: the table is gone.
    """
    opened(table)
    return dict(table.refresh().meta.replicas)


def detach(table: Table, name: str) -> int:
    """End an attachment, so that vacuum no longer waits for the replica; return the version.

    Args:
        table: the source.
        name: the name of the replica.

    Raises:
        CommitConflict: the replica was attached again in the meantime.
        InvalidInput: no replica of this name is attached.
    """
    opened(table)
    return _remove(table.session, "detach", text(name, "name"), lambda token: Detach(name, token))


def break_replica(table: Table, name: str) -> int:
    """Remove a replica that no longer answers; return the version.

    Does what `detach` does, and the history records who removed the replica. A copy takes over in
    this way: the same commit pins again the versions that the copy's own branches read and the
    table that it followed did not hold.

    Args:
        table: the source.
        name: the name of the replica.

    Raises:
        CommitConflict: the replica was attached again in the meantime.
        InvalidInput: no replica of this name is attached.
    """
    opened(table)
    name = text(name, "name")
    head, again = table.refresh(), list[Action]()
    with suppress(Corrupt):  # a damaged branch stops the next vacuum, and not the taking over
        # against taking-over-without-its-branches
        again = pins_again(table.store, unheld(table.session.log, head), head.meta)
    return _remove(table.session, "break", name, lambda token: Break("replica", name, token), again)


def check_no_copy(session: Session, name: str) -> None:
    """Check that a table is not itself attached as a copy, before a name is written to its log.

    Raises:
        CommitConflict: it is attached. After the write it could not follow any more.
    """
    own = owner_of(session.store)
    for known, replica in session.head().meta.replicas.items():
        if replica.owner == own:  # against copy-written-to
            raise CommitConflict(
                f"{session.uri} is a copy itself, attached as {known!r}: a replica {name!r} would "
                "be written to its log. Follow it without a name. Or, if it has taken over from "
                f"its table, end that first: {command('replicas', session.uri, '--break', known)}",
                table=session.uri,
            )


def attach(session: Session, name: str, owner: str, having: int, start: int) -> int:
    """Attach a replica unless it is attached, and return the token of the attachment.

    Args:
        session: the source's session.
        name: the name of the replica.
        owner: the root URI of the replica.
        having: the newest version that the replica has; -1: none.
        start: the first version that the replica will copy.

    Raises:
        CommitConflict: another replica has the name; or the horizon has passed this replica.
        InvalidInput: the name or the URI is too long.
    """
    check_names(name, owner)
    for _ in range(2):
        head = session.refresh()
        actions = attaching(head.meta, name, owner, having, start, table=session.uri)
        if actions:
            try:
                session.commit(session.transaction("attach", actions))
            except CommitConflict:
                continue  # another replicator of the same pair attached it, or a vacuum passed
        known = session.refresh().meta.replicas.get(name)
        if known is not None:
            return known.token
    raise CommitConflict(
        f"the replica {name!r} could not be attached: others change its attachment; try again",
        table=session.uri,
    )


def ack(session: Session, name: str, token: int, version: int) -> bool:
    """Acknowledge a version, unless this was done; return whether the replica is still attached.

    Args:
        session: the source's session.
        name: the name of the replica.
        token: the token of its attachment when the copying began.
        version: the newest version that the replica has.
    """
    actions = acking(session.refresh().meta, name, token, version)
    if actions:
        try:
            session.commit(session.transaction("ack", actions))
        except CommitConflict:  # another replicator of the same pair was faster, or it was detached
            session.refresh()
    known = session.head().meta.replicas.get(name)
    return known is not None and known.token == token


def unsaid(session: Session, name: str, having: int) -> int:
    """Return the newest version that a replica has and should acknowledge; -1: there is none.

    An earlier pass may have ended between the last copy and the acknowledgement.

    Args:
        session: the source's session.
        name: the name of the replica.
        having: the newest version that the replica has.
    """
    known = session.head().meta.replicas.get(name)
    if known is not None:
        for version in range(having, known.acked, -1):
            if not is_bookkeeping(session.log.read(version)[0]):
                return version
    return -1


def _remove(
    session: Session,
    operation: str,
    name: str,
    action: Callable[[int], Action],
    others: Iterable[Action] = (),
) -> int:
    replicas = session.refresh().meta.replicas
    if name not in replicas:
        names: Iterable[str] = sorted(replicas) or ("none",)
        raise InvalidInput(
            f"no replica {name!r} is attached; attached are: {', '.join(names)}", table=session.uri
        )
    return session.commit(session.transaction(operation, [action(replicas[name].token), *others]))
