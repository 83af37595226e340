"""Canonical JSON of commits and key frame roots, and the hashes over it.

Every value has exactly one encoding (FORMAT.md "Canonical JSON"): UTF-8, no white space, fields in
the order of `eventlog.model.records`, no floats, optional fields always written. Decoding is
strict: after checks of size and depth, input that does not encode back to the same bytes is
refused. That rules out duplicate keys, other number forms and unknown fields at once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UnsetType

from eventlog import limits
from eventlog.errors import Corrupt, InvalidInput, UnsupportedFormat
from eventlog.format import keys, wellformed
from eventlog.format.digest import with_digest, without_digest
from eventlog.model.entries import Count, Segment
from eventlog.model.records import (
    FORMAT_NAME,
    FORMAT_VERSION,
    KNOWN_FEATURES,
    Commit,
    Fork,
    Header,
    KeyFrame,
    Leaf,
    LogCut,
    Meta,
    Origin,
    Start,
    Stub,
    Transaction,
)

MAX_COMMIT_BYTES = limits.COMMIT_BYTES
MAX_KEYFRAME_BYTES = limits.KEYFRAME_BYTES
MAX_INTENT_BYTES = limits.INTENT_BYTES
MAX_START_BYTES = limits.START_BYTES
MAX_FORK_BYTES = limits.FORK_BYTES
HEADER_BYTES = limits.HEADER_BYTES
MAX_DEPTH = limits.JSON_DEPTH
HASH_BYTES = 32
HASH_MODULUS = 1 << 8 * HASH_BYTES

_HEADER_START = b'{"header":'
_STUB_FIELD = b',"commit":"'
_encoder = msgspec.json.Encoder()
_PLAIN = rb'[^"\[\]{}]++|"(?:[^"\\]|\\.)*+"'
_Model = TypeVar("_Model", Commit, Fork, KeyFrame, Start, Stub, Transaction, tuple[Leaf, ...])


class _Format(msgspec.Struct, frozen=True):
    """The fields that decide whether this release can read the rest."""

    format: str
    min_reader: Count
    features: tuple[str, ...] = ()
    min_writer: Count = FORMAT_VERSION


class _Envelope(msgspec.Struct, frozen=True):
    header: _Format


def encode_commit(commit: Commit) -> bytes:
    """Return the commit's canonical bytes. Header and commit each end with their own sha256.

    Raises:
        InvalidInput: the commit would exceed `MAX_COMMIT_BYTES`, or its header `HEADER_BYTES`.
    """
    return _sealed(commit, _json(commit))


def encode_checked(commit: Commit) -> bytes:
    """Return `encode_commit` of a commit that was made here, if `decode_commit` takes its values.

    The digests and the place of the header, which a reader compares, are true by construction.

    Raises:
        Corrupt: a value is none that the format has.
        InvalidInput: see `encode_commit`.
    """
    plain = _json(commit)
    body = _sealed(commit, plain)
    decoded = _decode_canonical(plain, Commit, "commit")
    wellformed.check_header(decoded.header, commit.header.version)
    wellformed.check_commit(decoded)
    return body


def _json(commit: Commit) -> bytes:
    try:
        return _encoder.encode(commit)
    except OverflowError:
        raise InvalidInput("the table's totals would exceed 64 bits") from None


def _sealed(commit: Commit, text: bytes) -> bytes:
    """Return a commit's JSON with the digests of its header and of all of it."""
    plain = _encoder.encode(commit.header)
    head = _HEADER_START + with_digest(plain)
    if len(head) > HEADER_BYTES:
        raise InvalidInput(
            f"the commit's header has {len(head)} bytes, more than {HEADER_BYTES}: "
            "shorten the writer's name"
        )
    body = with_digest(head + text[len(_HEADER_START) + len(plain) :])
    if len(body) > MAX_COMMIT_BYTES:
        raise InvalidInput(
            f"the commit has {len(body)} bytes, more than {MAX_COMMIT_BYTES}: "
            "shorten its schema, properties or info, or remove app ids"
        )
    return body


def encode_header(header: Header) -> bytes:
    """Return the first bytes of a commit with this header, which end with the header's digest."""
    return _HEADER_START + with_digest(_encoder.encode(header))


