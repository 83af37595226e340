"""Slow writers: staged objects that a newer version does not take are changed, and committed.

A segment below the fence, or an object of deletion vectors, can no longer be committed under its
own key, and vacuum may delete it at any time. Its bytes are copied to a fresh key in the current
epoch (FORMAT.md R12.8). Nothing is deleted here (hazard C7). The statistics of columns that were
dropped meanwhile are left out. Rows are tested against checks that were added meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UnsetType

from eventlog.errors import CommitConflict, CommitUnknown, KeyNotFound, VersionCut
from eventlog.format import codec, keys
from eventlog.format.deletion_vectors import has_bitmaps, join_bitmaps
from eventlog.inline import inline_objects
from eventlog.log.history import find_transaction
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Action, Add, DeleteRows, Merge, Replace
from eventlog.model.columns.named_checks import checks_of, newest_check
from eventlog.model.entries import StoredBitmap, Vector, stored_bitmap
from eventlog.model.records import Transaction
from eventlog.model.stats import live_stats
from eventlog.segments.checked_rows import stored_rows_tested
from eventlog.session.session import Session
from eventlog.state.fold import segment_of
from eventlog.store.parallel import COPY_THREADS, each
from eventlog.store.retry import put_once

_MAX_RESTAGES = 3

logger = logging.getLogger(__name__)


# By the id of a staged segment the add of its newest copy.
Copies = dict[str, Add]


def commit_staged(session: Session, transaction: Transaction, copies: Copies | None = None) -> int:
    """Commit a transaction of staged segments, also after a fence or a change of the schema.

    The transaction keeps its id, so it takes effect once, even if its first form was committed.

    Args:
        session: the table.
        transaction: the transaction.
        copies: gets the copies that are made of fenced segments, also if the commit fails: the
            caller may commit them by another transaction.

    Raises:
        InvalidInput: a row breaks a check that was added meanwhile; nothing was committed.
        CommitConflict: it cannot be rebased onto the head, or a vacuum deleted a fenced upload
            before it could be copied; nothing was committed.
        CommitUnknown: see `Table.commit`.
        Unavailable: see `Table.commit`.
    """
    for _ in range(_MAX_RESTAGES):  # after each conflict, with the segments staged again
        try:
            return session.commit(transaction)
        except CommitConflict as conflict:
            head, actions = session.head(), transaction.actions
            outdated = any(_outdated(action, head) for action in actions)
            if not outdated and not untested_adds(actions, head):
                raise
            # Another process may have committed it already; the fence conflict hides that.
            landed = _landed(session, transaction, head.version)
            if landed is not None:
                return landed
            logger.info("changing staged segments for a newer version: %s", conflict)
            now = restaged(session, transaction)
            if copies is not None:
                _note_copies(copies, actions, now.actions)
            transaction = now
    return session.commit(transaction)


def _landed(session: Session, transaction: Transaction, head: int) -> int | None:
    """Return the version in which a transaction took effect, whoever committed it; None for none.

    Raises:
        CommitUnknown: the log is cut above versions that may have it.
    """
    first = transaction.read_version + 1
    try:
        return find_transaction(session.log, transaction.id, first, head)
    except VersionCut as error:
        raise CommitUnknown(
            f"whether another process committed the transaction in version {error.version} or "
            "later cannot be known any more: the log is cut above it. Look for its rows in the "
            "table before you write them once more",
            table=session.uri,
            version=first,
            until=head,
            transaction=transaction.id,
        ) from error


def current_adds(
    session: Session, adds: Sequence[Add], copies: Copies, transaction: str
) -> list[Add]:
    """Return staged segments in the form that is to be committed now: their newest copies.

    A change that others overtake again and again may outlast the time that vacuum gives an upload.
    So a segment is copied in time, once it is nearer to the fence than to the head. No clock is
    asked: both move by the commits of the table. Where nothing is fenced, nothing is copied.

    Args:
        session: the table.
        adds: the segments as they were staged.
        copies: their newest copies; gets those that are made.
        transaction: the id of the transaction, for errors.

    Raises:
        CommitConflict: a vacuum deleted an upload before it could be copied.
        Unavailable: the store does not answer.
    """
    head = session.head()
    fence, made = head.meta.fence, _Copies(session, head.version, transaction)

    def current(add: Add) -> Add:
        newest = copies.get(add.id, add)
        # against uploads-of-slow-changes-fenced
        if fence and newest.epoch - fence < head.version - newest.epoch:
            newest = made.segment(newest)
        return newest

    now = [*each(current, adds, count=COPY_THREADS)]
    copies.update((add.id, copy) for add, copy in zip(adds, now, strict=True) if copy is not add)
    return now


def _note_copies(copies: Copies, before: Sequence[Action], after: Sequence[Action]) -> None:
    """Enter the copies of segments, which may be copies already, under the ids of the first."""
    first = {copy.id: name for name, copy in copies.items()}
    for old, new in zip(before, after, strict=True):
        if isinstance(old, Add) and isinstance(new, Add) and old.id != new.id:
            copies[first.get(old.id, old.id)] = new  # against copies-of-a-lost-race-forgotten


def restaged(session: Session, transaction: Transaction) -> Transaction:
    """Return the transaction as the newest version takes it.

    Every fenced object is copied to its epoch, and statistics of columns that it does not have are
    left out. Rows that were staged before a check was added are tested.

    Raises:
        CommitConflict: an upload is missing or damaged.
        InvalidInput: a row breaks a check.
        Unavailable: the store does not answer.
    """
    head = session.head()
    fence, copies = head.meta.fence, _Copies(session, head.version, transaction.id)

    def again(action: Action) -> Action:
        if not isinstance(action, Add):
            return action
        stats = live_stats(action.stats, head.stored_schema)
        if stats != action.stats:
            action = msgspec.structs.replace(action, stats=stats)
        if action.epoch < fence:
            return copies.segment(action)
        return action

    actions = [*each(again, transaction.actions, count=COPY_THREADS)]
    stored = [one for action in actions if (one := _stored_by(action)) is not None]
    # against fenced-vectors-not-copied
    moved = copies.bitmaps([one for one in stored if one.epoch < fence])
    final = [
        action
        if not isinstance(action, Add | DeleteRows)
        or isinstance(action.vector, UnsetType)
        or (one := _stored_by(action)) not in moved
        else msgspec.structs.replace(action, vector=Vector(action.vector.rows, stored=moved[one]))
        for action in actions
    ]
    # against restage-under-a-new-id
    return msgspec.structs.replace(transaction, actions=tested_actions(session, head, final))


def untested_adds(actions: Sequence[Action], head: Snapshot) -> list[Add]:
    """Return the adds whose rows may break a check of a version (FORMAT.md R7.13)."""
    if any(isinstance(action, Replace | Merge) for action in actions):
        return []  # of rows that are live
    newest = newest_check(head.stored_schema)
    return [a for a in actions if isinstance(a, Add) and a.checked < newest]


def tested_actions(
    session: Session, head: Snapshot, actions: Sequence[Action]
) -> tuple[Action, ...]:
    """Return the actions as a version with newer checks takes them, after their rows were tested.

    Raises:
        DataLoss: a segment is missing or damaged.
        InvalidInput: a row breaks a check.
    """
    untested, schema = untested_adds(actions, head), head.stored_schema
    if not untested:
        return tuple(actions)
    oldest = min(add.checked for add in untested)
    # against staged-rows-never-tested
    checks = [check for check in checks_of(schema) if check.schema > oldest]
    inline_objects.remember_objects(untested)  # those that no commit has yet
    segments = [segment_of(add, head.version, 0) for add in untested]
    tested = stored_rows_tested(
        session.store,
        segments,
        schema,
        checks,
        version=head.version,
        keyed=head.merge_rule is not None,
    )
    tested.refuse("the check was added while these rows were written, and nothing was committed")
    ids = {add.id for add in untested}
    return tuple(
        msgspec.structs.replace(a, tested=schema.id) if isinstance(a, Add) and a.id in ids else a
        for a in actions
    )


def _key(add: Add) -> str:
    return keys.segment_key(add.epoch, add.chunk, add.id)


def _outdated(action: Action, head: Snapshot) -> bool:
    """Return whether an object is fenced, or has statistics of a column that was dropped."""
    if _fenced(action, head.meta.fence) or not isinstance(action, Add):
        return _fenced(action, head.meta.fence)
    # against append-lost-to-a-dropped-column
    return live_stats(action.stats, head.stored_schema) != action.stats


def _fenced(action: Action, fence: int) -> bool:
    stored = _stored_by(action)
    is_old = stored is not None and stored.epoch < fence
    return is_old or (isinstance(action, Add) and action.epoch < fence)


def _stored_by(action: Action) -> StoredBitmap | None:
    """Return where the vector is stored that an action gives an entry; None: no such vector."""
    return stored_bitmap(action.vector) if isinstance(action, Add | DeleteRows) else None


@dataclass(frozen=True, slots=True)
class _Copies:
    """Copies fenced objects to an epoch, each under a fresh id."""

    session: Session
    epoch: int
    transaction: str

    def segment(self, add: Add) -> Add:
        """Copy a segment, and return the add of the copy."""
        key = _key(add)
        if not isinstance(add.parquet, UnsetType):  # nothing is stored, and nothing was deleted
            id_ = self.session.clock.random_id()
            return msgspec.structs.replace(add, id=id_, epoch=self.epoch)
        body = self._body(key, add.bytes + 1)
        if codec.sha256(body) != add.checksum:  # against restage-copies-anything
            raise self._too_late(key)
        session, epoch = self.session, self.epoch
        fresh = msgspec.structs.replace(add, id=session.clock.random_id(), epoch=epoch)
        put_once(session.store, session.clock, _key(fresh), body)
        session.log.staged.vouch([fresh])
        return fresh  # against restage-deletes

    def bitmaps(self, stored: Sequence[StoredBitmap]) -> dict[StoredBitmap | None, StoredBitmap]:
        """Copy bitmaps of vectors into one object, and return for each its place in the copy."""
        if not stored:
            return {}
        session, found, bodies = self.session, list[bytes](), dict[str, bytes]()
        for one in stored:
            key = keys.vectors_key(one)
            if key not in bodies:
                bodies[key] = self._body(key, None)
            if not has_bitmaps(bodies[key], [one]):  # against restage-copies-any-vectors
                raise self._too_late(key)
            found.append(bodies[key][one.offset : one.offset + one.size])
        body, copied = join_bitmaps(self.epoch, session.clock.random_id(), found)
        put_once(session.store, session.clock, keys.vectors_key(copied[0]), body)
        return dict(zip(stored, copied, strict=True))

    def _body(self, key: str, length: int | None) -> bytes:
        try:
            return self.session.store.get(key, length=length)
        except KeyNotFound:
            return b""

    def _too_late(self, key: str) -> CommitConflict:
        return CommitConflict(
            "the upload took so long that a vacuum deleted it; nothing was committed: write the "
            "rows again (the property staging_hours sets how long an upload may take)",
            table=self.session.uri,
            key=key,
            transaction=self.transaction,
        )
