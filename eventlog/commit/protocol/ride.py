"""Ride along: publish, and find the transaction in another writer's commit, or lead.

FORMAT.md "Combining". All writers follow the same few rules, and nobody appoints the leader.
"""

from __future__ import annotations

from collections.abc import Sequence

from eventlog.commit import publication
from eventlog.commit.protocol.commands import (
    Beside,
    CheckIdentity,
    Draw,
    Elapsed,
    ListIntents,
    Newest,
    Publish,
    Published,
    ReadIntents,
    ReadSlot,
    Refused,
    Sleep,
    Steps,
    Stored,
    View,
    Viewed,
)
from eventlog.commit.protocol.contention import (
    FIRST_LOOK,
    MAX_AWAITED,
    MAX_DEFERRALS,
    MAX_LED,
    NEXT_LOOK,
    Role,
    Watch,
)
from eventlog.commit.protocol.looks import go_on, look_next, taken_between
from eventlog.commit.protocol.memory import Memory, Outcome, Unsettled
from eventlog.commit.protocol.race import MAX_LOST_RACES, beaten, race
from eventlog.commit.publication import Intent
from eventlog.commit.rebase import Ready, rebase
from eventlog.errors import (
    ClaimLost,
    CommitConflict,
    Unavailable,
)
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import Transaction


def combine(memory: Memory, transaction: Transaction, head: Snapshot) -> Steps[Outcome | Snapshot]:
    """Publish the transaction; then find it in another's commit, or lead and take others along.

    A newer head where the store refuses what is published: it has to race then.

    Raises:
        CommitConflict: it can never take effect.
        Unavailable: the store stopped answering, or no window brought it in.
    """
    for _ in range(MAX_LOST_RACES):
        published = publication.publication(transaction, head)
        viewed: Viewed = yield View(head, (published,))
        head = viewed.head
        if isinstance(rebase(published, viewed.view, head.header.time + 1), Ready):
            yield CheckIdentity(head, writes=True)
            # From here on others may commit it, whatever happens to us.
            window = range(head.version + 1, (published.until or 0) + 1)
            memory.unsettled[transaction.id] = Unsettled(published, window)
            step = yield from ride(memory, published, head, new=True)
        else:
            # It is in already, or void here: published, it could land after it was refused.
            step = yield from race(memory, transaction, head, ())
        if isinstance(step, Outcome) or not memory.may_publish:
            return step
        head = step
    raise beaten(memory, transaction)


def ride(
    memory: Memory, published: Transaction, head: Snapshot, *, new: bool
) -> Steps[Outcome | Snapshot]:
    """See a published transaction through its window; return its outcome or the window's end.

    Raises:
        CommitConflict: it can never take effect.
        Unavailable: the store stopped answering while the window is open.
    """
    try:
        if new:
            answer: Published | Refused = yield Publish(published, head.header.table)
            if isinstance(answer, Refused):
                # Refused for good: this handle publishes nothing from now on.
                memory.may_publish = False
                del memory.unsettled[published.id]
                return head
            memory.contention.took(answer.took_s)
        step = yield from _see_through(memory, published, head)
    except (ClaimLost, CommitConflict):
        memory.unsettled.pop(published.id, None)
        raise
    memory.unsettled.pop(published.id, None)  # found, or dead with its window
    return step


def _see_through(
    memory: Memory, published: Transaction, head: Snapshot
) -> Steps[Outcome | Snapshot]:
    """Look for a published transaction in others' commits; where none comes, commit it."""
    last = published.until or 0
    if memory.contention.role is Role.RIDES:
        step = yield from _await_leader(memory, published, head)
        if isinstance(step, Outcome):
            return step
        head = step
    far = False
    while head.version < last:
        step, others = yield from _look_around(memory, published, head, far=far)
        if isinstance(step, Outcome):
            return step
        if step.version >= last:
            return step
        step, others = yield from _defer(memory, published, step, others)
        if isinstance(step, Outcome):
            return step
        step, taken = yield from _read_beside_look(memory, published, step, others)
        if isinstance(step, Outcome):
            return step
        step = yield from _lead(memory, published, step, taken)
        if isinstance(step, Outcome):
            return step
        head, far = step, True
    return head


def _look_around(
    memory: Memory, published: Transaction, head: Snapshot, *, far: bool
) -> Steps[tuple[Outcome | Snapshot, list[Intent]]]:
    """List what is published, and beside it look for newer commits: all of them if `far`."""
    look = Newest(head) if far else ReadSlot(head.version + 1)
    intents, newer = yield Beside(ListIntents(head), look)
    step: Outcome | Snapshot = head
    if isinstance(newer, Stored):
        step = yield from go_on(published, head, newer)
    elif isinstance(newer, Snapshot) and newer.version > head.version:
        version = yield from taken_between(published, head, newer)
        step = newer if version is None else Outcome(version, newer)
    if isinstance(step, Outcome):
        memory.contention.rode(step.head.header.changes.transactions)
        return step, []
    return step, publication.waiting(intents, step, {published.id})