def decode_commit(body: bytes, version: int | None = None) -> Commit:
    """Return the commit in `body`, which must be its canonical encoding.

    Raises:
        Corrupt: not a commit, not canonical, or not the commit of `version`.
        UnsupportedFormat: written for a newer reader.
    """
    _check_size(body, MAX_COMMIT_BYTES)  # against size-checked-after-parsing
    _check_readable(_decode(body, _Envelope, "commit").header)
    text = without_digest(body, "commit")
    header_end = _header_end(text)
    header = without_digest(text[len(_HEADER_START) : header_end], "commit header")
    plain = _HEADER_START + header + text[header_end:]
    commit = _decode_canonical(plain, Commit, "commit")
    wellformed.check_header(commit.header, version)
    wellformed.check_commit(commit)
    return commit


def encode_stub(body: bytes) -> bytes:
    """Return the stub that stands for a commit once the log is cut above it (R22.2).

    Args:
        body: the bytes of the commit.

    Raises:
        Corrupt: they do not begin with a header.
    """
    head = body[: _header_end(body)]
    return with_digest(head + _STUB_FIELD + sha256(body).encode() + b'"}')


def is_stub(body: bytes) -> bool:
    """Return whether the bytes under the key of a commit are a stub, damaged or not."""
    try:
        end = _header_end(body)
    except Corrupt:
        return False
    return body[end : end + len(_STUB_FIELD)] == _STUB_FIELD


def decode_stub(body: bytes, version: int | None = None) -> Stub:
    """Return the stub in `body`, which must be its canonical encoding.

    Raises:
        Corrupt: not a stub, not canonical, or not that of `version`.
        UnsupportedFormat: written for a newer reader.
    """
    _check_size(body, MAX_COMMIT_BYTES)
    _check_readable(_decode(body, _Envelope, "stub").header)
    text = without_digest(body, "stub")
    header_end = _header_end(text)
    header = without_digest(text[len(_HEADER_START) : header_end], "commit header")
    stub = _decode_canonical(_HEADER_START + header + text[header_end:], Stub, "stub")
    wellformed.check_stub(stub, version)
    return stub


def commit_hash_of(body: bytes, version: int | None = None) -> str:
    """Return the commit hash of the bytes under the key of a commit, a stub or not.

    Raises:
        Corrupt: it is a damaged stub, or that of another version.
    """
    return decode_stub(body, version).commit if is_stub(body) else sha256(body)


def decode_header(prefix: bytes, version: int | None = None) -> Header:
    """Return the header from the first `HEADER_BYTES` bytes of a commit (or from all of it).

    Raises:
        Corrupt: the bytes do not start with the header of the commit of `version`.
        UnsupportedFormat: written for a newer reader.
    """
    header_bytes = prefix[len(_HEADER_START) : _header_end(prefix)]
    _check_readable(_decode(header_bytes, _Format, "commit header"))
    text = without_digest(header_bytes, "commit header")
    header: Header = _decode(text, Header, "commit header")
    if _encoder.encode(header) != text:
        raise Corrupt("the commit header is not in canonical form", version=version)
    wellformed.check_header(header, version)
    return header


def encode_keyframe(keyframe: KeyFrame) -> bytes:
    """Return the root's canonical bytes, with their own sha256 as the last field.

    Raises:
        InvalidInput: the root would exceed `MAX_KEYFRAME_BYTES`, and readers would refuse it.
    """
    body = with_digest(_encoder.encode(keyframe))
    if len(body) > MAX_KEYFRAME_BYTES:
        raise InvalidInput(
            f"the key frame's root has {len(body)} bytes, more than {MAX_KEYFRAME_BYTES}: "
            "remove user properties, and use fewer app ids"
        )
    return body


def decode_keyframe(body: bytes, version: int) -> KeyFrame:
    """Return the key frame root in `body`.

    Raises:
        Corrupt: not a key frame root, not canonical, or of another version.
        UnsupportedFormat: written for a newer reader.
    """
    _check_size(body, MAX_KEYFRAME_BYTES)
    _check_readable(_decode(body, _Format, "key frame"))
    # The root's entries for its leaves decide what is read, and no hash in a commit covers them.
    root = _decode_canonical(without_digest(body, "key frame"), KeyFrame, "key frame")
    wellformed.check_root(root)
    if root.version != version:
        raise Corrupt(
            f"the key frame of version {version} names version {root.version}",
            version=version,
        )
    return root


