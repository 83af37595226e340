"""The next commit: its bytes, the objects it names, and the snapshot that it makes.

Pure layer. A proposal is a function of the head and of what the fold accepted on top of it; the
shell only stores it (FORMAT.md "Algorithms").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from eventlog import codec, fold, keys, segments
from eventlog.delta import Delta, add_of, from_lists
from eventlog.errors import Corrupt, InvalidInput, UnsupportedFormat
from eventlog.model import (
    FORMAT_NAME,
    FORMAT_VERSION,
    Add,
    Commit,
    DeltaRecord,
    Drop,
    Header,
    Meta,
    Segment,
    Spill,
    Transaction,
)
from eventlog.properties import setting
from eventlog.resolve import commit_size
from eventlog.snapshot import Frames, Snapshot

SPILL_BYTES = 256 * 1024  # adds and drops whose JSON is larger go into an object of their own
MAX_WRITER = 120
_MAX_INFO = 16 * 1024

Fetch = Callable[[Spill], pa.Table]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A commit ready to be stored: first `frames` by key, then `body` at the slot of `snapshot`."""

    body: bytes
    frames: dict[str, bytes]
    snapshot: Snapshot


def propose(
    head: Snapshot | None,
    transactions: Sequence[Transaction],
    effect: fold.Effect,
    *,
    table_id: str,
    time_ms: int,
    frames: Frames,
) -> Proposal:
    """Return the commit after `head` (None: version 0) that holds these transactions.

    Raises:
        InvalidInput: the commit would pass the bounds of the format.
    """
    objects: dict[str, bytes] = {}
    version = head.version + 1 if head else 0
    base = head.base if head else None
    delta = (head.delta if head else Delta()).then(effect.adds, effect.drops)
    packed = tuple(_pack(transaction, objects) for transaction in transactions)
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
    commit = Commit(header, state, packed, _record(delta, version, objects))
    body = _checked(codec.encode_commit(commit), version)
    after = Snapshot(
        header=header,
        commit_hash=codec.sha256(body),
        meta=effect.meta,
        base=base,
        delta=delta,
        frames=frames,
        commit_bytes=commit_size(commit, body),
    )
    return Proposal(body, objects, after)


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


def delta_of(commit: Commit, fetch: Fetch) -> Delta:
    """Return the commit's delta.

    Args:
        commit: the commit.
        fetch: returns the table of a spill object.

    Raises:
        Corrupt: the delta breaks the format.
    """
    record, header = commit.delta, commit.header
    adds: Sequence[Segment] = record.adds
    drops: Sequence[Drop] = record.drops
    if record.spill is not None:
        adds, drops = _unspill(record.spill, header.version, fetch)
    return from_lists(adds, drops, header.keyframe, header.version)


def unpack(commit: Commit, fetch: Fetch) -> Commit:
    """Return the commit with the adds and drops of every spilled transaction in its actions.

    Raises:
        Corrupt: a spill object is not what the transaction says.
    """
    if all(t.spill is None for t in commit.transactions):
        return commit
    version = commit.header.version
    whole = []
    for transaction in commit.transactions:
        if transaction.spill is not None:
            added, dropped = _unspill(transaction.spill, version, fetch)
            adds = tuple(add_of(segment) for segment in added)
            actions = (*transaction.actions, *adds, *dropped)
            transaction = msgspec.structs.replace(transaction, actions=actions, spill=None)  # noqa: PLW2901
        whole.append(transaction)
    return msgspec.structs.replace(commit, transactions=tuple(whole))


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
        app = transaction.app
        if not 1 <= len(app.id) <= 255 or not 0 <= app.seq < 2**63:
            raise InvalidInput(
                "an app id has 1 to 255 characters, its sequence lies in 0 to 2^63 - 1"
            )
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


def _pack(transaction: Transaction, objects: dict[str, bytes]) -> Transaction:
    """Return the transaction as stored: large adds and drops move into a spill object."""
    bulk = [a for a in transaction.actions if isinstance(a, Add | Drop)]
    if len(msgspec.json.encode(bulk)) <= SPILL_BYTES:
        return transaction
    adds = [a for a in bulk if isinstance(a, Add)]
    drops = [a for a in bulk if isinstance(a, Drop)]
    spill = _store(segments.spill(adds, drops), len(adds), len(drops), objects)
    rest = tuple(a for a in transaction.actions if not isinstance(a, Add | Drop))
    return msgspec.structs.replace(transaction, actions=rest, spill=spill)


def _record(delta: Delta, version: int, objects: dict[str, bytes]) -> DeltaRecord:
    record = delta.record()
    if len(msgspec.json.encode(record)) <= SPILL_BYTES:
        return record
    table = segments.spill(record.adds, record.drops, version)
    return DeltaRecord(spill=_store(table, len(record.adds), len(record.drops), objects))


def _store(table: pa.Table, adds: int, drops: int, objects: dict[str, bytes]) -> Spill:
    body = segments.to_parquet(table)
    digest = codec.sha256(body)
    objects[keys.frame_key(digest)] = body
    return Spill(digest, len(body), adds, drops)


def _unspill(spill: Spill, version: int, fetch: Fetch) -> tuple[list[Segment], list[Drop]]:
    added, dropped = segments.from_spill(fetch(spill), version)
    if (len(added), len(dropped)) != (spill.adds, spill.drops):
        raise Corrupt("a spill object holds other counts than its commit says", version=version)
    return added, dropped