def _read_beside_look(
    memory: Memory, published: Transaction, head: Snapshot, others: Sequence[Intent]
) -> Steps[tuple[Outcome | Snapshot, list[Transaction]]]:
    """Read what others published, and beside it look for a newer commit."""
    if not others:
        return head, []
    chosen = [intent.key for intent in publication.that_fit(others)]
    read = ReadIntents(chosen, head.header.table)
    taken, stored = yield Beside(read, ReadSlot(head.version + 1))
    if stored is None:
        return head, taken
    step = yield from go_on(published, head, stored)
    if isinstance(step, Outcome):
        memory.contention.rode(step.head.header.changes.transactions)
    return step, taken


def _defer(
    memory: Memory, published: Transaction, head: Snapshot, others: list[Intent]
) -> Steps[tuple[Outcome | Snapshot, list[Intent]]]:
    """Give way to the first in order for a while: all see the same list, so that one leads."""
    own = Intent(published.until or 0, published.id, "", 0)
    deferrals = 0
    while others and others[0] < own and deferrals < MAX_DEFERRALS:
        yield from _rest(memory, NEXT_LOOK if deferrals else FIRST_LOOK)
        step = yield from look_next(published, head)
        if isinstance(step, Outcome):
            memory.contention.rode(step.head.header.changes.transactions)
            return step, []
        deferrals += 1
        if step.version > head.version:
            first, head = others[0], step
            others = publication.waiting(others, head)
            if others and others[0] == first:
                break  # the commit took nobody along: its writer does not look
            deferrals = 0
    return head, others


def _lead(
    memory: Memory, published: Transaction, head: Snapshot, others: list[Transaction]
) -> Steps[Outcome | Snapshot]:
    """Race with others' transactions beside the own one, more than once.

    A writer that knows of no others commits every two requests or so. It is beaten right after
    its commit, and hardly ever by a request that started before.
    """
    for _ in range(MAX_LED):
        if head.version >= (published.until or 0):
            break
        step = yield from race(memory, published, head, others)
        if isinstance(step, Outcome):
            return step
        memory.contention.lost(publish=True)
        head = step
        for _ in range(MAX_AWAITED):
            step = yield from look_next(published, head)
            if isinstance(step, Outcome):
                memory.contention.rode(step.head.header.changes.transactions)
                return step
            if step.version > head.version:
                head = step
                break
    return head


def _await_leader(
    memory: Memory, published: Transaction, head: Snapshot
) -> Steps[Outcome | Snapshot]:
    """Look for the transaction in the commits that come, as long as somebody seems to lead."""
    watch = Watch()
    yield from _rest(memory, memory.contention.first_look)
    while head.version < (published.until or 0):
        step = yield from look_next(published, head)
        if isinstance(step, Outcome):
            memory.contention.rode(step.head.header.changes.transactions)
            return step
        if step.version > head.version:
            watch.left_out()
            head = step
        else:
            watch.nothing()
        if watch.is_over:
            break
        yield from _rest(memory, NEXT_LOOK)
    return head


def others_waiting(
    memory: Memory, transaction: Transaction, head: Snapshot
) -> Steps[list[Transaction]]:
    """Return what others have published, where it is time to look: a leader always does."""
    try:
        if memory.contention.gathers:
            yield Sleep(memory.contention.gather_s((yield Elapsed())))
            intents = yield ListIntents(head)
        elif memory.contention.leads:
            intents, memory.listed = memory.listed, []
        elif memory.contention.look_is_due():
            intents = yield ListIntents(head)
        else:
            return []
        intents = publication.waiting(intents, head, {transaction.id})
        taken = yield from _read(intents, head)
    except Unavailable:
        return []  # it is for the others: this one can do without
    if taken:
        memory.contention.met()
    return taken


def _read(intents: Sequence[Intent], head: Snapshot) -> Steps[list[Transaction]]:
    """Return others' published transactions, as many as one commit can take along."""
    if not intents:
        return []
    chosen = [intent.key for intent in publication.that_fit(intents)]
    taken: list[Transaction] = yield ReadIntents(chosen, head.header.table)
    return taken


def _rest(memory: Memory, requests: float) -> Steps[None]:
    """Wait about as long as so many requests take."""
    yield Sleep(memory.contention.request_s * requests * (0.9 + (yield Draw()) / 5))