def encode_leaves(leaves: Sequence[Leaf]) -> bytes:
    """Return the canonical bytes of the elements of a stem, which describe its leaves.

    Raises:
        InvalidInput: they would exceed `MAX_KEYFRAME_BYTES`, and readers would refuse them.
    """
    text = _encoder.encode(leaves)
    if len(text) > MAX_KEYFRAME_BYTES:
        raise InvalidInput(f"a stem of a key frame has more than {MAX_KEYFRAME_BYTES} bytes")
    return text


def decode_leaves(text: bytes) -> tuple[Leaf, ...]:
    """Return the elements of a stem, which describe its leaves.

    Raises:
        Corrupt: it is not canonical, or a leaf is malformed or out of order.
    """
    _check_size(text, MAX_KEYFRAME_BYTES)
    leaves: tuple[Leaf, ...] = _decode_canonical(text, tuple[Leaf, ...], "stem of a key frame")
    wellformed.check_leaves(leaves)
    return leaves


def encode_start(start: Start) -> bytes:
    """Return the canonical bytes of the start of a replica."""
    return with_digest(_encoder.encode(start))


def decode_start(body: bytes, version: int, table: str | None) -> Start:
    """Return the start of a replica in `body`.

    Args:
        body: the bytes.
        version: the one in its key.
        table: the table's id; None: not known yet.

    Raises:
        Corrupt: not a start, not canonical, or of another table or version.
        UnsupportedFormat: written for a newer reader.
    """
    _check_size(body, MAX_START_BYTES)
    _check_readable(_decode(body, _Format, "start"))
    start = _decode_canonical(without_digest(body, "start"), Start, "start")
    wellformed.check_start(start)
    if start.version != version or not -1 <= start.after < version:
        raise Corrupt(f"the start of the replica at version {version} is that of another version")
    if table is not None and start.table != table:
        raise Corrupt("the start of the replica is that of another table")
    return start


def encode_transaction(transaction: Transaction, table: str) -> bytes:
    """Return a published transaction's canonical bytes; the digest also covers the table's id."""
    return with_digest(_encoder.encode(transaction), table)


def decode_transaction(body: bytes, table: str) -> Transaction:
    """Return the transaction in `body` that was published for a table.

    Raises:
        Corrupt: not a transaction, not canonical, or published for another table.
    """
    _check_size(body, MAX_INTENT_BYTES)
    # Another writer commits this transaction, so no later check would notice a flipped bit.
    text = without_digest(body, "published transaction", table)
    transaction = _decode_canonical(text, Transaction, "published transaction")
    wellformed.check_transaction(transaction)
    return transaction


def encode_fork(fork: Fork) -> bytes:
    """Return the canonical bytes of a branch's fork, with their own sha256 as the last field."""
    return with_digest(_encoder.encode(fork))


def decode_fork(body: bytes, name: str) -> Fork:
    """Return the fork of the branch called `name`.

    Raises:
        Corrupt: not a fork, not canonical, or that of another branch.
        UnsupportedFormat: written for a newer reader.
    """
    _check_size(body, MAX_FORK_BYTES)
    _check_readable(_decode(body, _Format, "fork of a branch"))
    fork = _decode_canonical(without_digest(body, "fork of a branch"), Fork, "fork of a branch")
    wellformed.check_fork(fork, name)
    return fork


def decode_whole(transaction: Transaction) -> None:
    """Check that a transaction made in this process can be encoded, whatever its size.

    Raises:
        Corrupt: a value that the format does not have, such as a negative count.
    """
    try:
        body = _encoder.encode(transaction)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Corrupt(f"not a transaction: {error}") from None
    _decode(body, Transaction, "transaction")


def sha256(body: bytes | memoryview) -> str:
    """Return the sha256 of the bytes, lower-case hexadecimal."""
    return hashlib.sha256(body).hexdigest()


def entry_hash(segment: Segment) -> int:
    """Return the sha256 of the entry's canonical JSON, as an integer."""
    return _digest(segment)


def entry_digests(entries: Sequence[Segment]) -> list[bytes]:
    """Return the sha256 of each entry's canonical JSON: `entry_hash` as bytes, for many entries."""
    # JSON escapes line breaks in strings, so each line break in the bytes ends an entry.
    lines = _encoder.encode_lines(entries).split(b"\n")
    return [hashlib.sha256(line).digest() for line in lines[:-1]]


