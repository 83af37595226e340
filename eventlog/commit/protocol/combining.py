"""Combining: publish the transaction and find it in another writer's commit, or lead.

FORMAT.md "Combining". All writers follow the same rules; there is no election of a leader.
"""

from __future__ import annotations

from collections.abc import Sequence

from eventlog.commit.intents import Intent, published_form, that_fit, waiting
from eventlog.commit.protocol.attempt import MAX_ATTEMPTS, attempt, every_attempt_lost
from eventlog.commit.protocol.checks import look_at, look_next, newest, step_to, version_between
from eventlog.commit.protocol.commands import (
    Both,
    CheckIdentity,
    Draw,
    IntentStored,
    ListIntents,
    LoadView,
    Newest,
    Publish,
    ReadIntents,
    ReadSlot,
    Refused,
    Sleep,
    Steps,
    Stored,
    Viewed,
)
from eventlog.commit.protocol.contention import (
    AHEAD_OF_ALL,
    ALONE_LOOK,
    FEWEST_DEFERRALS,
    FIRST_LOOK,
    MAX_AWAITED,
    MAX_LED,
    MOST_DEFERRALS,
    NEXT_LOOK,
    LeaderWatch,
    Role,
)
from eventlog.commit.protocol.writer import CommitOutcome, Unresolved, Writer
from eventlog.commit.rebase import Ready, rebase
from eventlog.errors import (
    ClaimLost,
    CommitConflict,
)
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import Transaction


def combine(
    writer: Writer, transaction: Transaction, head: Snapshot
) -> Steps[CommitOutcome | Snapshot]:
    """Publish the transaction, then find it in another writer's commit, or lead.

    Returns the outcome; or a newer head if the store refuses publications, in which case the
    writer must make attempts.

    Args:
        writer: what this writer remembers.
        transaction: the own transaction, not published yet.
        head: the newest known snapshot.

    Raises:
        ClaimLost: the claim that the transaction runs under is gone.
        CommitConflict: the transaction can never take effect.
        Unavailable: the store does not answer, or the transaction missed every window.
    """
    for _ in range(MAX_ATTEMPTS):
        published = published_form(transaction, head)
        viewed: Viewed = yield LoadView(head, (published,), proposes=False)
        head = viewed.head
        if isinstance(rebase(published, viewed.view, head.header.time + 1), Ready):
            yield CheckIdentity(head, writes=True)
            # From here on other writers may commit it, even if this one fails.
            window = range(head.version + 1, (published.until or 0) + 1)
            writer.unresolved[transaction.id] = Unresolved(published, window)
            step = yield from follow_window(writer, published, head, new=True)
        else:
            # It is already committed, or void. A void one must not be published: it could take
            # effect after it was refused.
            step = yield from attempt(writer, transaction, head, ())
        if isinstance(step, CommitOutcome) or not writer.may_publish:
            return step
        head = step
    raise every_attempt_lost(writer, transaction)


def follow_window(
    writer: Writer, published: Transaction, head: Snapshot, *, new: bool
) -> Steps[CommitOutcome | Snapshot]:
    """Follow a published transaction through its window.

    Returns the outcome, or the newest snapshot if the window ended without it.

    Args:
        writer: what this writer remembers.
        published: the transaction in its published form.
        head: the newest known snapshot.
        new: publish the transaction first.

    Raises:
        ClaimLost: the claim that it runs under is gone.
        CommitConflict: it can never take effect.
        Unavailable: the store stopped answering while the window was open.
    """
    try:
        if new:
            answer: IntentStored | Refused = yield Publish(published, head.header.table)
            if isinstance(answer, Refused):
                # The store would refuse it again: this handle publishes no more transactions.
                writer.may_publish = False
                del writer.unresolved[published.id]
                return head
            writer.contention.took(answer.took_s)
        step = yield from _follow(writer, published, head)
    except (ClaimLost, CommitConflict):
        writer.unresolved.pop(published.id, None)
        raise
    writer.unresolved.pop(published.id, None)  # it took effect, or its window has ended
    return step


def _follow(
    writer: Writer, published: Transaction, head: Snapshot
) -> Steps[CommitOutcome | Snapshot]:
    """Look for a published transaction in other writers' commits; commit it if there are none."""
    last = published.until or 0
    step, others = yield from _first_look(writer, published, head)
    while not isinstance(step, CommitOutcome) and step.version < last:
        step = yield from _take_over(writer, published, step, others)
        if not isinstance(step, CommitOutcome) and step.version < last:
            step, others = yield from _list_and_look(writer, published, step, far=True)
    return step


def _first_look(
    writer: Writer, published: Transaction, head: Snapshot
) -> Steps[tuple[CommitOutcome | Snapshot, list[Intent]]]:
    """Look for the transaction where a leader is known; else find out whether there is one.

    Two commits of one writer right after each other show that it does not pause. It finds what is
    published before long. Commits of different writers show nothing but their number.
    """
    contention = writer.contention
    if contention.role is Role.FOLLOWS:
        first = head.version + contention.ahead
        step = yield from _await_leader(writer, published, head, first, contention.led_look)
        if isinstance(step, CommitOutcome):
            return step, []
        return (yield from _list_and_look(writer, published, step, far=True))
    step, others = yield from _list_and_look(writer, published, head, far=False)
    if isinstance(step, CommitOutcome) or step.version == head.version:
        return step, others
    if head.header.changes.writer == step.header.changes.writer:
        first = head.version + AHEAD_OF_ALL
        step = yield from _await_leader(writer, published, step, first, ALONE_LOOK)
    if not isinstance(step, CommitOutcome):
        step = yield from newest(published, step)
    return step, [] if isinstance(step, CommitOutcome) else waiting(others, step)


