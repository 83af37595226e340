"""The next commit: its bytes, the objects that it names, and the snapshot after it.

No I/O: a proposal is a function of the head and of the transactions that the fold accepted on it
(FORMAT.md "Committing").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import UnsetType

from eventlog.arguments import text, whole
from eventlog.errors import CommitConflict, Corrupt, InvalidInput, UnsupportedFormat
from eventlog.format import codec
from eventlog.log import spills
from eventlog.log.snapshot import Reader, Snapshot
from eventlog.model.actions import Advance
from eventlog.model.properties import setting
from eventlog.model.records import (
    FORMAT_NAME,
    FORMAT_VERSION,
    KNOWN_WRITE_FEATURES,
    Commit,
    Header,
    KeyFrame,
    Meta,
    Totals,
    Transaction,
    cut_of,
)
from eventlog.state import fold
from eventlog.state.delta import Delta
from eventlog.state.version import VersionState, commit_size

MAX_WRITER = 120
_MAX_INFO = 16 * 1024


@dataclass(frozen=True, slots=True)
class Proposal:
    """A commit ready to be stored: first `objects`, by key, then `body` in the slot.

    Attributes:
        body: the bytes of the commit.
        objects: the objects that the commit names, by key.
        snapshot: the snapshot after the commit.
    """

    body: bytes
    objects: dict[str, bytes]
    snapshot: Snapshot


def propose(
    head: Snapshot | None,
    transactions: Sequence[Transaction],
    effect: fold.Effect,
    *,
    table_id: str,
    time_ms: int,
    log: Reader,
) -> Proposal:
    """Return the commit after `head` that contains these transactions.

    Args:
        head: the newest snapshot; None: the commit is version 0.
        transactions: the accepted transactions, none spilled.
        effect: their effect on `head`.
        table_id: the id of the table.
        time_ms: the time of the commit, in ms UTC.
        log: the log that the new snapshot reads from.

    Raises:
        CommitConflict: see `_check_base`.
        InvalidInput: the commit would exceed the limits of the format, or break it.
    """
    objects, before = dict[str, bytes](), head.state if head else None
    version, base = (before.version + 1, before.base) if before else (0, None)
    _check_base(base, effect.meta)
    delta = (before.delta if before else Delta()).then(effect.adds, effect.drops, effect.deletes)
    packed = tuple(spills.spill_transaction(transaction, objects) for transaction in transactions)
    totals, state_hash = fold.add_effect(
        before.header if before else None, before.meta if before else Meta(), effect
    )
    header = Header(
        format=FORMAT_NAME,
        min_reader=FORMAT_VERSION,
        min_writer=FORMAT_VERSION,
        features=fold.features(effect.meta, totals),
        table=table_id,
        version=version,
        prev=before.commit_hash if before else None,
        time=time_ms,
        keyframe=base.version if base else None,
        totals=totals,
        state_hash=state_hash,
        changes=fold.summarize_changes(packed, effect),
        write_features=fold.write_features(effect.meta),
    )
    state = codec.meta_diff(base.state if base else Meta(), effect.meta)
    _check_count(base, delta, totals)
    commit = Commit(header, state, packed, spills.spill_delta(delta, version, objects))
    body = _encoded(commit)
    after = VersionState(
        header=header,
        commit_hash=codec.sha256(body),
        meta=effect.meta,
        base=base,
        delta=delta,
        commit_bytes=commit_size(commit, body),
    )
    return Proposal(body, objects, Snapshot(after, log))


def _check_base(base: KeyFrame | None, meta: Meta) -> None:
    """Refuse a commit over a key frame below the cut of the log, which may be deleted (R22.3).

    Raises:
        CommitConflict: it would be: the log was cut meanwhile, or the key frames above the cut are
            unusable.
    """
    cut = cut_of(meta)
    # against key-frame-below-the-cut
    if cut and (base is None or base.version < cut):
        raise CommitConflict(
            f"the log is cut at version {cut}, and this commit would start from an older key "
            "frame: read the table again, and if that does not help, run `eventlog fsck --repair`, "
            "which writes key frames that are unusable or missing"
        )


def _check_count(base: KeyFrame | None, delta: Delta, totals: Totals) -> None:
    """Refuse a version that no reader can open: it could never be repaired.

    Raises:
        InvalidInput: the delta does not give as many segments as the totals.
    """
    count = (base.totals.segments if base else 0) + len(delta.adds) - len(delta.drops)
    if count != totals.segments:
        raise InvalidInput("the commit would break the format: a segment id is already live")


def check_writable(header: Header) -> None:
    """Refuse to write to a table whose head requires a newer writer.

    Raises:
        UnsupportedFormat: it does; the message names both format versions, or the feature.
    """
    needs = () if isinstance(header.write_features, UnsetType) else header.write_features
    unknown = sorted({*needs} - KNOWN_WRITE_FEATURES)
    # against newer-format-written, unknown-feature-written
    if header.min_writer > FORMAT_VERSION or unknown:
        more = f" with {', '.join(unknown)}" if unknown else ""
        raise UnsupportedFormat(
            f"the table requires writers of format {header.min_writer}{more}, but this release "
            f"writes format {FORMAT_VERSION}: upgrade eventlog",
            version=header.version,
        )


def keyframe_due(state: VersionState) -> bool:
    """Return whether a key frame is due at this version. Every writer gets the same answer."""
    start = state.base.version if state.base else -1
    commits = setting(state.meta.properties, "keyframe_commits")
    size = setting(state.meta.properties, "keyframe_bytes")
    since = state.header.version - start
    return since > 0 and (since >= commits or state.commit_bytes > size)


def check_proposed(transaction: Transaction) -> None:
    """Check a transaction that a caller passes to `Table.commit`.

    Raises:
        InvalidInput: it is invalid; the message names the field.
    """
    if len(transaction.id) != 32 or set(transaction.id) - set("0123456789abcdef"):
        raise InvalidInput("a transaction's id must be 32 lower-case hexadecimal digits")
    if len(transaction.writer) > MAX_WRITER or len(transaction.operation) > MAX_WRITER:
        raise InvalidInput(
            f"a transaction's writer and operation may have at most {MAX_WRITER} characters"
        )
    if list(transaction.info) != sorted(transaction.info, key=str.encode):
        raise InvalidInput("the names in a transaction's info must be in order")
    if sum(len(k) + len(v) for k, v in transaction.info.items()) > _MAX_INFO:
        raise InvalidInput(f"a transaction's info may have at most {_MAX_INFO} characters")
    if transaction.app is not None:
        text(transaction.app.id, "an app id")
        whole(transaction.app.seq, "the sequence of an app")
    for action in transaction.actions:
        if isinstance(action, Advance):
            text(action.app, "an app id")
            whole(action.new, "the sequence of an app")
    try:
        codec.decode_whole(transaction)
    except Corrupt as error:
        raise InvalidInput(f"the transaction breaks the format: {error.message}") from None
    if transaction.spill is not None or transaction.until is not None:
        raise InvalidInput(
            "a transaction must be passed with all its actions, without `spill` and `until`: the "
            "library sets these"
        )


def _encoded(commit: Commit) -> bytes:
    """Return the bytes of a commit, if readers will accept them.

    A version that no reader can open could never be repaired.

    Raises:
        InvalidInput: readers would refuse them, or they are too many.
    """
    try:
        return codec.encode_checked(commit)
    except Corrupt as error:
        raise InvalidInput(f"the commit would break the format: {error.message}") from None