def hex_hash(value: int) -> str:
    """Return a hash or a sum of hashes, mod 2^256, as 64 hexadecimal digits."""
    return f"{value % HASH_MODULUS:064x}"


def parse_hash(text: str) -> int:
    """Return the integer of 64 hexadecimal digits.

    Raises:
        Corrupt: the text is not a hash.
    """
    keys.frame_key(text)
    return int(text, 16)


def meta_hash(meta: Meta) -> int:
    """Return the sum mod 2^256 of the sha256 of each entry of the small state.

    A field that is a map has one entry per name, the JSON `[field, name, value]`. Any other field
    has the entry `[field, null, value]` unless it has its default value.
    """
    return meta_hash_change(_EMPTY_META, meta)


def meta_hash_change(old: Meta, new: Meta) -> int:
    """Return `meta_hash(new) - meta_hash(old)`, at a cost in proportion to the difference."""
    total = 0
    for field, before, after in _changed_fields(old, new):
        if not isinstance(after, dict):
            total += _field_hash(field, after) - _field_hash(field, before)
            continue
        names = _changed(before, after)
        total += _item_hashes(field, names, after) - _item_hashes(field, names, before)
    return total % HASH_MODULUS


def meta_diff(old: Meta, new: Meta) -> dict[str, Any]:
    """Return the difference from `old` to `new`, in the form of a commit's `state` field.

    Fields are in model order, names in UTF-8 byte order.
    """
    diff: dict[str, Any] = {}
    for field, before, after in _changed_fields(old, new):
        if isinstance(after, dict):
            names = sorted(_changed(before, after), key=str.encode)
            diff[field] = {n: msgspec.to_builtins(after.get(n)) for n in names}
        else:
            diff[field] = msgspec.to_builtins(after)
    return diff


def meta_patch(old: Meta, diff: dict[str, Any]) -> Meta:
    """Return the small state that results from applying `diff` to `old`.

    Raises:
        Corrupt: `diff` is not a result of `meta_diff`: it has an unknown field, a value of the
            wrong shape, or a value that changes nothing.
    """
    changed: dict[str, Any] = {}
    known = dict(_fields(old))
    for field, change in diff.items():
        if field not in _CHANGE_TYPES:
            raise Corrupt(f"the commit's state has an unknown field {field[:80]!r}")
        try:
            value = msgspec.convert(change, _CHANGE_TYPES[field], strict=True)
        except msgspec.ValidationError as error:
            raise Corrupt(f"the commit's state violates the format: {error}") from None
        before = known[field]
        if not isinstance(before, dict):
            redundant = value == before
            changed[field] = value
        else:
            redundant = not value or any(before.get(n) == v for n, v in value.items())
            merged = _merged(before, value)
            changed[field] = merged if merged or field not in OPTIONAL_MAPS else msgspec.UNSET
        if redundant:
            raise Corrupt(f"the commit's state repeats a value of its key frame in {field!r}")
        wellformed.check_hash_forms(field, value)
        if _encoder.encode(value) != _encoder.encode(change):
            raise Corrupt(f"the commit's state field {field!r} is not in canonical form")
    return msgspec.structs.replace(old, **changed)


