"""The commit protocol: one transaction takes effect in one version, exactly once.

No I/O, no clock, no threads: generators that yield commands and are sent what came of them
(FORMAT.md "Algorithms", "Combining"). `Committer` drives them against a store, and a simulation
against a model of one. Three things are done over one slot of the log: race for it, ride
along with another writer's commit, and settle an outcome that is unknown. The fate of a slot is
settled before another is tried. Nothing is ever deleted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from eventlog.commit import publication
from eventlog.commit.commands import (
    At,
    Beside,
    CheckIdentity,
    Created,
    Draw,
    Frame,
    Holds,
    ListIntents,
    Met,
    Newest,
    Now,
    Publish,
    Published,
    PutObjects,
    PutSlot,
    ReadIntents,
    ReadSlot,
    Refused,
    Resolve,
    Sleep,
    Steps,
    Stored,
    Unclear,
    View,
    Viewed,
)
from eventlog.commit.contention import (
    FIRST_LOOK,
    MAX_AWAITED,
    MAX_DEFERRALS,
    MAX_LED,
    NEXT_LOOK,
    Contention,
    Role,
    Watch,
)
from eventlog.commit.proposal import Proposal, check_writable, propose
from eventlog.commit.publication import Intent, patience
from eventlog.commit.rebase import Conflict, Done, Ready, rebase, refusal
from eventlog.commit.retry import MAX_TRIES, wait_s
from eventlog.errors import (
    AlreadyExists,
    ClaimLost,
    CommitConflict,
    CommitUnknown,
    EventLogError,
    InvalidInput,
    OutcomeUnknown,
    Unavailable,
    VersionNotFound,
)
from eventlog.model.properties import setting
from eventlog.model.records import Transaction
from eventlog.state.fold import NoState
from eventlog.state.snapshot import Frames, Snapshot
from eventlog.state.timing import commit_time

MAX_LOST_RACES = 200
_FIRST_WAIT_S = 0.02
_LONGEST_WAIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a transaction: its version, and the newest snapshot known.

    `version` is the version that holds it; for an (app id, sequence) that is in the state already,
    a version at which it is included.
    """

    version: int
    head: Snapshot


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A transaction that may stand in one of `versions`, in the form in which it was sent."""

    form: Transaction
    versions: range


@dataclass(slots=True)
class Protocol:
    """The protocol of one handle: what it remembers, and the generators that work with it.

    Attributes:
        table: URI of the table, for errors.
        frames: where a snapshot gets the parts of key frames.
        contention: what it makes of other writers.
        unsettled: by transaction id, what was sent and may still take effect.
        may_publish: false once the store refuses what is published, for good.
        listed: others' published transactions, as a listing beside the last commit showed them.
    """

    table: str
    frames: Frames
    contention: Contention = field(default_factory=Contention)
    unsettled: dict[str, Unsettled] = field(default_factory=dict)
    may_publish: bool = True
    listed: list[Intent] = field(default_factory=list)

    # --- What a handle asks for -----------------------------------------------------------------

    def create(self, transaction: Transaction, table_id: str) -> Steps[Outcome]:
        """Commit version 0.

        Raises:
            AlreadyExists: a table lies under this root.
            CommitUnknown: the store gave no clear answer.
        """
        now_ms: int = yield Now()
        verdict = rebase(transaction, NoState(), now_ms)
        if not isinstance(verdict, Ready):
            raise CommitConflict(f"the table cannot be created: {verdict}", table=self.table)
        proposal = propose(
            None,
            verdict.transactions,
            verdict.effect,
            table_id=table_id,
            time_ms=now_ms,
            frames=self.frames,
        )
        stored = yield from self._settle(proposal, transaction.id)
        if stored is not None:
            raise AlreadyExists(
                "a table lies here already: open it, or choose another path", table=self.table
            )
        return Outcome(0, proposal.snapshot)

    def commit(self, transaction: Transaction, head: Snapshot) -> Steps[Outcome]:
        """Carry the transaction to the head of the log.

        Raises:
            ClaimLost: the claim that it runs under is gone; nothing was committed.
            CommitConflict: it cannot be carried; nothing was committed.
            CommitUnknown: it is not known whether it landed; the version is in the error.
            TableNotFound: the log is not the one of `head` any more; nothing was committed.
            Unavailable: the store does not answer, or every race was lost; nothing was committed.
        """
        check_writable(head.header)
        try:
            return (yield from self._carry(transaction, head))
        except (CommitUnknown, Unavailable, InvalidInput) as error:
            if transaction.id not in self.unsettled:  # against sent-and-forgotten
                raise
            # What was sent may still arrive, also where it was a read that failed just now.
            raise self._open(transaction.id, error) from error

    def read_ahead(self, head: Snapshot) -> Steps[None]:
        """Read what others had published at the last commit, beside the upload of the next rows.

        The shell keeps what it has read, so that the commit after it need not wait for it.

        Raises:
            Unavailable: the store does not answer.
        """
        if self.contention.leads and self.listed:
            chosen = publication.that_fit(publication.waiting(self.listed, head))
            yield ReadIntents([intent.key for intent in chosen], head.header.table)

    # --- The transaction's way to the head ------------------------------------------------------

    def _carry(self, transaction: Transaction, head: Snapshot) -> Steps[Outcome]:
        """Do as `commit` does; Unavailable says nothing of what `unsettled` holds."""
        if transaction.read_version > head.version:
            head = yield Newest(head)
        losses = patience(transaction, setting(head.properties, "combine_after"))
        for lost in range(MAX_LOST_RACES):
            if transaction.id in self.unsettled:  # against another-slot-while-unclear
                outcome = yield from self._settle_earlier(transaction.id)
                if outcome is not None:
                    return outcome
            settled = transaction.id not in self.unsettled
            if losses and settled and self.contention.publishes and self.may_publish:
                step = yield from self._combine(transaction, head)
                if isinstance(step, Outcome):
                    return step
                head = step
            others: list[Transaction] = []
            if losses:
                others = yield from self._others(transaction, head)
            step = yield from self._race(transaction, head, others)  # against new-id-on-retry
            if isinstance(step, Outcome):
                return step
            publish = lost + 1 >= losses or bool(step.meta.published)
            self.contention.lost(publish=bool(losses) and publish)
            head = step
            publishes = losses and self.contention.publishes and self.may_publish
            if not publishes:
                yield from self._pause(lost)
                head = yield Newest(step)
        raise self._beaten(transaction)

    def _race(
        self, transaction: Transaction, head: Snapshot, others: Sequence[Transaction]
    ) -> Steps[Outcome | Snapshot]:
        """Try the slot after `head` once; return the outcome, or the newer head that was met.

        Raises:
            CommitConflict: the transaction cannot be carried to the newest version.
        """
        viewed: Viewed = yield View(head, (transaction, *others))
        head, view = viewed.head, viewed.view
        now_ms: int = yield Now()
        time_ms = commit_time(head.header, now_ms, transaction)
        verdict = rebase(transaction, view, time_ms, others)
        if isinstance(verdict, Done):
            yield CheckIdentity(head)
            return Outcome(verdict.version, head)
        if isinstance(verdict, Conflict):
            newest = yield from self._newest(transaction, head)
            if isinstance(newest, Snapshot) and newest.version == head.version:
                yield CheckIdentity(head)
                raise refusal(transaction, head.header, head.meta, verdict, self.table)
            return newest
        try:
            proposal = propose(
                head,
                verdict.transactions,
                verdict.effect,
                table_id=head.header.table,
                time_ms=time_ms,
                frames=self.frames,
            )
        except (InvalidInput, OverflowError):
            if not others:
                raise
            # What others published must not stop this one: alone it may fit.
            return (yield from self._race(transaction, head, ()))
        taken = len(verdict.transactions) > 1
        return (yield from self._try_slot(transaction, head, proposal, alone=not taken))

    def _try_slot(
        self, transaction: Transaction, head: Snapshot, proposal: Proposal, *, alone: bool
    ) -> Steps[Outcome | Snapshot]:
        """Store the proposal in its slot; return the outcome, or the snapshot of what is there."""
        yield CheckIdentity(head, writes=True)
        version = proposal.snapshot.version
        earlier = self.unsettled.get(transaction.id)
        if earlier is None:
            self.unsettled[transaction.id] = Unsettled(transaction, range(version, version + 1))
        try:
            stored = yield from self._settle(proposal, transaction.id)
        except (Unavailable, InvalidInput):
            if earlier is None:  # else what was sent before may still arrive
                del self.unsettled[transaction.id]
            raise
        yield Met()
        if stored is None:
            del self.unsettled[transaction.id]
            self.contention.led(alone=alone)
            after: Snapshot = yield Frame(proposal.snapshot)
            return Outcome(version, after)
        # against own-id-not-looked-for
        listed = any(t.id == transaction.id for t in stored.commit.transactions)
        # A handle that is behind loses slots below the one that is open: that one stays open.
        still_open = earlier is not None and version not in earlier.versions
        if not listed and transaction.until is None and not still_open:
            del self.unsettled[transaction.id]
        snapshot: Snapshot = yield Resolve(stored, head)
        if listed and (yield Holds(stored, snapshot, transaction.id)):
            del self.unsettled[transaction.id]
            self.contention.rode()
            return Outcome(version, snapshot)
        return snapshot

    # --- One slot -------------------------------------------------------------------------------

    def _settle(self, proposal: Proposal, transaction_id: str) -> Steps[Stored | None]:
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
                return (yield from self._try_once(proposal))
            except Unavailable as error:
                unclear, last = unclear or isinstance(error, OutcomeUnknown), error
            except InvalidInput as error:
                if not unclear:  # every try was refused for sure
                    raise
                # The store denies us by now: what was sent before may be there.
                raise self._unknown(proposal, transaction_id, error) from error
            if tries < MAX_TRIES:
                yield Sleep(wait_s(tries, (yield Draw())))
        if not unclear:
            raise last
        raise self._unknown(proposal, transaction_id, last) from last

    def _try_once(self, proposal: Proposal) -> Steps[Stored | None]:
        """Send the commit once; read the slot back unless the answer was plain success.

        Raises:
            OutcomeUnknown: the slot's fate is still open.
            Unavailable: the store took nothing.
        """
        version = proposal.snapshot.version
        put = PutSlot(version, proposal.body)
        if self.contention.leads:
            answer, listed = yield Beside(put, ListIntents(proposal.snapshot))
            self.listed = listed or []
        else:
            answer = yield put
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

    # --- Riding along ---------------------------------------------------------------------------

    def _combine(self, transaction: Transaction, head: Snapshot) -> Steps[Outcome | Snapshot]:
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
                self.unsettled[transaction.id] = Unsettled(published, window)
                step = yield from self._ride(published, head, new=True)
            else:
                # It is in already, or void here: published, it could land after it was refused.
                step = yield from self._race(transaction, head, ())
            if isinstance(step, Outcome) or not self.may_publish:
                return step
            head = step
        raise self._beaten(transaction)

    def _ride(
        self, published: Transaction, head: Snapshot, *, new: bool
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
                    self.may_publish = False
                    del self.unsettled[published.id]
                    return head
                self.contention.took(answer.took_s)
            step = yield from self._see_through(published, head)
        except (ClaimLost, CommitConflict):
            self.unsettled.pop(published.id, None)
            raise
        self.unsettled.pop(published.id, None)  # found, or dead with its window
        return step

    def _see_through(self, published: Transaction, head: Snapshot) -> Steps[Outcome | Snapshot]:
        """Look for a published transaction in others' commits; where none comes, commit it."""
        last = published.until or 0
        if self.contention.role is Role.RIDES:
            step = yield from self._await_leader(published, head)
            if isinstance(step, Outcome):
                return step
            head = step
        far = False
        while head.version < last:
            step, others = yield from self._look_around(published, head, far=far)
            if isinstance(step, Outcome):
                return step
            if step.version >= last:
                return step
            step, others = yield from self._defer(published, step, others)
            if isinstance(step, Outcome):
                return step
            step, taken = yield from self._read_beside_look(published, step, others)
            if isinstance(step, Outcome):
                return step
            step = yield from self._lead(published, step, taken)
            if isinstance(step, Outcome):
                return step
            head, far = step, True
        return head

    def _look_around(
        self, published: Transaction, head: Snapshot, *, far: bool
    ) -> Steps[tuple[Outcome | Snapshot, list[Intent]]]:
        """List what is published, and beside it look for newer commits: all of them if `far`."""
        look = Newest(head) if far else ReadSlot(head.version + 1)
        intents, newer = yield Beside(ListIntents(head), look)
        step: Outcome | Snapshot = head
        if isinstance(newer, Stored):
            step = yield from self._after(published, head, newer)
        elif isinstance(newer, Snapshot) and newer.version > head.version:
            version = yield from self._taken_between(published, head, newer)
            step = newer if version is None else Outcome(version, newer)
        if isinstance(step, Outcome):
            self.contention.rode()
            return step, []
        return step, publication.waiting(intents, step, {published.id})

    def _read_beside_look(
        self, published: Transaction, head: Snapshot, others: Sequence[Intent]
    ) -> Steps[tuple[Outcome | Snapshot, list[Transaction]]]:
        """Read what others published, and beside it look for a newer commit."""
        if not others:
            return head, []
        chosen = [intent.key for intent in publication.that_fit(others)]
        read = ReadIntents(chosen, head.header.table)
        taken, stored = yield Beside(read, ReadSlot(head.version + 1))
        if stored is None:
            return head, taken
        step = yield from self._after(published, head, stored)
        if isinstance(step, Outcome):
            self.contention.rode()
        return step, taken

    def _defer(
        self, published: Transaction, head: Snapshot, others: list[Intent]
    ) -> Steps[tuple[Outcome | Snapshot, list[Intent]]]:
        """Give way to the first in order for a while: all see the same list, so that one leads."""
        own = Intent(published.until or 0, published.id, "", 0)
        deferrals = 0
        while others and others[0] < own and deferrals < MAX_DEFERRALS:
            yield from self._rest(NEXT_LOOK if deferrals else FIRST_LOOK)
            step = yield from self._next(published, head)
            if isinstance(step, Outcome):
                self.contention.rode()
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
        self, published: Transaction, head: Snapshot, others: list[Transaction]
    ) -> Steps[Outcome | Snapshot]:
        """Race with others' transactions beside the own one, more than once.

        A writer that knows of no others commits every two requests or so. It is beaten right after
        its commit, and hardly ever by a request that started before.
        """
        for _ in range(MAX_LED):
            if head.version >= (published.until or 0):
                break
            step = yield from self._race(published, head, others)
            if isinstance(step, Outcome):
                return step
            self.contention.lost(publish=True)
            head = step
            for _ in range(MAX_AWAITED):
                step = yield from self._next(published, head)
                if isinstance(step, Outcome):
                    self.contention.rode()
                    return step
                if step.version > head.version:
                    head = step
                    break
        return head

    def _await_leader(self, published: Transaction, head: Snapshot) -> Steps[Outcome | Snapshot]:
        """Look for the transaction in the commits that come, as long as somebody seems to lead."""
        watch = Watch()
        yield from self._rest(FIRST_LOOK)
        while head.version < (published.until or 0):
            step = yield from self._next(published, head)
            if isinstance(step, Outcome):
                self.contention.rode()
                return step
            if step.version > head.version:
                watch.left_out()
                head = step
            else:
                watch.nothing()
            if watch.is_over:
                break
            yield from self._rest(NEXT_LOOK)
        return head

    def _others(self, transaction: Transaction, head: Snapshot) -> Steps[list[Transaction]]:
        """Return what others have published, where it is time to look: a leader always does."""
        try:
            if self.contention.leads:
                intents, self.listed = self.listed, []
            elif self.contention.look_is_due():
                intents = yield ListIntents(head)
            else:
                return []
            intents = publication.waiting(intents, head, {transaction.id})
            taken = yield from self._read(intents, head)
        except Unavailable:
            return []  # it is for the others: this one can do without
        if taken:
            self.contention.met()
        return taken

    def _read(self, intents: Sequence[Intent], head: Snapshot) -> Steps[list[Transaction]]:
        """Return others' published transactions, as many as one commit can take along."""
        if not intents:
            return []
        chosen = [intent.key for intent in publication.that_fit(intents)]
        taken: list[Transaction] = yield ReadIntents(chosen, head.header.table)
        return taken

    # --- Looking --------------------------------------------------------------------------------

    def _next(self, published: Transaction, head: Snapshot) -> Steps[Outcome | Snapshot]:
        """Look at the version after `head`, if it is there, for the published transaction."""
        stored: Stored | None = yield ReadSlot(head.version + 1)
        return head if stored is None else (yield from self._after(published, head, stored))

    def _after(
        self, published: Transaction, head: Snapshot, stored: Stored
    ) -> Steps[Outcome | Snapshot]:
        """Go on to the commit after `head`: the outcome if it holds the transaction."""
        snapshot: Snapshot = yield Resolve(stored, head)
        yield Met()
        if (yield Holds(stored, snapshot, published.id)):
            return Outcome(snapshot.version, snapshot)
        return snapshot

    def _newest(self, transaction: Transaction, head: Snapshot) -> Steps[Outcome | Snapshot]:
        """Go to the newest version; a published transaction is looked for on the way there."""
        newest: Snapshot = yield Newest(head)
        version = yield from self._taken_between(transaction, head, newest)
        return newest if version is None else Outcome(version, newest)

    def _taken_between(
        self, transaction: Transaction, known: Snapshot, newest: Snapshot
    ) -> Steps[int | None]:
        """Return the version after `known` in which a published transaction took effect, if any."""
        mark = newest.meta.published.get(transaction.id)
        if mark is not None:
            return mark.version
        if transaction.until is None or newest.version <= transaction.until:
            return None
        # The marks of its window are forgotten: only the commits tell.
        for version in range(known.version + 1, transaction.until + 1):
            if (yield from self._taken_in(version, transaction.id)) is not None:
                return version
        return None

    def _taken_in(self, version: int, transaction_id: str) -> Steps[Snapshot | None]:
        """Return the snapshot of a version if the transaction took effect in it.

        Raises:
            VersionNotFound: there is no such version yet.
        """
        stored: Stored | None = yield ReadSlot(version)
        if stored is None:
            raise VersionNotFound(f"version {version} is not there yet", version=version)
        if not any(t.id == transaction_id for t in stored.commit.transactions):
            return None
        snapshot: Snapshot = yield Resolve(stored)
        holds: bool = yield Holds(stored, snapshot, transaction_id)
        return snapshot if holds else None

    # --- Unknown outcomes -----------------------------------------------------------------------

    def _settle_earlier(self, transaction_id: str) -> Steps[Outcome | None]:
        """Settle a transaction that an earlier call left open: it may stand in the log already.

        Returns None where it does not and cannot any more, or where its slot is still empty: then
        that slot is the next one tried, under the same transaction id.
        """
        known = self.unsettled[transaction_id]
        for version in known.versions:
            try:
                snapshot = yield from self._taken_in(version, transaction_id)
            except VersionNotFound:
                if known.form.until is None:
                    return None
                before: Snapshot = yield At(version - 1)
                step = yield from self._ride(known.form, before, new=False)
                return step if isinstance(step, Outcome) else None
            if snapshot is not None:
                del self.unsettled[transaction_id]
                return Outcome(version, snapshot)
        del self.unsettled[transaction_id]
        return None

    def _open(self, transaction_id: str, error: EventLogError) -> CommitUnknown:
        """Return the error of a transaction that was sent, and may stand in one of its versions."""
        versions = self.unsettled[transaction_id].versions
        return CommitUnknown(
            f"the transaction was sent and can take effect until version {versions[-1]}, but the "
            f"store stopped answering: {error.message}. Commit the same transaction again, or ask "
            "Table.find_transaction once the table is past that version",
            table=self.table,
            version=versions[0],
            until=versions[-1],
            transaction=transaction_id,
        )

    def _unknown(
        self, proposal: Proposal, transaction_id: str, error: EventLogError
    ) -> CommitUnknown:
        version = proposal.snapshot.version
        return CommitUnknown(
            f"no clear answer whether version {version} was committed: {error.message}. Commit the "
            "same transaction again, or ask Table.find_transaction once the table has that version",
            table=self.table,
            version=version,
            until=version,
            transaction=transaction_id,
        )

    def _beaten(self, transaction: Transaction) -> Unavailable:
        return Unavailable(
            f"lost {MAX_LOST_RACES} commit races in a row: the table is under heavy contention; "
            "nothing was committed, try again later",
            table=self.table,
            transaction=transaction.id,
        )

    # --- Waiting --------------------------------------------------------------------------------

    def _pause(self, lost: int) -> Steps[None]:
        """Wait a random time that grows with the races lost before, so that writers spread out."""
        longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(lost, 10))
        if lost:
            yield Sleep((yield Draw()) * longest)

    def _rest(self, requests: float) -> Steps[None]:
        """Wait about as long as so many requests take."""
        yield Sleep(self.contention.request_s * requests * (0.9 + (yield Draw()) / 5))
