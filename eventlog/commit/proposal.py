"""The next commit: its bytes, the objects it names, and the snapshot that it makes.

Pure layer. A proposal is a function of the head and of what the fold accepted on top of it; the
shell only stores it (FORMAT.md "Committing").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eventlog.arguments import text, whole
from eventlog.errors import Corrupt, InvalidInput, UnsupportedFormat
from eventlog.format import codec
from eventlog.log import spills
from eventlog.log.resolve import commit_size
from eventlog.log.snapshot import Reader, Snapshot
from eventlog.model.properties import setting
from eventlog.model.records import (
    FORMAT_NAME,
    FORMAT_VERSION,
    Commit,
    Header,
    Meta,
    Transaction,
)
from eventlog.state import fold
from eventlog.state.delta import Delta
from eventlog.state.version import VersionState

MAX_WRITER = 120
_MAX_INFO = 16 * 1024


@dataclass(frozen=True, slots=True)
class Proposal:
    """A commit ready to be stored: first `objects` by key, then `body` in the slot."""

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
    """Return the commit after `head` (None: version 0) that holds these transactions.

    Raises:
        InvalidInput: the commit would pass the bounds of the format.
    """
    objects: dict[str, bytes] = {}
    version = head.version + 1 if head else 0
    base = head.base if head else None
    delta = (head.delta if head else Delta()).then(effect.adds, effect.drops)
    packed = tuple(spills.pack(transaction, objects) for transaction in transactions)
    totals, state_hash = fold.after(head.header if head else None, _meta(head), effect)
    header = Header(
        format=FORMAT_NAME,
        min_reader=FORMAT_VERSION,
        min_writer=FORMAT_VERSION,
        features=(),
        table=table_id,
        version=version,
        prev=head.commit_hash if head else None,
        time=time_ms,
        keyframe=base.version if base else None,
        totals=totals,
        state_hash=state_hash,
        changes=fold.changes(packed, effect),
    )
    state = codec.meta_diff(base.state if base else Meta(), effect.meta)
    count = (base.totals.segments if base else 0) + len(delta.adds) - len(delta.drops)
    if count != totals.segments:  # a slot that holds what nobody can open is lost for ever
        raise InvalidInput("the commit would break the format: a segment id is live already")
    commit = Commit(header, state, packed, spills.record(delta, version, objects))
    body = _checked(codec.encode_commit(commit), version)
    after = VersionState(
        header=header,
        commit_hash=codec.sha256(body),
        meta=effect.meta,
        base=base,
        delta=delta,
        commit_bytes=commit_size(commit, body),
    )
    return Proposal(body, objects, Snapshot(after, log))


def check_writable(header: Header) -> None:
    """Refuse to write to a table whose head asks for a newer writer.

    Raises:
        UnsupportedFormat: naming both versions.
    """
    if header.min_writer > FORMAT_VERSION:  # against newer-format-written
        raise UnsupportedFormat(
            f"the table asks for writers of format {header.min_writer}, this release writes "
            f"{FORMAT_VERSION}: upgrade eventlog",
            version=header.version,
        )


def keyframe_due(snapshot: Snapshot) -> bool:
    """Say whether a key frame falls due at this version: a function of the version alone."""
    start = snapshot.base.version if snapshot.base else -1
    commits = setting(snapshot.properties, "keyframe_commits")
    size = setting(snapshot.properties, "keyframe_bytes")
    return snapshot.version > start and (
        snapshot.version - start >= commits or snapshot.commit_bytes > size
    )


def check_transaction(transaction: Transaction) -> None:
    """Check what a caller hands to `Table.commit`.

    Raises:
        InvalidInput: naming the field.
    """
    if len(transaction.id) != 32 or set(transaction.id) - set("0123456789abcdef"):
        raise InvalidInput("a transaction's id is 32 lower-case hexadecimal digits")
    if len(transaction.writer) > MAX_WRITER or len(transaction.operation) > MAX_WRITER:
        raise InvalidInput(
            f"a transaction's writer and operation have at most {MAX_WRITER} characters"
        )
    if list(transaction.info) != sorted(transaction.info, key=str.encode):
        raise InvalidInput("the names of a transaction's info stand in order")
    if sum(len(k) + len(v) for k, v in transaction.info.items()) > _MAX_INFO:
        raise InvalidInput(f"a transaction's info has at most {_MAX_INFO} characters")
    if transaction.app is not None:
        text(transaction.app.id, "an app id")
        whole(transaction.app.seq, "the sequence of an app")
    try:
        codec.decode_whole(transaction)
    except Corrupt as error:
        raise InvalidInput(f"the transaction breaks the format: {error.message}") from None
    if transaction.spill is not None or transaction.until is not None:
        raise InvalidInput(
            "a transaction is handed over with all its actions; spilling is done here"
        )


def _checked(body: bytes, version: int) -> bytes:
    """Return the bytes if readers will take them: a slot that holds others is lost for ever.

    Raises:
        InvalidInput: they would not.
    """
    try:
        codec.decode_commit(body, version)
    except Corrupt as error:
        raise InvalidInput(f"the commit would break the format: {error.message}") from None
    return body


def _meta(head: Snapshot | None) -> Meta:
    return head.meta if head else Meta()