def _merged(before: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return a map with a change applied, in UTF-8 byte order of the names."""
    merged = {**before, **change}
    return {name: merged[name] for name in sorted(merged) if merged[name] is not None}


_EMPTY_META = Meta()
# Maps of the small state that are absent, and never empty (FORMAT.md R5.1).
OPTIONAL_MAPS: dict[str, Any] = {"origins": Origin}
_OPTIONAL_VALUES: dict[str, Any] = {"cut": LogCut}  # values that are absent for their default
# The type of each field in the commit's `state`: maps by name, with null for a removed name.
_CHANGE_TYPES: dict[str, Any] = {
    field.name: dict[str, OPTIONAL_MAPS[field.name] | None]  # type: ignore[valid-type,name-defined]
    if field.name in OPTIONAL_MAPS
    else dict[str, field.type.__args__[1] | None]  # type: ignore[name-defined]
    if isinstance(getattr(_EMPTY_META, field.name), dict)
    else _OPTIONAL_VALUES.get(field.name, field.type)
    for field in msgspec.structs.fields(Meta)
}


def _fields(meta: Meta) -> list[tuple[str, Any]]:
    """Return the fields of the small state; an absent map is an empty one."""
    values = ((field, getattr(meta, field)) for field in Meta.__struct_fields__)
    return [(f, {} if f in OPTIONAL_MAPS and isinstance(v, UnsetType) else v) for f, v in values]


def _changed_fields(old: Meta, new: Meta) -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields of the small state that differ, each with its old and its new value."""
    for field in Meta.__struct_fields__:
        before, after = getattr(old, field), getattr(new, field)
        if before is after:  # as most are
            continue
        if field in OPTIONAL_MAPS:
            before, after = ({} if isinstance(v, UnsetType) else v for v in (before, after))
        if before != after:
            yield field, before, after


def _field_hash(field: str, value: Any) -> int:
    return 0 if value == getattr(_EMPTY_META, field) else _digest([field, None, value])


def _changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the names whose values differ, or that only one map has."""
    # Values that stay are the same objects as a rule: an app mark of a hundred thousand is compared
    # with itself.
    missing = object()
    names = [
        name
        for name, value in after.items()
        if (old := before.get(name, missing)) is not value and old != value
    ]
    return names + [name for name in before if name not in after]


def _item_hashes(field: str, names: Sequence[str], values: dict[str, Any]) -> int:
    """Return the sum of the hashes of those items of a map that it has."""
    items = [[field, name, values[name]] for name in names if name in values]
    # JSON escapes line breaks in strings, so each line break in the bytes ends an item.
    lines = _encoder.encode_lines(items).split(b"\n")[:-1]
    return sum(int.from_bytes(hashlib.sha256(line).digest(), "big") for line in lines)


def _digest(entry: Any) -> int:
    return int.from_bytes(hashlib.sha256(_encoder.encode(entry)).digest(), "big")


def _header_end(text: bytes) -> int:
    start = len(_HEADER_START)
    header = _OBJECT.match(text[:HEADER_BYTES], start) if text.startswith(_HEADER_START) else None
    if header is None:
        raise Corrupt("the first 2 KB do not contain a commit header")
    return header.end()


def _check_size(body: bytes, limit: int) -> None:
    """Check the size before parsing, since the input may be hostile."""
    if len(body) > limit:
        raise Corrupt(f"more than {limit} bytes of JSON, the most that the format allows")


def _object_pattern() -> re.Pattern[bytes]:
    """Return a pattern that matches one object, up to the depth limit, in linear time."""
    inside = b"(?:" + _PLAIN + b")*+"
    for _ in range(MAX_DEPTH):
        inside = b"(?:" + _PLAIN + rb"|[\[{]" + inside + rb"[\]}])*+"
    return re.compile(rb"\{" + inside + rb"\}", re.DOTALL)


_OBJECT = _object_pattern()


# Built at import: msgspec crashes if several threads use a type for the first time at once.
_MODELS = (
    *(_Envelope, _Format, Commit, Fork, Header, KeyFrame, Meta, Start, Stub, Transaction),
    tuple[Leaf, ...],
)
_DECODERS: dict[type[Any], Any] = {m: msgspec.json.Decoder(m, strict=True) for m in _MODELS}


def _decode(body: bytes, model: type[Any], what: str) -> Any:
    try:
        return _DECODERS[model].decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"not a {what}: {error}") from None


def _decode_canonical(body: bytes, model: type[_Model], what: str) -> _Model:
    value: _Model = _decode(body, model, what)
    try:
        again = _encoder.encode(value)
    except (ValueError, OverflowError, RecursionError) as error:
        raise Corrupt(f"the {what} is not in canonical form: {error}") from None
    if again != body:  # against other-spellings-accepted
        raise Corrupt(f"the {what} is not in canonical form (FORMAT.md R5.3)")
    return value


def _check_readable(fields: _Format) -> None:
    if fields.format != FORMAT_NAME:
        raise Corrupt(f"format {fields.format[:80]!r} is not {FORMAT_NAME!r}")
    unknown = sorted(set(fields.features) - KNOWN_FEATURES)
    if fields.min_reader > FORMAT_VERSION or unknown:  # against newer-format-read
        needs = f"format {fields.min_reader}" + (f" with {', '.join(unknown)}" if unknown else "")
        raise UnsupportedFormat(
            f"the table needs a reader of {needs}; this release reads format {FORMAT_VERSION}: "
            "upgrade eventlog"
        )
