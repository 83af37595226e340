"""One slot of the log: store a commit in it, and find out what it contains.

The outcome for one slot is resolved before another slot is tried (FORMAT.md "Committing").
"""

from __future__ import annotations

from eventlog.commit.intents import that_fit, waiting
from eventlog.commit.proposal import Proposal
from eventlog.commit.protocol.commands import (
    Both,
    Command,
    Created,
    Draw,
    Elapsed,
    ListIntents,
    PutObjects,
    PutSlot,
    ReadIntents,
    ReadSlot,
    Refused,
    Sleep,
    SlotAnswer,
    SlotHash,
    Steps,
    Stored,
    Unclear,
)
from eventlog.commit.protocol.writer import Writer
from eventlog.errors import (
    CommitUnknown,
    EventLogError,
    InvalidInput,
    OutcomeUnknown,
    Unavailable,
    VersionCut,
)
from eventlog.format.codec import sha256
from eventlog.log.snapshot import Snapshot
from eventlog.store.retry import MAX_TRIES, wait_s


def put_commit(writer: Writer, proposal: Proposal, transaction_id: str) -> Steps[Stored | None]:
    """Store a proposal and find out what its slot contains.

    After an unclear answer the slot is read back, and the same bytes are sent to the same key again
    until the outcome is clear.

    Args:
        writer: what this writer remembers.
        proposal: the commit to store.
        transaction_id: the id of the own transaction, for errors.

    Returns:
        None if the slot contains the proposal, else the commit that it contains.

    Raises:
        CommitUnknown: the outcome is still unclear after the last try.
        VersionCut: another commit came first, and a stub is left of it.
        InvalidInput: the store refused the commit; nothing was stored.
        Unavailable: the store does not answer; nothing was stored.
    """
    yield PutObjects(proposal.objects)
    unclear = False
    last: Unavailable
    for tries in range(1, MAX_TRIES + 1):
        try:
            return (yield from _try_once(writer, proposal))
        except Unavailable as error:
            unclear, last = unclear or isinstance(error, OutcomeUnknown), error
        except InvalidInput as error:
            if not unclear:  # every try was certainly refused
                raise
            # The store refuses requests now, but an earlier one may have stored the commit.
            raise _unknown(writer, proposal, transaction_id, error) from error
        if tries < MAX_TRIES:
            yield Sleep(wait_s(tries, (yield Draw())))
    if not unclear:
        raise last
    raise _unknown(writer, proposal, transaction_id, last) from last


def _try_once(writer: Writer, proposal: Proposal) -> Steps[Stored | None]:
    """Send the commit once, and read the slot back unless the store reported success.

    Raises:
        OutcomeUnknown: it is unclear what the slot contains.
        InvalidInput: the store refused the commit; nothing was stored.
        Unavailable: the store does not answer; nothing was stored.
        VersionCut: another commit came first, and a stub is left of it.
    """
    version = proposal.snapshot.state.header.version
    put = PutSlot(version, proposal.body)
    contention = writer.contention
    sent_s: float = yield Elapsed()
    if contention.looks_beside():
        answer = yield from _put_and_look(writer, proposal.snapshot, put)
    else:
        answer = yield put
    contention.took((yield Elapsed()) - sent_s)
    if isinstance(answer, Created):
        return None
    if isinstance(answer, Refused):
        raise answer.error
    reason = "the store reports that the commit exists"
    if isinstance(answer, Unclear):
        reason = answer.message  # against unknown-taken-for-failure, unknown-taken-for-success
    # The slot is also read if it exists: our own request may have been delivered twice.
    try:
        stored: Stored | None = yield ReadSlot(version)
        read_back = "the commit cannot be read yet"
    except VersionCut:  # this writer was suspended for as long as the log is kept
        # against own-stub-taken-for-anothers
        if (yield SlotHash(version)) == sha256(proposal.body):
            return None
        raise
    except (Unavailable, InvalidInput) as error:
        stored, read_back = None, error.message
    if stored is None:
        raise OutcomeUnknown(f"{reason}; {read_back}", version=version)
    # against own-commit-taken-for-anothers
    return None if stored.body == proposal.body else stored


def _put_and_look(writer: Writer, after: Snapshot, put: PutSlot) -> Steps[SlotAnswer]:
    """Send a commit, and meanwhile look for published transactions for the next ones.

    Those that the last look found are read, and the next commit includes them. So no commit waits
    for them.
    """
    found = that_fit(waiting(writer.listed, after))
    look: Command = ListIntents(after)
    if found:
        look = Both(look, ReadIntents([intent.key for intent in found], after.header.table))
    answer: SlotAnswer
    answer, seen = yield Both(put, look)
    listed, taken = seen if found and seen else (seen, [])
    writer.listed = waiting(listed or [], after)
    if writer.listed:
        writer.contention.expect()
    # Else the same ones are tried again, and what was read meanwhile is read later, from a cache.
    if isinstance(answer, Created):
        known = {intent.id for intent in found}
        writer.listed = [intent for intent in writer.listed if intent.id not in known]
        writer.taken = taken or []
    return answer


def _unknown(
    writer: Writer, proposal: Proposal, transaction_id: str, error: EventLogError
) -> CommitUnknown:
    version = proposal.snapshot.state.header.version
    return CommitUnknown(
        f"it is unknown whether version {version} was committed: {error.message}. Commit the same "
        "transaction again, or call Table.find_transaction once the table has that version",
        table=writer.table,
        version=version,
        until=version,
        transaction=transaction_id,
    )
