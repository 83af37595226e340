"""One slot of the log: store a commit in it, and find out what it holds.

The fate of a slot is settled before another is tried (FORMAT.md "Committing").
"""

from __future__ import annotations

from eventlog.commit.proposal import Proposal
from eventlog.commit.protocol.commands import (
    Beside,
    Created,
    Draw,
    Elapsed,
    ListIntents,
    PutObjects,
    PutSlot,
    ReadSlot,
    Refused,
    Sleep,
    Steps,
    Stored,
    Unclear,
)
from eventlog.commit.protocol.memory import Memory
from eventlog.errors import (
    CommitUnknown,
    EventLogError,
    InvalidInput,
    OutcomeUnknown,
    Unavailable,
)
from eventlog.store.retry import MAX_TRIES, wait_s


def settle(memory: Memory, proposal: Proposal, transaction_id: str) -> Steps[Stored | None]:
    """Store a proposal and find out what its slot holds: None is the proposal itself.

    An unclear answer is followed by reading the slot back, and by the same bytes to the same
    key until it is clear.

    Raises:
        CommitUnknown: still unclear when the bound is spent.
        Unavailable: the store took nothing for sure.
    """
    yield PutObjects(proposal.objects)
    unclear = False
    last: Unavailable
    for tries in range(1, MAX_TRIES + 1):
        try:
            return (yield from _try_once(memory, proposal))
        except Unavailable as error:
            unclear, last = unclear or isinstance(error, OutcomeUnknown), error
        except InvalidInput as error:
            if not unclear:  # every try was refused for sure
                raise
            # The store denies us by now: what was sent before may be there.
            raise _unknown(memory, proposal, transaction_id, error) from error
        if tries < MAX_TRIES:
            yield Sleep(wait_s(tries, (yield Draw())))
    if not unclear:
        raise last
    raise _unknown(memory, proposal, transaction_id, last) from last


def _try_once(memory: Memory, proposal: Proposal) -> Steps[Stored | None]:
    """Send the commit once; read the slot back unless the answer was plain success.

    Raises:
        OutcomeUnknown: the slot's fate is still open.
        Unavailable: the store took nothing.
    """
    version = proposal.snapshot.version
    put = PutSlot(version, proposal.body)
    contention = memory.contention
    sent_s: float = yield Elapsed()
    if contention.leads and not contention.gathers:
        answer, listed = yield Beside(put, ListIntents(proposal.snapshot))
        memory.listed = listed or []
    else:
        answer = yield put
    contention.took((yield Elapsed()) - sent_s)
    if isinstance(answer, Created):
        return None
    if isinstance(answer, Refused):
        raise answer.error
    why = "the store refused the commit, but shows nothing there"
    if isinstance(answer, Unclear):
        why = answer.message  # against unknown-taken-for-failure, unknown-taken-for-success
    # A refusal too is looked into: what refused may be our own request, delivered twice.
    try:
        stored: Stored | None = yield ReadSlot(version)
        shown = "nothing is there yet"
    except (Unavailable, InvalidInput) as error:
        stored, shown = None, error.message
    if stored is None:
        raise OutcomeUnknown(f"{why}; {shown}", version=version)
    # against own-commit-taken-for-anothers
    return None if stored.body == proposal.body else stored


def _unknown(
    memory: Memory, proposal: Proposal, transaction_id: str, error: EventLogError
) -> CommitUnknown:
    version = proposal.snapshot.version
    return CommitUnknown(
        f"no clear answer whether version {version} was committed: {error.message}. Commit the "
        "same transaction again, or ask Table.find_transaction once the table has that version",
        table=memory.table,
        version=version,
        until=version,
        transaction=transaction_id,
    )