def _take_over(
    writer: Writer, published: Transaction, head: Snapshot, others: list[Intent]
) -> Steps[CommitOutcome | Snapshot]:
    """Commit for all, unless another writer that is first in order does."""
    step, others = yield from _defer(writer, published, head, others)
    if isinstance(step, CommitOutcome):
        return step
    step, taken = yield from _read_and_look(writer, published, step, others)
    if isinstance(step, CommitOutcome):
        return step
    return (yield from _lead(writer, published, step, taken))


def _list_and_look(
    writer: Writer, published: Transaction, head: Snapshot, *, far: bool
) -> Steps[tuple[CommitOutcome | Snapshot, list[Intent]]]:
    """List published transactions, and at the same time look for newer commits.

    If `far`, the newest version is looked for, else only the next one.
    """
    look = Newest(head, far=True) if far else ReadSlot(head.version + 1)
    intents, newer = yield Both(ListIntents(head), look)
    step: CommitOutcome | Snapshot = head
    if isinstance(newer, Stored):
        step = yield from step_to(published, head, newer)
    elif isinstance(newer, Snapshot) and newer.version > head.version:
        version = yield from version_between(published, head, newer)
        step = newer if version is None else CommitOutcome(version, newer)
    if isinstance(step, CommitOutcome):
        writer.contention.followed()
        return step, []
    return step, waiting(intents, step, {published.id})


def _read_and_look(
    writer: Writer, published: Transaction, head: Snapshot, others: Sequence[Intent]
) -> Steps[tuple[CommitOutcome | Snapshot, list[Transaction]]]:
    """Read other writers' published transactions, and at the same time look for a newer commit."""
    if not others:
        return head, []
    chosen = [intent.key for intent in that_fit(others)]
    read = ReadIntents(chosen, head.header.table)
    taken, stored = yield Both(read, ReadSlot(head.version + 1))
    if stored is None:
        return head, taken
    step = yield from step_to(published, head, stored)
    if isinstance(step, CommitOutcome):
        writer.contention.followed()
    return step, taken


def _defer(
    writer: Writer, published: Transaction, head: Snapshot, others: list[Intent]
) -> Steps[tuple[CommitOutcome | Snapshot, list[Intent]]]:
    """Wait a while for the first writer in order; all writers see the same order, so one leads.

    The further behind in order, the longer a writer waits before it takes over: if all took over at
    once, each would read all published transactions, and one would win.
    """
    own = Intent(published.until or 0, published.id, "", 0)
    place = sum(other < own for other in others)
    deferrals = 0
    while others and others[0] < own and deferrals < min(place + FEWEST_DEFERRALS, MOST_DEFERRALS):
        yield from _rest(writer, NEXT_LOOK if deferrals else FIRST_LOOK)
        step = yield from look_next(published, head)
        if isinstance(step, CommitOutcome):
            writer.contention.followed()
            return step, []
        deferrals += 1
        if step.version > head.version:
            first, head = others[0], step
            others = waiting(others, head)
            if not others or others[0] != first:
                deferrals = 0  # the writer of that commit includes published transactions
    return head, others


def _lead(
    writer: Writer, published: Transaction, head: Snapshot, others: list[Transaction]
) -> Steps[CommitOutcome | Snapshot]:
    """Attempt several times to commit the own transaction together with other writers' ones.

    A writer that expects no others commits about every two requests. The best time to win against
    it is right after its commit.
    """
    for _ in range(MAX_LED):
        if head.version >= (published.until or 0):
            break
        writer.contention.lead(len(others))
        step = yield from attempt(writer, published, head, others)
        if isinstance(step, CommitOutcome):
            return step
        writer.contention.lost(publish=True)
        head = step
        for _ in range(MAX_AWAITED):
            step = yield from look_next(published, head)
            if isinstance(step, CommitOutcome):
                writer.contention.followed()
                return step
            if step.version > head.version:
                head = step
                break
    return head


def _await_leader(
    writer: Writer, published: Transaction, head: Snapshot, version: int, wait: float
) -> Steps[CommitOutcome | Snapshot]:
    """Look for the transaction in new commits, as long as another writer seems to lead.

    Args:
        writer: what this writer remembers.
        published: the own transaction.
        head: the newest known snapshot.
        version: the version to look at first.
        wait: how long to wait before that, in requests.
    """
    watch, contention = LeaderWatch(version), writer.contention
    published_at, last = head.version, published.until or 0
    yield from _rest(writer, wait)
    while head.version < last:
        step = yield from look_at(published, head, min(watch.version, last))
        if isinstance(step, CommitOutcome):
            contention.followed()
            passed = step.head.version - step.version
            contention.looked(step.version - published_at, passed=passed, looks=watch.vain)
            return step
        if step.version > head.version:
            watch.left_out()
            head = step
        else:
            watch.no_commit(head.version)
        if watch.is_over:
            contention.looked(head.version + 1 - published_at, passed=0, looks=watch.vain)
            break
        yield from _rest(writer, watch.next_look)
    return head


def still_waiting(writer: Writer, transaction: Transaction, head: Snapshot) -> list[Transaction]:
    """Return other writers' published transactions that the next commit can include.

    Args:
        writer: what this writer remembers.
        transaction: the own transaction, which is left out.
        head: the newest known snapshot.
    """
    writer.taken = [
        other
        for other in writer.taken
        if (other.until or 0) > head.version
        and other.id not in head.meta.published
        and other.id != transaction.id
    ]
    return writer.taken


def _rest(writer: Writer, requests: float) -> Steps[None]:
    """Wait about as long as this number of requests takes."""
    yield Sleep(writer.contention.request_s * requests * (0.9 + (yield Draw()) / 5))
